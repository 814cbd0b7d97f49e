#include "step_shape.h"

#include <algorithm>
#include <bit>

namespace forge::cuda {

namespace {

// Up to here sizes are rounded to powers of two, then to multiples: neither wastes much.
constexpr uint32_t kFine = 64;

uint32_t round_up(uint32_t n, uint32_t limit) {
  if (n == 0) return 0;
  const uint32_t rounded = n <= kFine ? std::bit_ceil(n) : (n + kFine - 1) / kFine * kFine;
  return std::min(rounded, limit);
}

}  // namespace

QueryTiles query_tiles(const StepInputs& inputs) {
  QueryTiles tiles;
  uint32_t begin = 0;
  while (begin < inputs.n_tokens) {
    uint32_t end = begin + 1;
    while (end < inputs.n_tokens && inputs.sequences[end] == inputs.sequences[begin] &&
           inputs.positions[end] == inputs.positions[end - 1] + 1) {
      ++end;
    }
    const bool is_short = end - begin <= kDecodeQueries;
    const uint32_t size = is_short ? kDecodeQueries : kPrefillQueries;
    std::vector<QueryTile>& list = is_short ? tiles.decode : tiles.prefill;
    for (; begin < end; begin += std::min(size, end - begin)) {
      list.push_back({begin, std::min(size, end - begin),
                      static_cast<uint32_t>(inputs.sequences[begin]),
                      static_cast<uint32_t>(inputs.positions[begin])});
    }
  }
  return tiles;
}

StepShape shape_of(const StepInputs& inputs, const QueryTiles& tiles, const StepLimits& limits) {
  StepShape shape;
  shape.tokens = round_up(inputs.n_tokens, limits.max_tokens);
  shape.outputs = round_up(inputs.n_outputs, limits.max_outputs);
  if (!tiles.decode.empty()) {
    const bool single = std::all_of(tiles.decode.begin(), tiles.decode.end(),
                                    [](const QueryTile& tile) { return tile.n_queries == 1; });
    shape.decode_queries = single ? 1 : kDecodeQueries;
  }
  shape.prefill = !tiles.prefill.empty();
  return shape;
}

std::vector<StepShape> typical_shapes(const StepLimits& limits) {
  std::vector<StepShape> shapes;
  const auto add = [&](uint32_t tokens) {
    const uint32_t outputs = round_up(std::min(tokens, limits.max_outputs), limits.max_outputs);
    for (const uint32_t queries : {1u, kDecodeQueries}) {
      shapes.push_back({tokens, outputs, queries, tokens > kDecodeQueries});
    }
  };
  for (uint32_t tokens = 1; tokens < limits.max_tokens && tokens <= kFine; tokens *= 2) add(tokens);
  add(limits.max_tokens);
  return shapes;
}

}  // namespace forge::cuda
