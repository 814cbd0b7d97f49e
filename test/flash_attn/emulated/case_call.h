// Calling the library where its device is: in the emulator (emulated/call_emulated.cpp), or on a
// GPU (gpu/call_on_gpu.cpp).
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "attention_case.h"

namespace flash_attn_test {

/// An array of the host that a member of the parameters points to.
struct CallArray {
  void *member;  // where the pointer itself is
  size_t bytes;
  bool is_result;
};

/// Calls a function; the parameters' arrays are then the host's again, with the results in them.
flash_attn_status call_library(const CaseShape &shape, uint32_t function, flash_attn_params &params,
                               const std::vector<CallArray> &arrays);

}  // namespace flash_attn_test
