// Whether the layout of block scales differs between a shape and the shape padded to its alignment.
// Host code only: CuTe's layouts compute on the host. Prints "shapes offsets different".
#include <cstdio>
#include <utility>

#include "cute/tensor.hpp"
#include "cutlass/detail/sm100_blockscaled_layout.hpp"

struct Count {
  long shapes = 0, offsets = 0, different = 0;
};

template <int VecSize>
void compare(int m, int n, int k, Count& count) {
  using Config = cutlass::detail::Sm1xxBlockScaledConfig<VecSize>;
  auto up = [](int x, int to) { return (x + to - 1) / to * to; };
  auto plain = cute::make_shape(m, n, k, 1);
  auto padded = cute::make_shape(up(m, 128), up(n, 128), up(k, 4 * VecSize), 1);
  auto a = Config::tile_atom_to_shape_SFA(plain), a2 = Config::tile_atom_to_shape_SFA(padded);
  auto b = Config::tile_atom_to_shape_SFB(plain), b2 = Config::tile_atom_to_shape_SFB(padded);
  ++count.shapes;
  for (int j = 0; j < k; j += VecSize) {
    for (int i = 0; i < m; ++i, ++count.offsets)
      count.different += a(cute::make_coord(i, j, 0)) != a2(cute::make_coord(i, j, 0));
    for (int i = 0; i < n; i += 37, ++count.offsets)
      count.different += b(cute::make_coord(i, j, 0)) != b2(cute::make_coord(i, j, 0));
  }
}

int main() {
  Count count;
  // Both GEMMs of gpt-oss (hidden and intermediate size 2880), as they are and padded to 128.
  for (int m = 1; m <= 300; ++m)
    for (auto [n, k] : {std::pair{5760, 2880}, {2880, 2880}, {5888, 2944}, {2944, 2944}}) {
      compare<16>(m, n, k, count);
      compare<32>(m, n, k, count);
    }
  for (int m : {1, 127, 129})
    for (int n : {64, 128})
      for (int k : {128, 4096}) {
        compare<16>(m, n, k, count);
        compare<32>(m, n, k, count);
      }
  std::printf("%ld %ld %ld\n", count.shapes, count.offsets, count.different);
}
