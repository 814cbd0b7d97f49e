#pragma once

#include <array>
#include <map>
#include <memory>
#include <vector>

#include "../gpu/step_needs.h"
#include "cuda_weight.h"
#include "kernels.h"

namespace forge::cuda {

// Copies weights to the device in the forms of cuda_weight.h. Rows pass through two pinned buffers:
// while the device copies from one, host threads fill the other from the mapped file.
class WeightStore : public WeightRequests {
 public:
  WeightStore(std::shared_ptr<DeviceState> state, Kernels& kernels, uint32_t n_threads);
  ~WeightStore() override;
  WeightStore(const WeightStore&) = delete;
  WeightStore& operator=(const WeightStore&) = delete;

  void add_matrix(const WeightRef& weight) override;
  void add_unified(const WeightRef& weight) override;
  void add_floats(const WeightRef& weight) override;

  uint64_t bytes() const override;
  // The kernels that repack must be loaded.
  void run() override;

 private:
  struct Staging {
    PinnedBuffer host;
    DeviceBuffer raw;  // rows as in the file, before they are repacked
    Event copied = nullptr;
  };

  using Weights = std::map<const CudaWeight*, WeightRef>;

  void copy_matrix(const CudaWeight& weight);
  // All rows as floats, `to_row_bytes` apart.
  DeviceBuffer copy_floats(const CudaWeight& weight, uint64_t to_row_bytes);
  // Copies the rows of a part to `to`, `to_row_bytes` apart.
  void copy_rows(const WeightPart& source, uint64_t cols, DevicePointer to, uint64_t to_row_bytes);
  // Returns a staging buffer from which the device has finished copying.
  Staging& next_staging();
  void send(const Staging& staging, DevicePointer to, uint64_t to_row_bytes, uint64_t row_bytes,
            uint64_t n_rows);

  std::shared_ptr<DeviceState> state_;
  Kernels& kernels_;
  uint32_t n_threads_;
  Weights matrices_, unified_, floats_;
  std::map<WeightType, const Kernel*> repack_;
  std::array<Staging, 2> staging_;
  size_t turn_ = 0;
};

}  // namespace forge::cuda
