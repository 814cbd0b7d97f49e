#pragma once

// The inputs of runs in device memory. Arrays whose size the shape bounds are copied in one piece,
// page tables only when they have changed, and arrays that most runs lack one by one.
//
// A device supplies the class `Area`: host memory to write, the address at which launches read it
// after `send`, and `allocate`, which replaces both.

#include <bit>
#include <cstring>
#include <span>
#include <utility>
#include <vector>

#include "input_layout.h"

namespace forge {

template <class Area>
class DeviceInputs {
 public:
  using Address = decltype(std::declval<const Area&>().at());

  DeviceInputs(const typename Area::Device& device, const Program& program,
               const std::vector<StepShape>& shapes)
      : limits_(program.limits),
        mask_words_(mask_words(program)),
        fixed_(device),
        page_tables_(device),
        history_(device),
        bias_ids_(device),
        bias_values_(device),
        masks_(device),
        attention_mask_(device),
        adapter_scales_(device),
        series_(device) {
    for (const StepShape& shape : shapes) reserve(fixed_, InputLayout(shape).bytes);
    const uint64_t bytes = page_table_bytes(limits_);
    page_tables_.allocate(bytes);
    // The host's copy equals the device's from the start.
    std::memset(page_tables_.host(), 0, bytes);
    page_tables_.send(bytes);
  }

  InputAddresses<Address> addresses(const StepShape& shape) const {
    InputAddresses<Address> at = addresses_in(fixed_.at(), InputLayout(shape));
    at.page_tables = page_tables_.at();
    at.page_stride = limits_.max_pages;
    at.history = history_.at();
    at.bias_ids = bias_ids_.at();
    at.bias_values = bias_values_.at();
    at.masks = masks_.at();
    at.mask_words = mask_words_;
    at.attention_mask = attention_mask_.at();
    at.adapter_scales = adapter_scales_.at();
    return at;
  }

  // Addresses of a run's piece (InputLayout), and of a series (SeriesLayout).
  Address piece() const { return fixed_.at(); }
  Address series() const { return series_.at(); }

  // Changes when the addresses returned before become invalid.
  uint64_t generation() const { return generation_; }

  // Makes room for the inputs of a run. Must precede `addresses`.
  void reserve(const StepInputs& inputs, const StepShape& shape) {
    reserve(fixed_, InputLayout(shape).bytes);
    reserve(history_, inputs.history.size_bytes());
    reserve(bias_ids_, inputs.bias_ids.size_bytes());
    reserve(bias_values_, inputs.bias_values.size_bytes());
    reserve(masks_, inputs.masks.size_bytes());
    reserve(attention_mask_, inputs.attention_mask.words.size_bytes());
    reserve(adapter_scales_, inputs.adapter_scales.size_bytes());
  }

  // Copies the inputs of a run except its masks. The previous run must have ended.
  void copy(const StepInputs& inputs, const StepWork& work) {
    write_inputs(inputs, work, fixed_.host());
    fixed_.send(InputLayout(work.shape).bytes);
    if (update_page_tables(inputs, limits_, page_tables_.host())) {
      page_tables_.send_rows(limits_.max_pages * sizeof(int32_t), inputs.n_pages * sizeof(int32_t),
                             inputs.n_sequences);
    }
    copy(history_, inputs.history);
    copy(bias_ids_, inputs.bias_ids);
    copy(bias_values_, inputs.bias_values);
    copy(attention_mask_, inputs.attention_mask.words);
    copy(adapter_scales_, inputs.adapter_scales);
  }

  // Makes room for a series whose works have this shape.
  void reserve_series(SeriesInputs& series, const StepShape& shape) {
    const StepInputs& first = series.at(0);
    reserve(first, shape);
    reserve(series_, SeriesLayout(first, shape).bytes);
  }

  // Copies the inputs of a series; the previous run must have ended.
  void copy_series(SeriesInputs& series, const std::vector<StepWork>& work) {
    const StepInputs& first = series.at(0);
    copy(first, work[0]);
    write_series(series, work, series_.host());
    series_.send(SeriesLayout(first, work[0].shape).bytes);
  }

  // Copies the masks, which may be ready later than the other inputs.
  void copy_masks(const StepInputs& inputs) { copy(masks_, inputs.masks); }

 private:
  void reserve(Area& area, uint64_t bytes) {
    if (bytes <= area.bytes()) return;
    // The old addresses become invalid even if the allocation fails.
    ++generation_;
    area.allocate(std::bit_ceil(bytes));
  }

  template <class T>
  static void copy(Area& area, std::span<const T> values) {
    if (values.empty()) return;
    std::memcpy(area.host(), values.data(), values.size_bytes());
    area.send(values.size_bytes());
  }

  StepLimits limits_;
  uint32_t mask_words_;
  Area fixed_, page_tables_, history_, bias_ids_, bias_values_, masks_, attention_mask_,
      adapter_scales_, series_;
  uint64_t generation_ = 0;
};

}  // namespace forge
