#pragma once

#include "../gpu/input_layout.h"
#include "buffer.h"

namespace forge::metal {

// Where the inputs of a run lie on the device. The places belong to a shape, so that the launches
// planned for it find them at every run.
struct InputPlaces {
  Place n_tokens;
  Place n_outputs;
  Place n_decode_tiles;
  Place n_prefill_tiles;
  Place n_work;
  Place tokens;
  Place positions;
  Place sequences;
  Place output_rows;
  Place sampling;
  Place decode_tiles;
  Place prefill_tiles;
  Place work;
  // Rows by the kind of product that computes them, as lists (gpu/step_rows.h), and their numbers.
  Place n_decode_tokens;
  Place n_prefill_tokens;
  Place n_decode_outputs;
  Place n_prefill_outputs;
  Place decode_tokens;
  Place prefill_tokens;
  Place decode_outputs;
  Place prefill_outputs;
  Place page_tables;  // rows are `page_stride` entries apart
  uint32_t page_stride;
  Place history;
  Place bias_ids;
  Place bias_values;
  Place masks;
  uint32_t mask_words;
};

// The inputs of a run in memory that CPU and GPU share. They are written while the GPU is idle, but
// for masks, which launches read that have yet to be committed.
class RunInputs {
 public:
  RunInputs(std::shared_ptr<const Device> device, const Program& program,
            const std::vector<StepShape>& shapes);

  // Bytes of memory that inputs of the shapes take.
  static uint64_t device_bytes(const Program& program, const std::vector<StepShape>& shapes);

  InputPlaces places(const StepShape& shape) const;
  // Grows with what a run brings; places handed out before are then invalid.
  uint64_t generation() const { return generation_; }

  // Makes room for the inputs of a run. Before `places` are used for it.
  void reserve(const StepInputs& inputs, const StepShape& shape);
  // Writes a run's inputs, but for its masks.
  void write(const StepInputs& inputs, const QueryTiles& tiles, const StepRows& rows,
             const StepShape& shape);
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
