// The products of decoded tokens on tensor cores.

#include "../gemm_check.h"
#include "launch.h"

namespace {

void multiply_8(const Gemm& op) { launch_decode_gemm(op, {op.n_rows, nullptr}, 1, 1); }
void multiply_32(const Gemm& op) { launch_decode_gemm(op, {op.n_rows, nullptr}, 4, 2); }

}  // namespace

TEST(decode_gemm_of_every_fast_format) {
  for (int k = 0; k < kHalfKinds; ++k) {
    check_gemm(half_kinds[k], 37, 1280, 16, multiply_8);
    check_gemm(half_kinds[k], 37, 1280, 40, multiply_32);
  }
}
TEST(decode_gemm_of_odd_columns) {
  check_gemm(half_kinds[0], 3, 77, 5, multiply_8);
  check_gemm(half_kinds[1], 17, 1031, 19, multiply_32);
}
TEST(decode_gemm_of_other_types) {
  std::string name;
  for (const u32 type : other_types) check_gemm(other_kind(type, name), 20, 256, 9, multiply_8);
}

TEST(decode_gemm_of_a_token_is_the_same_in_any_company) {
  for (int k = 0; k < kHalfKinds; ++k) {
    Random random(static_cast<u64>(k));
    const u32 rows = 37, cols = 1280, tokens = 33;
    const DeviceWeight weight = random_weight(random, half_kinds[k], rows, cols);
    const auto x = random_floats(random, tokens * cols);
    // The last token among many, and alone.
    const Buffer<u32> all = {tokens}, one = {1}, last = {tokens - 1};
    Buffer<float> out(tokens * rows), alone(tokens * rows);
    Gemm op = {.out = out.data(),
               .x = x.data(),
               .weight = &weight,
               .n_rows = all.data(),
               .max_rows = tokens,
               .out_stride = rows,
               .epilogue = {nullptr, nullptr, 1, 0}};
    launch_decode_gemm(op, {all.data(), nullptr}, 4, 2);
    op.out = alone.data();
    op.max_rows = 1;
    launch_decode_gemm(op, {one.data(), last.data()}, 1, 1);
    for (u32 i = (tokens - 1) * rows; i < tokens * rows; ++i) EXPECT(out[i] == alone[i]);
  }
}
