#include "host/split_plan.h"

#include <algorithm>

#include "decode/decode_tile.h"
#include "host/kernels.h"

namespace flash_attn {

namespace {

constexpr int64_t kNarrowRows = DecodeTile<64, 1>::kRows;
constexpr int64_t kWideRows = DecodeTile<64, 4>::kRows;

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

// Blocks of the decode kernel that run on a multiprocessor at a time: as many as the registers and
// the shared memory allow, of which the system takes 1 KiB for each.
int64_t resident_blocks(int32_t head_dim, bool wide, bool is_q8, bool has_mask,
                        const Device &device) {
  return with_head_dim(head_dim, [&]<int kHeadDim>() {
    const auto blocks = [&]<class Tile>(Tile) {
      const int64_t most = decode_blocks<Tile>(has_mask);
      return std::clamp<int64_t>(device.shared_bytes / (Tile::kSharedBytes + 1024), 1, most);
    };
    using Narrow = DecodeTile<kHeadDim, 1>;
    using Wide = DecodeTile<kHeadDim, 4>;
    using Q8 = DecodeTile<kHeadDim, 1, true>;
    if (is_q8) return blocks(Q8{});
    return wide ? blocks(Wide{}) : blocks(Narrow{});
  });
}

// Bytes of `n_splits` partial results of rows.
uint64_t partial_bytes(int64_t rows, int64_t n_splits, int32_t head_dim) {
  return static_cast<uint64_t>(rows * (n_splits * head_dim + ceil_div(n_splits, 4) * 4)) *
         sizeof(float);
}

}  // namespace

SplitPlan plan_splits(const flash_attn_params &p, const Device &device) {
  const int64_t rows = int64_t{p.seqlen_q} * (p.n_heads / p.n_kv_heads);
  SplitPlan plan = {};
  const bool is_q8 = p.kv_dtype == FLASH_ATTN_KV_Q8_0;
  const bool has_mask = p.mask_type != FLASH_ATTN_MASK_NONE;
  plan.wide = rows > kNarrowRows && !is_q8 && !has_mask;
  plan.row_tiles = static_cast<int32_t>(ceil_div(rows, plan.wide ? kWideRows : kNarrowRows));
  // As many parts as fill the device once, unless combining them costs more than it saves.
  const int64_t blocks = std::max<int64_t>(1, int64_t{p.batch} * p.n_kv_heads * plan.row_tiles);
  const int64_t useful = ceil_div(p.seqlen_k, int64_t{kDecodeKeys} * kMinPartTiles);
  const int64_t resident = resident_blocks(p.head_dim, plan.wide, is_q8, has_mask, device);
  const int64_t fitting = resident * device.multiprocessors / blocks;
  const int64_t wanted = p.n_splits > 0 ? p.n_splits : fitting;
  const int64_t most = std::min<int64_t>(useful, kMaxSplits);
  plan.n_splits = static_cast<int32_t>(std::clamp<int64_t>(wanted, 1, std::max<int64_t>(most, 1)));
  if (plan.n_splits > 1) {
    plan.workspace =
        partial_bytes(int64_t{p.batch} * p.seqlen_q * p.n_heads, plan.n_splits, p.head_dim);
  }
  return plan;
}

uint64_t largest_workspace(const flash_attn_params &p, const Device &device) {
  // Each concurrent block leaves one tile of rows, whose number of parts is at most doubled when it
  // is rounded up.
  if (p.n_splits == 0) {
    // Wide tiles of one block have more rows than all tiles of Q8_0.
    const auto rows_of = [&](bool wide) {
      return resident_blocks(p.head_dim, wide, false, false, device) *
             (wide ? kWideRows : kNarrowRows);
    };
    const int64_t rows = std::max(rows_of(false), rows_of(true));
    return static_cast<uint64_t>(rows * device.multiprocessors * (p.head_dim + 2)) * sizeof(float);
  }
  if (p.n_splits == 1) return 0;
  const int64_t queries = std::min(p.seqlen_q, kMaxSplitQueries);
  return partial_bytes(int64_t{p.batch} * queries * p.n_heads, p.n_splits, p.head_dim);
}

}  // namespace flash_attn
