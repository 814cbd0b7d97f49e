#pragma once

#include "../gpu/input_layout.h"
#include "kernel_types.h"
#include "memory.h"

namespace forge::cuda {

using InputAddresses = forge::InputAddresses<DevicePointer>;
using RunAddresses = forge::RunAddresses<DevicePointer>;

// Copies the inputs of each run to the device. Those whose size the shape bounds go in one piece,
// page tables only when they have changed, and the others, which most runs do not have, one by one.
class DeviceInputs {
 public:
  DeviceInputs(std::shared_ptr<DeviceState> state, const Program& program,
               const std::vector<StepShape>& shapes);

  InputAddresses addresses(const StepShape& shape) const;
  // Grows with what a run brings; addresses handed out before are then invalid.
  uint64_t generation() const { return generation_; }

  // Makes room for the inputs of a run. Before `addresses` are used for it.
  void reserve(const StepInputs& inputs, const StepShape& shape);
  // Puts the copies of a run's inputs on the stream, but of its masks. The run before must have
  // ended.
  void copy(const StepInputs& inputs, const RunWork& work);
  // The masks, which may come later.
  void copy_masks(const StepInputs& inputs);

 private:
  struct Area {
    PinnedBuffer host;
    DeviceBuffer device;
  };
  void reserve(Area& area, uint64_t bytes);
  void copy(Area& area, const void* data, uint64_t bytes);
  void send(const Area& area, uint64_t bytes);
  void copy_page_tables(const StepInputs& inputs);

  std::shared_ptr<DeviceState> state_;
  StepLimits limits_;
  uint32_t mask_words_;
  Area fixed_;
  Area page_tables_;  // the host's part is what the device has
  Area history_, bias_ids_, bias_values_, masks_;
  uint64_t generation_ = 0;
};

}  // namespace forge::cuda
