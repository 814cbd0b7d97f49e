// Calls the library on its device: in the emulator (emulated/call_emulated.cpp), or on a GPU
// (gpu/call_on_gpu.cpp).
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "attention_case.h"

namespace flash_attn_test {

// A host array that a member of the parameters points to.
struct CallArray {
  void *member;  // the address of the pointer
  size_t bytes;
  bool is_result;
};

// Calls a function. Afterwards the host arrays hold the results.
flash_attn_status call_library(const CaseShape &shape, uint32_t function, flash_attn_params &params,
                               const std::vector<CallArray> &arrays);

}  // namespace flash_attn_test
