#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <utility>

#include "case_call.h"
#include "emulator.h"
#include "flash_attn_launch.h"

namespace flash_attn_test {

namespace {

// Has the kernel before write the inputs, which are not to be read before the wait for it. With
// early keys it writes q alone.
void write_inputs_late(bool early, const std::vector<CallArray> &arrays, const void *q) {
  struct Input {
    void *at;
    std::vector<char> bytes;
  };
  std::vector<Input> inputs;
  for (const CallArray &array : arrays) {
    void *const at = *static_cast<void **>(array.member);
    if (array.is_result || at == nullptr || (early && at != q)) continue;
    const auto *const first = static_cast<const char *>(at);
    inputs.push_back({at, {first, first + array.bytes}});
  }
  for (const Input &input : inputs) std::memset(input.at, 0xff, input.bytes.size());
  emulator::set_previous_kernel([inputs = std::move(inputs)] {
    for (const Input &input : inputs) {
      std::memcpy(input.at, input.bytes.data(), input.bytes.size());
    }
  });
}

}  // namespace

flash_attn_status call_library(const CaseShape &shape, uint32_t function, flash_attn_params &params,
                               const std::vector<CallArray> &arrays) {
  flash_attn::emulated_capability = shape.capability;
  emulator::set_order_seed(static_cast<uint64_t>(shape.order));
  uint64_t bytes = 0;
  if (const auto status = flash_attn_workspace_size(function, &params, &bytes)) return status;
  const auto workspace = std::make_unique<float[]>(bytes / 4 + 1);
  std::fill_n(workspace.get(), bytes / 4 + 1, NAN);
  params.workspace = workspace.get();
  params.workspace_size = bytes;
  // Decoding is launched while the kernel before it runs.
  if (function == FLASH_ATTN_DECODE && shape.capability >= 90 && shape.far == 0) {
    write_inputs_late(shape.early != 0, arrays, params.q);
  }
  const auto call = function == FLASH_ATTN_FWD          ? flash_attn_fwd
                    : function == FLASH_ATTN_VARLEN_FWD ? flash_attn_varlen_fwd
                                                        : flash_attn_decode;
  const auto status = call(&params);
  // A call without queries launches nothing.
  emulator::finish_previous_kernel();
  return status;
}

}  // namespace flash_attn_test
