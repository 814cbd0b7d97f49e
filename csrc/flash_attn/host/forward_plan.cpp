#include "host/forward_plan.h"

#include <algorithm>
#include <bit>

#include "host/arguments.h"

namespace flash_attn {

namespace {

// Key heads whose keys and values share L2: a power of two, so that sections are alike. A part of
// L2 remains for queries, results and the next section.
int64_t section_key_heads(const flash_attn_params &p, const Device &device) {
  constexpr int64_t kMostBytes = 32 << 20;
  const int64_t bytes = std::min(kMostBytes, device.l2_bytes / 5 * 4);
  const int64_t each = int64_t{std::max(p.seqlen_k, 1)} * p.head_dim * 4;
  const auto heads = static_cast<uint64_t>(std::max<int64_t>(bytes / each, 1));
  return static_cast<int64_t>(std::bit_floor(heads));
}

}  // namespace

TileSchedule plan_schedule(const flash_attn_params &p, int32_t rows, const Device &device) {
  const int64_t heads = int64_t{p.n_heads} * p.batch;
  const int64_t group = p.n_heads / p.n_kv_heads;
  const int64_t row_tiles = (int64_t{p.seqlen_q} + rows - 1) / rows;
  const int64_t section_heads = std::min(section_key_heads(p, device) * group, heads);
  const int64_t last_section = (heads - 1) / section_heads;
  TileSchedule schedule = {};
  schedule.tiles = static_cast<int32_t>(row_tiles * heads);
  schedule.row_tiles = static_cast<int32_t>(row_tiles);
  schedule.last_section = static_cast<int32_t>(last_section);
  schedule.n_heads = divisor(p.n_heads);
  schedule.group = divisor(group);
  schedule.section_heads = divisor(section_heads);
  schedule.section_tiles = divisor(section_heads * row_tiles);
  schedule.last_heads = divisor(heads - last_section * section_heads);
  return schedule;
}

}  // namespace flash_attn
