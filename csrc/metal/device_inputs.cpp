#include "device_inputs.h"

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

DeviceInputs::DeviceInputs(std::shared_ptr<const Device> device, const Program& program,
                           const std::vector<StepShape>& shapes)
    : device_(std::move(device)),
      limits_(program.limits),
      mask_words_(mask_words(program)),
      page_tables_(device_, page_table_bytes(limits_), Purpose::activations, Storage::shared) {
  for (const StepShape& shape : shapes) reserve(fixed_, InputLayout(shape).bytes);
  std::memset(page_tables_.data(), 0, page_tables_.bytes());
}

InputAddresses DeviceInputs::addresses(const StepShape& shape) const {
  InputAddresses at = addresses_in(fixed_.at(), InputLayout(shape));
  at.page_tables = page_tables_.at();
  at.page_stride = limits_.max_pages;
  at.history = history_.at();
  at.bias_ids = bias_ids_.at();
  at.bias_values = bias_values_.at();
  at.masks = masks_.at();
  at.mask_words = mask_words_;
  return at;
}

void DeviceInputs::reserve(const StepInputs& inputs, const StepShape& shape) {
  reserve(fixed_, InputLayout(shape).bytes);
  reserve(history_, inputs.history.size_bytes());
  reserve(bias_ids_, inputs.bias_ids.size_bytes());
  reserve(bias_values_, inputs.bias_values.size_bytes());
  reserve(masks_, inputs.masks.size_bytes());
}

void DeviceInputs::reserve(Buffer& area, uint64_t bytes) {
  if (bytes <= area.bytes()) return;
  // From here on the old addresses are invalid, even where there is no memory for new ones.
  ++generation_;
  area = Buffer();
  area = Buffer(device_, std::bit_ceil(bytes), Purpose::activations, Storage::shared);
}

void DeviceInputs::write(const StepInputs& inputs, const RunWork& work) {
  write_inputs(inputs, work, fixed_.data());
  update_page_tables(inputs, limits_, page_tables_.data());
  put(history_, inputs.history);
  put(bias_ids_, inputs.bias_ids);
  put(bias_values_, inputs.bias_values);
}

void DeviceInputs::write_masks(const StepInputs& inputs) { put(masks_, inputs.masks); }

}  // namespace forge::metal
