// The types of queries, keys, values and outputs.
//
// This file, threads.cuh, and the files of SM90 are also compiled by NVRTC, for products of forge
// (kernels/cuda/wgmma_gemm.cuh): they include neither standard headers nor files of other folders.
#pragma once

#ifndef __CUDACC_RTC__
#include <cstdint>
#endif

namespace flash_attn {

#ifdef __CUDACC_RTC__
using uint16_t = unsigned short;
using uint32_t = unsigned;
using uint64_t = unsigned long long;
#endif

struct f16 {
  uint16_t bits;
};

struct bf16 {
  uint16_t bits;
};

// Two neighbouring numbers of a row of Q8_0.
struct q8_pair {
  uint16_t bits;
};

// Two neighbouring numbers of a row of E4M3.
struct e4m3_pair {
  uint16_t bits;
};

}  // namespace flash_attn
