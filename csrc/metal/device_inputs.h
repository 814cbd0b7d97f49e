#pragma once

#include "../gpu/input_layout.h"
#include "buffer.h"

namespace forge::metal {

using InputAddresses = forge::InputAddresses<Place>;

// The inputs of a run in memory that CPU and GPU share. They are written while the GPU is idle, but
// for masks, which launches read that have yet to be committed.
class DeviceInputs {
 public:
  DeviceInputs(std::shared_ptr<const Device> device, const Program& program,
               const std::vector<StepShape>& shapes);

  InputAddresses addresses(const StepShape& shape) const;
  // Grows with what a run brings; addresses handed out before are then invalid.
  uint64_t generation() const { return generation_; }

  // Makes room for the inputs of a run. Before `addresses` are used for it.
  void reserve(const StepInputs& inputs, const StepShape& shape);
  // Writes a run's inputs, but for its masks.
  void write(const StepInputs& inputs, const RunWork& work);
  // The masks, which may come later.
  void write_masks(const StepInputs& inputs);

 private:
  void reserve(Buffer& area, uint64_t bytes);

  std::shared_ptr<const Device> device_;
  StepLimits limits_;
  uint32_t mask_words_;
  Buffer fixed_, page_tables_, history_, bias_ids_, bias_values_, masks_;
  uint64_t generation_ = 0;
};

}  // namespace forge::metal
