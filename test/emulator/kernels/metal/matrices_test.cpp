// The kernels by which the host checks the layout of SIMD group matrices and measures their
// products.

#include "launch.h"

TEST(matrix_places_are_those_that_attention_builds_on) {
  const u32 row_stride = 11;
  Buffer<float> matrix(8 * row_stride);
  for (u32 i = 0; i < 8 * row_stride; ++i) matrix[i] = float(i);
  Buffer<float> held(32 * 3 * 2);
  launch_metal("matrix_places", {{1}, {32}}, metal_args::MatrixPlacesArgs{row_stride}, held.data(),
               matrix.data());
  for (u32 lane = 0; lane < 32; ++lane) {
    const metal_args::MatrixPlace place = metal_args::matrix_place(lane);
    const float first = matrix[place.row * row_stride + place.col];
    for (u32 m = 0; m < 3; ++m) {
      const float* own = held.data() + (lane * 3 + m) * 2;
      EXPECT(own[0] == first && own[1] == first + 1);
    }
  }
}

TEST(multiply_matrices_of_every_simdgroup) {
  Buffer<float> sums(metal_args::kMultiplySums);
  launch_metal("multiply_matrices", {{1}, {metal_args::kMultiplyThreads}},
               metal_args::MultiplyMatricesArgs{0.5f}, sums.data());
  for (const float sum : sums) EXPECT(sum == metal_args::kMultiplyRounds * 8 * 0.25f);
}
