#include "host/split_plan.h"

#include <algorithm>

#include "decode/decode_tile.h"

namespace flash_attn {

namespace {

// Blocks of the decode kernel that run on a multiprocessor at a time.
constexpr int64_t kBlocksEach = 2;
constexpr int64_t kNarrowRows = 16;
constexpr int64_t kWideRows = 64;

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

uint64_t bytes_of_rows(int64_t rows, int32_t head_dim) {
  return static_cast<uint64_t>(rows) * static_cast<uint64_t>(head_dim + 1) * sizeof(float);
}

}  // namespace

SplitPlan plan_splits(const flash_attn_params &p, const Device &device) {
  const int64_t rows = int64_t{p.seqlen_q} * (p.n_heads / p.n_kv_heads);
  SplitPlan plan = {};
  plan.wide = rows > kNarrowRows;
  plan.row_tiles = static_cast<int32_t>(ceil_div(rows, plan.wide ? kWideRows : kNarrowRows));
  // As many parts as fill the device once, unless combining them costs more than it saves.
  const int64_t blocks = std::max<int64_t>(1, int64_t{p.batch} * p.n_kv_heads * plan.row_tiles);
  const int64_t useful = ceil_div(p.seqlen_k, int64_t{kDecodeKeys} * kMinPartTiles);
  const int64_t fitting = kBlocksEach * device.multiprocessors / blocks;
  const int64_t wanted = p.n_splits > 0 ? p.n_splits : fitting;
  const int64_t most = std::min<int64_t>(useful, kMaxSplits);
  plan.n_splits = static_cast<int32_t>(std::clamp<int64_t>(wanted, 1, std::max<int64_t>(most, 1)));
  if (plan.n_splits > 1) {
    plan.workspace = bytes_of_rows(
        int64_t{plan.n_splits} * p.batch * p.seqlen_q * p.n_heads, p.head_dim);
  }
  return plan;
}

uint64_t largest_workspace(const flash_attn_params &p, const Device &device) {
  // Each concurrent block leaves one tile of rows.
  if (p.n_splits == 0) {
    return bytes_of_rows(kBlocksEach * device.multiprocessors * kWideRows, p.head_dim);
  }
  if (p.n_splits == 1) return 0;
  const int64_t queries = std::min(p.seqlen_q, kMaxSplitQueries);
  return bytes_of_rows(int64_t{p.n_splits} * p.batch * queries * p.n_heads, p.head_dim);
}

}  // namespace flash_attn
