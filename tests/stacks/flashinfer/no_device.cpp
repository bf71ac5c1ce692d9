// v0.7.2's binding asks for the device's number and architecture; in the place of CUDA's, for there needn't be one.
extern "C" {
int cudaSetDevice(int) { return 0; }
int cudaGetDevice(int* device) { return *device = 0; }
// cudaDevAttrComputeCapabilityMajor is 75.
int cudaDeviceGetAttribute(int* value, int asked, int) {
  *value = asked == 75 ? 12 : 1;
  return 0;
}
}
