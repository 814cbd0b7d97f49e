#include "weight_prefetch.h"

#include <algorithm>

#include "../gpu/rounding.h"

namespace forge::cuda {

namespace {

// Bytes that memory delivers for each multiprocessor during the start and the end of a small
// kernel, about 2 us: most on an H200, 36 GB/s. A request for more than the gap carries costs
// nothing, since the next product needs these bytes anyway.
constexpr uint64_t kLaunchBytes = 64 << 10;
// Launches that take as long as the shortest sum over devices, 8 us.
constexpr uint64_t kExchangeLaunches = 4;
// Share of the L2 cache for requested weights, and for the caches that are read before them. The
// cache has two halves, and a line that the farther half holds is kept in the nearer one too, so
// that 3/8 take 9/16 of it on average. The rest is for activations, sums of other blocks, and
// weights that still stream.
constexpr uint64_t kCacheShare = 3, kCacheParts = 8;
// A part of a tile is requested in whole lines, by one instruction, whose size in SM90's machine
// code has 16 bits, of 16 bytes each.
constexpr uint64_t kLine = 128, kMostBytes = (1 << 20) - kLine;

uint64_t exchanges_in(const std::vector<PlanEntry>& entries, size_t begin, size_t end) {
  const auto is_exchange = [](const PlanEntry& entry) {
    return std::holds_alternative<NcclCall>(entry);
  };
  return static_cast<uint64_t>(
      std::count_if(entries.data() + begin, entries.data() + end, is_exchange));
}

}  // namespace

WeightPrefetch::WeightPrefetch(const Device& device, const StepShape& shape)
    : gpu_(device.properties()),
      is_on_(device.prefetches_weights() && shape.prefill_tokens == 0) {}

void WeightPrefetch::add_product(std::vector<PlanEntry>& entries,
                                 const std::optional<StreamedWeights>& weights, uint32_t blocks) {
  if (!is_on_) return;
  const size_t product = entries.size() - 1;
  if (!first_product_) {
    first_product_ = product;
    first_weights_ = weights;
  }
  if (requester_ && weights) {
    const size_t begin = requester_->entry + 1;
    request(entries, *weights, product - begin, exchanges_in(entries, begin, product));
  }
  requester_.reset();
  if (blocks > 0) requester_ = {product, blocks};
  cached_bytes_ = 0;
}

void WeightPrefetch::add_cached(uint64_t bytes) {
  cached_bytes_ = bytes > UINT64_MAX - cached_bytes_ ? UINT64_MAX : cached_bytes_ + bytes;
}

void WeightPrefetch::finish(std::vector<PlanEntry>& entries) {
  if (!requester_ || !first_weights_) return;
  const size_t begin = requester_->entry + 1;
  request(entries, *first_weights_, entries.size() - begin + *first_product_,
          exchanges_in(entries, begin, entries.size()) + exchanges_in(entries, 0, *first_product_));
}

void WeightPrefetch::request(std::vector<PlanEntry>& entries, const StreamedWeights& weights,
                             uint64_t launches, uint64_t exchanges) {
  const uint64_t share = gpu_.l2_bytes * kCacheShare / kCacheParts;
  if (cached_bytes_ >= share) return;
  const uint64_t gap =
      (launches + 1 + exchanges * (kExchangeLaunches - 1)) * kLaunchBytes * gpu_.multiprocessors;
  const uint64_t limit = std::min(gap, share - cached_bytes_);
  // The same number of bytes of each tile that is read first, so that no multiprocessor is done
  // before the others.
  const uint64_t tile_rows = std::min<uint64_t>(weights.rows, weights.tile_rows);
  const uint64_t n_tiles = std::min<uint64_t>(weights.rows / tile_rows, weights.first_tiles);
  const uint64_t tile_bytes = tile_rows * weights.row_bytes;
  const uint64_t bytes = std::min({limit / n_tiles / kLine * kLine, tile_bytes, kMostBytes});
  if (bytes == 0) return;
  const auto [entry, blocks] = *requester_;
  // The last block of each multiprocessor.
  std::get<Launch>(entries[entry])
      .replace_last(NextWeights{.data = weights.data,
                                .stride = static_cast<uint32_t>(tile_bytes),
                                .bytes = static_cast<uint32_t>(bytes),
                                .n_pieces = static_cast<uint32_t>(n_tiles),
                                .first_block = blocks - std::min(blocks, gpu_.multiprocessors)});
}

}  // namespace forge::cuda
