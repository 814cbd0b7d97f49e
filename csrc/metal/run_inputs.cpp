#include "run_inputs.h"

#include <algorithm>
#include <bit>
#include <cstring>

namespace forge::metal {

namespace {

template <class T>
void put(const Buffer& to, std::span<const T> values) {
  if (!values.empty()) std::memcpy(to.data(), values.data(), values.size_bytes());
}

}  // namespace

uint64_t RunInputs::device_bytes(const Program& program, const std::vector<StepShape>& shapes) {
  uint64_t most = 0;
  for (const StepShape& shape : shapes) most = std::max(most, InputLayout(shape).bytes);
  return std::bit_ceil(most) + page_table_bytes(program.limits);
}

RunInputs::RunInputs(std::shared_ptr<const Device> device, const Program& program,
                     const std::vector<StepShape>& shapes)
    : device_(std::move(device)),
      limits_(program.limits),
      mask_words_(static_cast<uint32_t>((program.logits_cols + 31) / 32)),
      page_tables_(device_, page_table_bytes(limits_), Purpose::activations, Storage::shared) {
  for (const StepShape& shape : shapes) reserve(fixed_, InputLayout(shape).bytes);
  std::memset(page_tables_.data(), 0, page_tables_.bytes());
}

InputPlaces RunInputs::places(const StepShape& shape) const {
  const InputLayout layout(shape);
  return {.n_tokens = fixed_.at(InputLayout::n_tokens),
          .n_outputs = fixed_.at(InputLayout::n_outputs),
          .n_decode_tiles = fixed_.at(InputLayout::n_decode_tiles),
          .n_prefill_tiles = fixed_.at(InputLayout::n_prefill_tiles),
          .n_work = fixed_.at(InputLayout::n_work),
          .tokens = fixed_.at(layout.tokens),
          .positions = fixed_.at(layout.positions),
          .sequences = fixed_.at(layout.sequences),
          .output_rows = fixed_.at(layout.output_rows),
          .sampling = fixed_.at(layout.sampling),
          .decode_tiles = fixed_.at(layout.decode_tiles),
          .prefill_tiles = fixed_.at(layout.prefill_tiles),
          .work = fixed_.at(layout.work),
          .n_decode_tokens = fixed_.at(InputLayout::n_decode_tokens),
          .n_prefill_tokens = fixed_.at(InputLayout::n_prefill_tokens),
          .n_decode_outputs = fixed_.at(InputLayout::n_decode_outputs),
          .n_prefill_outputs = fixed_.at(InputLayout::n_prefill_outputs),
          .decode_tokens = fixed_.at(layout.decode_tokens),
          .prefill_tokens = fixed_.at(layout.prefill_tokens),
          .decode_outputs = fixed_.at(layout.decode_outputs),
          .prefill_outputs = fixed_.at(layout.prefill_outputs),
          .page_tables = page_tables_.at(),
          .page_stride = limits_.max_pages,
          .history = history_.at(),
          .bias_ids = bias_ids_.at(),
          .bias_values = bias_values_.at(),
          .masks = masks_.at(),
          .mask_words = mask_words_};
}

void RunInputs::reserve(const StepInputs& inputs, const StepShape& shape) {
  reserve(fixed_, InputLayout(shape).bytes);
  reserve(history_, inputs.history.size_bytes());
  reserve(bias_ids_, inputs.bias_ids.size_bytes());
  reserve(bias_values_, inputs.bias_values.size_bytes());
  reserve(masks_, inputs.masks.size_bytes());
}

void RunInputs::reserve(Buffer& area, uint64_t bytes) {
  if (bytes <= area.bytes()) return;
  area = Buffer();
  area = Buffer(device_, std::bit_ceil(bytes), Purpose::activations, Storage::shared);
  ++generation_;
}

void RunInputs::write(const StepInputs& inputs, const QueryTiles& tiles, const StepRows& rows,
                      const StepShape& shape) {
  write_inputs(inputs, tiles, InputLayout(shape), fixed_.data(), rows);
  update_page_tables(inputs, limits_, page_tables_.data());
  put(history_, inputs.history);
  put(bias_ids_, inputs.bias_ids);
  put(bias_values_, inputs.bias_values);
}

void RunInputs::write_masks(const StepInputs& inputs) { put(masks_, inputs.masks); }

}  // namespace forge::metal
