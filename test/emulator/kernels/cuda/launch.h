#pragma once

#include "../operations.h"

namespace kernel_test {

// Products of 16-bit floats: gemm or decode_gemm, in blocks of `rows` rows and `tokens` tokens.
void launch_gemm(const Gemm& op, const char* kernel, u32 rows, u32 tokens, u32 shared);

}  // namespace kernel_test
