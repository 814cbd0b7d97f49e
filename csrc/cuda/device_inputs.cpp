#include "device_inputs.h"

#include <bit>
#include <cstring>

namespace forge::cuda {

DeviceInputs::DeviceInputs(std::shared_ptr<DeviceState> state, const Program& program,
                           const std::vector<StepShape>& shapes)
    : state_(std::move(state)),
      limits_(program.limits),
      mask_words_(mask_words(program)) {
  for (const StepShape& shape : shapes) reserve(fixed_, InputLayout(shape).bytes);
  const uint64_t page_bytes = page_table_bytes(limits_);
  page_tables_.host = PinnedBuffer(state_, page_bytes);
  page_tables_.device = DeviceBuffer(state_, page_bytes, Purpose::activations);
  // Host and device agree from the start.
  std::memset(page_tables_.host.data(), 0, page_bytes);
  send(page_tables_, page_bytes);
}

InputAddresses DeviceInputs::addresses(const StepShape& shape) const {
  InputAddresses at = addresses_in(fixed_.device.at(), InputLayout(shape));
  at.page_tables = page_tables_.device.at();
  at.page_stride = limits_.max_pages;
  at.history = history_.device.at();
  at.bias_ids = bias_ids_.device.at();
  at.bias_values = bias_values_.device.at();
  at.masks = masks_.device.at();
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

void DeviceInputs::reserve(Area& area, uint64_t bytes) {
  if (bytes <= area.device.bytes()) return;
  const uint64_t room = std::bit_ceil(bytes);
  area.host = PinnedBuffer(state_, room);
  // From here on the old addresses are invalid, even where there is no memory for new ones.
  ++generation_;
  area.device = DeviceBuffer();
  area.device = DeviceBuffer(state_, room, Purpose::activations);
}

void DeviceInputs::copy(const StepInputs& inputs, const RunWork& work) {
  write_inputs(inputs, work, fixed_.host.data());
  send(fixed_, InputLayout(work.shape).bytes);
  copy_page_tables(inputs);
  copy(history_, inputs.history.data(), inputs.history.size_bytes());
  copy(bias_ids_, inputs.bias_ids.data(), inputs.bias_ids.size_bytes());
  copy(bias_values_, inputs.bias_values.data(), inputs.bias_values.size_bytes());
}

void DeviceInputs::copy_masks(const StepInputs& inputs) {
  copy(masks_, inputs.masks.data(), inputs.masks.size_bytes());
}

void DeviceInputs::copy(Area& area, const void* data, uint64_t bytes) {
  if (bytes == 0) return;
  std::memcpy(area.host.data(), data, bytes);
  send(area, bytes);
}

void DeviceInputs::send(const Area& area, uint64_t bytes) {
  const Device& device = state_->device;
  device.check(
      device.api().copy_to_device(area.device.at(), area.host.data(), bytes, device.stream()),
      "copying the step's inputs");
}

void DeviceInputs::copy_page_tables(const StepInputs& inputs) {
  const uint64_t width = inputs.n_pages * sizeof(int32_t);
  const uint64_t pitch = limits_.max_pages * sizeof(int32_t);
  if (!update_page_tables(inputs, limits_, page_tables_.host.data())) return;
  Copy2D copy{};
  copy.src_type = kMemoryTypeHost;
  copy.src_host = page_tables_.host.data();
  copy.src_pitch = copy.dst_pitch = pitch;
  copy.dst_type = kMemoryTypeDevice;
  copy.dst_device = page_tables_.device.at();
  copy.width_bytes = width;
  copy.height = inputs.n_sequences;
  const Device& device = state_->device;
  device.check(device.api().copy_2d(&copy, device.stream()), "copying page tables");
}

}  // namespace forge::cuda
