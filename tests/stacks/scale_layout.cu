// Whether the layout of block scales differs between a shape and the shape padded to its alignment.
// Host code only: CuTe's layouts compute on the host. Prints "shapes offsets different".
#include <cstdio>
#include "cute/tensor.hpp"
#include "cutlass/detail/sm100_blockscaled_layout.hpp"

template <int VecSize>
void compare(long& shapes, long& offsets, long& different) {
  using Config = cutlass::detail::Sm1xxBlockScaledConfig<VecSize>;
  auto up = [](int x, int to) { return (x + to - 1) / to * to; };
  for (int m : {1, 2, 7, 64, 127, 128, 129, 200, 256, 300})
    for (int n : {64, 128, 2880, 5760})
      for (int k : {128, 2880, 2944, 4096}) {
        auto plain = cute::make_shape(m, n, k, 1);
        auto padded = cute::make_shape(up(m, 128), up(n, 128), up(k, 4 * VecSize), 1);
        auto a = Config::tile_atom_to_shape_SFA(plain), a2 = Config::tile_atom_to_shape_SFA(padded);
        auto b = Config::tile_atom_to_shape_SFB(plain), b2 = Config::tile_atom_to_shape_SFB(padded);
        ++shapes;
        for (int j = 0; j < k; j += VecSize) {
          for (int i = 0; i < m; ++i, ++offsets)
            different += a(cute::make_coord(i, j, 0)) != a2(cute::make_coord(i, j, 0));
          for (int i = 0; i < n; i += 37, ++offsets)
            different += b(cute::make_coord(i, j, 0)) != b2(cute::make_coord(i, j, 0));
        }
      }
}

int main() {
  long shapes = 0, offsets = 0, different = 0;
  compare<16>(shapes, offsets, different);
  compare<32>(shapes, offsets, different);
  std::printf("%ld %ld %ld\n", shapes, offsets, different);
}
