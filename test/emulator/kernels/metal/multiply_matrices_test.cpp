// The kernel that measures products of matrices.

#include "launch.h"

TEST(multiply_matrices_of_every_simdgroup) {
  Buffer<float> sums(metal_args::kMultiplySums);
  launch_metal("multiply_matrices", {{1}, {metal_args::kMultiplyThreads}},
               metal_args::MultiplyMatricesArgs{0.5f}, sums.data());
  for (const float sum : sums) EXPECT(sum == metal_args::kMultiplyRounds * 8 * 0.25f);
}
