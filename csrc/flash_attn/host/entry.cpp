// The functions of flash_attn.h: check, choose the kernels, launch.
#include <algorithm>

#include "host/arguments.h"
#include "host/kernels.h"
#include "host/split_plan.h"
#include "host/validate.h"

namespace flash_attn {

namespace {

constexpr int32_t kMaxSplitQueries = 16;

bool uses_splits(uint32_t function, const flash_attn_params &p) {
  if (function == FLASH_ATTN_DECODE) return true;
  return function == FLASH_ATTN_FWD && (p.flags & FLASH_ATTN_NO_SPLIT) == 0 &&
         p.seqlen_q <= kMaxSplitQueries;
}

/// Heads whose keys and values take half of L2, in whole groups, which share keys.
int32_t section_heads(const flash_attn_params &p, const Device &device) {
  const int64_t group = p.n_heads / p.n_kv_heads;
  const int64_t bytes = int64_t{std::max(p.seqlen_k, 1)} * p.head_dim * 4;
  const int64_t heads = std::max<int64_t>(device.l2_bytes / 2 / bytes, 1) * group;
  return static_cast<int32_t>(std::min<int64_t>(heads, int64_t{p.n_heads} * p.batch));
}

template <class T>
flash_attn_status run_split(uint32_t function, const flash_attn_params &p, const Device &device) {
  const SplitPlan plan = plan_splits(p, device);
  if (plan.workspace > 0 && (p.workspace == nullptr || p.workspace_size < plan.workspace)) {
    return FLASH_ATTN_WORKSPACE_TOO_SMALL;
  }
  DecodeArgs args = {};
  args.query = query_args(function, p);
  args.kv = key_value_args(function, p);
  args.score = score_args(p);
  args.n_heads = p.n_heads;
  args.n_kv_heads = p.n_kv_heads;
  args.group = p.n_heads / p.n_kv_heads;
  args.batch = p.batch;
  args.head_dim = p.head_dim;
  args.n_splits = plan.n_splits;
  if (plan.n_splits > 1) {
    args.partial_out = static_cast<float *>(p.workspace);
    args.partial_lse = args.partial_out + plan.workspace / sizeof(float) / (p.head_dim + 1) *
                                              static_cast<uint64_t>(p.head_dim);
  }
  const auto status = with_head_dim(p.head_dim, [&]<int kHeadDim>() {
    return launch_decode<T, kHeadDim>(args, plan.wide, plan.row_tiles, p.stream);
  });
  if (status != FLASH_ATTN_OK || plan.n_splits == 1) return status;
  return launch_combine<T>(args, p.stream);
}

template <class T>
flash_attn_status run_forward(uint32_t function, const flash_attn_params &p, const Device &device) {
  const bool sm90 = device.major == 9 && (p.flags & FLASH_ATTN_FORCE_SM80) == 0;
  return with_head_dim(p.head_dim, [&]<int kHeadDim>() {
    const int32_t rows = sm90 ? forward_rows_sm90<kHeadDim>() : forward_rows_sm80<kHeadDim>();
    ForwardArgs args = {};
    args.query = query_args(function, p);
    args.kv = key_value_args(function, p);
    args.score = score_args(p);
    args.n_heads = p.n_heads;
    args.group = p.n_heads / p.n_kv_heads;
    args.batch = p.batch;
    args.row_tiles = (p.seqlen_q + rows - 1) / rows;
    args.section_heads = section_heads(p, device);
    if (!sm90) return launch_forward_sm80<T, kHeadDim>(args, p.stream);
    const TensorExtents extents = {
        queries_are_packed(function, p) ? p.total_q : p.seqlen_q,
        keys_are_paged(function, p)    ? p.page_size
        : keys_are_packed(function, p) ? p.total_k
                                       : p.seqlen_k,
    };
    return launch_forward_sm90<T, kHeadDim>(args, extents, device, p.stream);
  });
}

flash_attn_status run(uint32_t function, const flash_attn_params *params) {
  if (params == nullptr) return FLASH_ATTN_NULL_POINTER;
  const flash_attn_params &p = *params;
  if (const auto status = validate_shape(function, p)) return status;
  if (const auto status = validate_pointers(function, p)) return status;
  Device device = {};
  if (const auto status = query_device(device)) return status;
  if (p.batch == 0 || p.seqlen_q == 0) return FLASH_ATTN_OK;
  const bool f16_type = p.dtype == FLASH_ATTN_F16;
  if (uses_splits(function, p)) {
    return f16_type ? run_split<f16>(function, p, device) : run_split<bf16>(function, p, device);
  }
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
  *bytes = 0;
  if (!flash_attn::uses_splits(function, *params)) return FLASH_ATTN_OK;
  flash_attn::Device device = {};
  if (const auto status = flash_attn::query_device(device)) return status;
  *bytes = flash_attn::largest_workspace(*params, device);
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
