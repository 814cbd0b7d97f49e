// The products of a few tokens on tensor cores.

#include "../gemm_check.h"
#include "launch.h"

namespace {

void multiply(const Gemm& op) { launch_gemm(op, "decode_gemm", 16, 16, 0); }

}  // namespace

TEST(decode_gemm_of_every_fast_format) {
  for (int k = 0; k < kHalfKinds; ++k) check_gemm(half_kinds[k], 37, 1280, 16, multiply);
}
TEST(decode_gemm_of_odd_columns) {
  check_gemm(half_kinds[0], 3, 77, 5, multiply);
  check_gemm(half_kinds[1], 17, 1031, 19, multiply);
}
TEST(decode_gemm_of_other_types) {
  std::string name;
  for (const u32 type : other_types) check_gemm(other_kind(type, name), 20, 256, 9, multiply);
}
