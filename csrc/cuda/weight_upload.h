#pragma once

#include <array>
#include <map>
#include <memory>
#include <vector>

#include "../gpu/step_needs.h"
#include "cuda_weight.h"
#include "kernels.h"

namespace forge::cuda {

// Brings weights to the device in the forms that cuda_weight.h has. Rows go through two pinned
// buffers: while the device copies from one, host threads fill the other from the mapped file.
class WeightUpload : public WeightRequests {
 public:
  WeightUpload(std::shared_ptr<DeviceState> state, Kernels& kernels, uint32_t n_threads);
  ~WeightUpload() override;
  WeightUpload(const WeightUpload&) = delete;
  WeightUpload& operator=(const WeightUpload&) = delete;

  // Nothing is copied yet.
  void add_matrix(const WeightRef& weight) override;
  void add_unified(const WeightRef& weight) override;
  void add_floats(const WeightRef& weight) override;

  // Device memory that `run` will take.
  uint64_t bytes() const;
  // Allocates and copies everything asked for. The kernels that repack must be loaded.
  void run();

 private:
  struct Slot {
    PinnedBuffer host;
    DeviceBuffer raw;  // rows as in the file, where they are repacked
    Event copied = nullptr;
  };

  using Weights = std::map<const CudaWeight*, WeightRef>;

  void copy_matrix(const CudaWeight& weight);
  // All rows as floats, `to_row_bytes` apart.
  DeviceBuffer copy_floats(const CudaWeight& weight, uint64_t to_row_bytes);
  // Copies the rows of a part of a file to `to`, where rows are `to_row_bytes` apart.
  void copy_rows(const WeightPart& source, uint64_t cols, DevicePointer to, uint64_t to_row_bytes);
  // Waits until the device has copied what was in the slot.
  Slot& next_slot();
  void send(const Slot& slot, DevicePointer to, uint64_t to_row_bytes, uint64_t row_bytes,
            uint64_t n_rows);

  std::shared_ptr<DeviceState> state_;
  Kernels& kernels_;
  uint32_t n_threads_;
  Weights matrices_, unified_, floats_;
  std::map<WeightType, const Kernel*> repack_;
  std::array<Slot, 2> slots_;
  size_t turn_ = 0;
};

}  // namespace forge::cuda
