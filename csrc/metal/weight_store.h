#pragma once

#include <map>
#include <span>

#include "../gpu/step_needs.h"
#include "metal_weight.h"
#include "weight_windows.h"

namespace forge::metal {

// Brings weights to the GPU in the forms of metal_weight.h. Weights in few pieces of a mapped file,
// with addresses that kernels can read, are mapped; others are copied.
class WeightStore : public WeightRequests {
 public:
  // Copies with `n_threads` threads.
  WeightStore(std::shared_ptr<const Device> device, WeightWindows& windows, uint32_t n_threads)
      : device_(std::move(device)), windows_(windows), n_threads_(n_threads) {}

  void add_matrix(const WeightRef& weight) override;
  void add_unified(const WeightRef& weight) override;
  void add_floats(const WeightRef& weight) override;

  // Chooses the layout, without buffers.
  void lay_out() override;
  // Includes mapped files.
  uint64_t bytes() const override;
  // Maps and copies everything that was laid out.
  void run() override;

 private:
  using Weights = std::map<const MetalWeight*, WeightRef>;

  std::vector<MappedRange> mapped_ranges() const;
  // Assigns buffers to rows that were laid out.
  void place(const MetalWeight& weight, std::span<WeightRows> rows) const;
  void copy(const MetalWeight& weight, std::span<WeightRows> rows) const;
  std::shared_ptr<const Buffer> copy_floats(const MetalWeight& weight) const;
  bool needs_copy(const MetalWeight& weight) const;
  bool takes_own_place(const MetalWeight& weight) const;

  std::shared_ptr<const Device> device_;
  WeightWindows& windows_;
  uint32_t n_threads_;
  Weights matrices_, unified_, floats_;
};

}  // namespace forge::metal
