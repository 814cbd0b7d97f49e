// The functions of flash_attn.h: check, choose the kernels, launch.
#include <algorithm>
#include <type_traits>

#include "host/arguments.h"
#include "host/forward_plan.h"
#include "host/kernels.h"
#include "host/split_plan.h"
#include "host/validate.h"

namespace flash_attn {

namespace {

bool has_mask(const flash_attn_params &p) { return p.mask_type != FLASH_ATTN_MASK_NONE; }

// Masks are for the kernels of SM80: consumers of SM90 have few registers left, and the entries of
// a tile take 64. csrc/ARCHITECTURE.md says what that costs.
bool uses_sm90(const flash_attn_params &p, const Device &device) {
  return device.major == 9 && (p.flags & FLASH_ATTN_FORCE_SM80) == 0 && !has_mask(p);
}

// True if calls of few queries take the split path.
bool may_split(uint32_t function, const flash_attn_params &p) {
  if (p.kv_dtype == FLASH_ATTN_KV_E4M3) return false;
  return function == FLASH_ATTN_DECODE ||
         (function == FLASH_ATTN_FWD && (p.flags & FLASH_ATTN_NO_SPLIT) == 0);
}

bool uses_splits(uint32_t function, const flash_attn_params &p) {
  return may_split(function, p) && p.seqlen_q <= kMaxSplitQueries;
}

// Workspace of the forward kernel: the counter of claimed tiles on SM90.
uint64_t forward_workspace(const flash_attn_params &p, const Device &device) {
  return uses_sm90(p, device) ? 16 : 0;
}

bool has_workspace(const flash_attn_params &p, uint64_t bytes) {
  return bytes == 0 || (p.workspace != nullptr && p.workspace_size >= bytes);
}

template <class T>
flash_attn_status run_split(uint32_t function, const flash_attn_params &p, const Device &device) {
  const SplitPlan plan = plan_splits(p, device);
  if (!has_workspace(p, plan.workspace)) return FLASH_ATTN_WORKSPACE_TOO_SMALL;
  DecodeLaunch decode = {{},       plan.wide, plan.row_tiles, device.dependent_launches,
                         p.stream, mask_args(p)};
  DecodeArgs &args = decode.args;
  args.query = query_args(function, p);
  args.kv = key_value_args(function, p);
  args.score = score_args(p);
  args.head_dim = p.head_dim;
  args.n_splits = plan.n_splits;
  args.batch = p.batch;
  args.early_keys = (p.flags & FLASH_ATTN_EARLY_KEYS) != 0 ? 1 : 0;
  args.n_heads = divisor(p.n_heads);
  args.n_kv_heads = divisor(p.n_kv_heads);
  args.group = divisor(p.n_heads / p.n_kv_heads);
  if (plan.n_splits > 1) {
    const int64_t rows = int64_t{p.batch} * p.seqlen_q * p.n_heads;
    args.partial_out = static_cast<float *>(p.workspace);
    args.partial_lse = args.partial_out + rows * plan.n_splits * p.head_dim;
  }
  const auto status = with_head_dim(p.head_dim, [&]<int kHeadDim>() {
    if (p.kv_dtype == FLASH_ATTN_KV_Q8_0) {
      return has_mask(p) ? launch_masked_decode<f16, kHeadDim, true>(decode)
                         : launch_decode_q8<kHeadDim>(decode);
    }
    return has_mask(p) ? launch_masked_decode<T, kHeadDim, false>(decode)
                       : launch_decode<T, kHeadDim>(decode);
  });
  if (status != FLASH_ATTN_OK || plan.n_splits == 1) return status;
  return launch_combine<T>(decode);
}

// T is the type of the inputs.
template <class T>
flash_attn_status run_forward(uint32_t function, const flash_attn_params &p, const Device &device) {
  if (!has_workspace(p, forward_workspace(p, device))) return FLASH_ATTN_WORKSPACE_TOO_SMALL;
  constexpr bool kIsE4m3 = std::is_same_v<T, e4m3_pair>;
  const bool sm90 = uses_sm90(p, device);
  if (kIsE4m3 && !sm90) return FLASH_ATTN_UNSUPPORTED_DEVICE;
  return with_head_dim(p.head_dim, [&]<int kHeadDim>() {
    const int32_t rows = sm90 ? forward_rows_sm90<kHeadDim>() : forward_rows_sm80<kHeadDim>();
    ForwardLaunch forward = {};
    forward.args = {query_args(function, p), key_value_args(function, p), score_args(p),
                    plan_schedule(p, rows, device)};
    forward.batch = p.batch;
    forward.q_rows = queries_are_packed(function, p) ? p.total_q : p.seqlen_q;
    forward.k_rows = keys_are_paged(function, p)    ? p.page_size
                     : keys_are_packed(function, p) ? p.total_k
                                                    : p.seqlen_k;
    forward.multiprocessors = device.multiprocessors;
    forward.counter = static_cast<int32_t *>(p.workspace);
    forward.mask = mask_args(p);
    forward.stream = p.stream;
    if constexpr (kIsE4m3) {
      forward.e4m3 = e4m3_args(p);
      if constexpr (kHeadDim == 96) {
        return flash_attn_status{FLASH_ATTN_BAD_HEAD_DIM};
      } else {
        return launch_forward_sm90<T, kHeadDim>(forward);
      }
    } else {
      if (has_mask(p)) return launch_masked_sm80<T, kHeadDim>(forward);
      return sm90 ? launch_forward_sm90<T, kHeadDim>(forward)
                  : launch_forward_sm80<T, kHeadDim>(forward);
    }
  });
}

flash_attn_status run(uint32_t function, const flash_attn_params *params) {
  if (params == nullptr) return FLASH_ATTN_NULL_POINTER;
  const flash_attn_params &p = *params;
  if (const auto status = validate_shape(function, p)) return status;
  if (const auto status = validate_strides(function, p)) return status;
  if (const auto status = validate_pointers(function, p)) return status;
  Device device = {};
  if (const auto status = query_device(device)) return status;
  if (queries_are_empty(function, p)) return FLASH_ATTN_OK;
  const bool f16_type = p.dtype == FLASH_ATTN_F16;
  if (uses_splits(function, p)) {
    return f16_type ? run_split<f16>(function, p, device) : run_split<bf16>(function, p, device);
  }
  if (p.kv_dtype == FLASH_ATTN_KV_E4M3) return run_forward<e4m3_pair>(function, p, device);
  return f16_type ? run_forward<f16>(function, p, device) : run_forward<bf16>(function, p, device);
}

}  // namespace

}  // namespace flash_attn

uint32_t flash_attn_version(void) { return FLASH_ATTN_VERSION; }

flash_attn_status flash_attn_device_status(void) {
  flash_attn::Device device = {};
  return flash_attn::query_device(device);
}

flash_attn_status flash_attn_workspace_size(uint32_t function, const flash_attn_params *params,
                                            uint64_t *bytes) {
  if (params == nullptr || bytes == nullptr) return FLASH_ATTN_NULL_POINTER;
  if (const auto status = flash_attn::validate_shape(function, *params)) return status;
  flash_attn::Device device = {};
  if (const auto status = flash_attn::query_device(device)) return status;
  *bytes = function == FLASH_ATTN_DECODE ? 0 : flash_attn::forward_workspace(*params, device);
  // A smaller seqlen_q may take the split path.
  if (flash_attn::may_split(function, *params)) {
    *bytes = std::max(*bytes, flash_attn::largest_workspace(*params, device));
  }
  return FLASH_ATTN_OK;
}

flash_attn_status flash_attn_fwd(const flash_attn_params *params) {
  return flash_attn::run(FLASH_ATTN_FWD, params);
}

flash_attn_status flash_attn_varlen_fwd(const flash_attn_params *params) {
  return flash_attn::run(FLASH_ATTN_VARLEN_FWD, params);
}

flash_attn_status flash_attn_decode(const flash_attn_params *params) {
  return flash_attn::run(FLASH_ATTN_DECODE, params);
}
