#pragma once

// Weights that products request for the L2 cache before the product that reads them runs.
//
// During norms, attention, sums over devices and the gaps between kernels, memory is idle. So the
// last blocks of each product of a decode step request weights of the next one
// (kernels/cuda/decode_gemm.cuh), which then reads them from L2. The last product requests weights
// of the first one, for the next step. No digit depends on it.

#include <cstdint>
#include <optional>
#include <vector>

#include "../../kernels/arguments/cuda_arguments.h"
#include "../gpu/step_work.h"
#include "plan_entry.h"

namespace forge::cuda {

using NextWeights = cuda_args::NextWeights<DevicePointer>;

// Weights that a product reads once, in tiles of adjacent rows.
struct StreamedWeights {
  DevicePointer data;
  uint64_t row_bytes;
  uint64_t rows;
  uint32_t tile_rows;
  uint32_t first_tiles;  // number of tiles of the blocks that run first
};

// Completes the launches of a plan with the weights that they request.
class WeightPrefetch {
 public:
  // Requests none for a step with prompts: their products stream weights of their own.
  WeightPrefetch(const Device& device, const StepShape& shape);

  // Adds the last entry, a product. `weights`: none if only a kernel before it selects them, such
  // as the router of experts. `blocks`: those of a kernel whose last parameter is NextWeights;
  // 0 for other kernels, and for those whose last blocks may have no work.
  void add_product(std::vector<PlanEntry>& entries, const std::optional<StreamedWeights>& weights,
                   uint32_t blocks);
  // Adds bytes of a cache that the entries since the last product read through L2.
  void add_cached(uint64_t bytes);
  // Completes the last product, which requests weights of the first one.
  void finish(std::vector<PlanEntry>& entries);

 private:
  // A product that can request weights.
  struct Requester {
    size_t entry;
    uint32_t blocks;
  };

  // `launches`, `exchanges`: those between the products.
  void request(std::vector<PlanEntry>& entries, const StreamedWeights& weights, uint64_t launches,
               uint64_t exchanges);

  const DeviceProperties& gpu_;
  const bool is_on_;
  std::optional<size_t> first_product_;
  std::optional<StreamedWeights> first_weights_;
  std::optional<Requester> requester_;  // the last product
  uint64_t cached_bytes_ = 0;
};

}  // namespace forge::cuda
