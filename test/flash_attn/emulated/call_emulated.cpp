#include <algorithm>
#include <cmath>

#include "case_call.h"
#include "emulator.h"
#include "flash_attn_launch.h"

namespace flash_attn_test {

flash_attn_status call_library(const CaseShape &shape, uint32_t function, flash_attn_params &params,
                               const std::vector<CallArray> &) {
  flash_attn::emulated_capability = shape.capability;
  emulator::set_order_seed(static_cast<uint64_t>(shape.order));
  uint64_t bytes = 0;
  if (const auto status = flash_attn_workspace_size(function, &params, &bytes)) return status;
  const auto workspace = std::make_unique<float[]>(bytes / 4 + 1);
  std::fill_n(workspace.get(), bytes / 4 + 1, NAN);
  params.workspace = workspace.get();
  params.workspace_size = bytes;
  switch (function) {
    case FLASH_ATTN_FWD:
      return flash_attn_fwd(&params);
    case FLASH_ATTN_VARLEN_FWD:
      return flash_attn_varlen_fwd(&params);
    default:
      return flash_attn_decode(&params);
  }
}

}  // namespace flash_attn_test
