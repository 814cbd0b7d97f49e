#include "weight_store.h"

#include <algorithm>

#include "../../kernels/arguments/cuda_arguments.h"
#include "../gpu/parallel.h"
#include "../gpu/weight_format.h"
#include "launch.h"

namespace forge::cuda {

namespace {

// Large enough for copies at the bus's full speed, small enough to pin quickly.
constexpr uint64_t kStagingBytes = 32u << 20;

uint64_t float_row(const CudaWeight& weight) { return weight.cols * sizeof(float); }

uint64_t unified_row(const CudaWeight& weight) {
  return device_row_bytes(WeightType::F32, weight.cols);
}

constexpr const char* kWhat = "copying weights to the device";

}  // namespace

WeightStore::WeightStore(std::shared_ptr<DeviceState> state, Kernels& kernels, uint32_t n_threads)
    : state_(std::move(state)), kernels_(kernels), n_threads_(n_threads) {}

WeightStore::~WeightStore() {
  const DeviceScope scope(state_->device);
  const DriverApi& api = state_->device.api();
  // Copies from the pinned buffers must end before the buffers are freed, even after an error.
  api.stream_synchronize(state_->device.stream());
  for (Staging& staging : staging_) {
    if (staging.copied) api.event_destroy(staging.copied);
  }
}

void WeightStore::add_matrix(const WeightRef& reference) {
  const CudaWeight& weight = cuda_weight(*reference);
  if (weight.matrix) return;
  matrices_.emplace(&weight, reference);
  for (const DevicePart& part : weight.device_parts()) {
    if (!is_repacked(part.type)) continue;
    const std::string instance = "repack_rows<" + weight_format(part.type).name + ">";
    repack_[part.type] = &kernels_.get("repack_rows.cu", instance);
  }
}

void WeightStore::add_unified(const WeightRef& reference) {
  const CudaWeight& weight = cuda_weight(*reference);
  if (weight.is_uniform()) return add_matrix(reference);
  if (!weight.unified) unified_.emplace(&weight, reference);
}

void WeightStore::add_floats(const WeightRef& reference) {
  if (!reference) return;
  const CudaWeight& weight = cuda_weight(*reference);
  if (!weight.floats) floats_.emplace(&weight, reference);
}

uint64_t WeightStore::bytes() const {
  uint64_t total = 0;
  for (const auto& [weight, reference] : matrices_) total += weight->matrix_bytes();
  for (const auto& [weight, reference] : unified_) total += weight->rows * unified_row(*weight);
  for (const auto& [weight, reference] : floats_) total += weight->rows * float_row(*weight);
  return total;
}

void WeightStore::run() {
  const uint64_t all = bytes();
  if (all == 0) return;
  const Device& device = state_->device;
  const DeviceScope scope(device);
  uint64_t longest_row = 0;
  for (const Weights* weights : {&matrices_, &unified_, &floats_}) {
    for (const auto& [weight, reference] : *weights) {
      longest_row = std::max(longest_row, float_row(*weight));
    }
  }
  const uint64_t staging_bytes = std::max(longest_row, std::min(all, kStagingBytes));
  for (Staging& staging : staging_) {
    staging.host = PinnedBuffer(state_, staging_bytes);
    if (!repack_.empty()) staging.raw = DeviceBuffer(state_, staging_bytes, Purpose::activations);
    device.check(device.api().event_create(&staging.copied, kEventDisableTiming), kWhat);
  }
  for (const auto& [weight, reference] : matrices_) copy_matrix(*weight);
  for (const auto& [weight, reference] : unified_) {
    weight->unified = copy_floats(*weight, unified_row(*weight));
  }
  for (const auto& [weight, reference] : floats_) {
    weight->floats = copy_floats(*weight, float_row(*weight));
  }
  device.synchronize(kWhat);
  // The memory check counts this memory as free for the caches.
  for (Staging& staging : staging_) {
    staging.host = PinnedBuffer();
    staging.raw = DeviceBuffer();
  }
}

void WeightStore::copy_matrix(const CudaWeight& weight) {
  const Device& device = state_->device;
  DeviceBuffer memory(state_, weight.matrix_bytes(), Purpose::weights);
  // Vector loads read the padding, which must not be NaN.
  device.check(device.api().fill_bytes(memory.at(), 0, memory.bytes(), device.stream()), kWhat);
  uint64_t row = 0;
  auto target = weight.device_parts().begin();
  for (const WeightPart& source : weight.parts) {
    if (row >= target->first_row + target->rows) ++target;
    const uint64_t offset = target->offset + (row - target->first_row) * target->row_bytes;
    copy_rows(source, weight.cols, memory.at(offset), target->row_bytes);
    row += source.rows;
  }
  weight.matrix = std::move(memory);
}

void WeightStore::copy_rows(const WeightPart& source, uint64_t cols, DevicePointer to,
                             uint64_t to_row_bytes) {
  const Device& device = state_->device;
  const DriverApi& api = device.api();
  const uint64_t raw_bytes = *row_bytes(source.type, cols);
  const auto repack = repack_.find(source.type);
  const uint64_t chunk_rows = staging_[0].host.bytes() / raw_bytes;
  for (uint64_t row = 0; row < source.rows; row += chunk_rows, to += chunk_rows * to_row_bytes) {
    const uint64_t n_rows = std::min(chunk_rows, source.rows - row);
    const uint64_t bytes = n_rows * raw_bytes;
    Staging& staging = next_staging();
    copy_part(staging.host.data(), source, row, n_rows, raw_bytes, n_threads_);
    if (repack != repack_.end()) {
      device.check(
          api.copy_to_device(staging.raw.at(), staging.host.data(), bytes, device.stream()), kWhat);
      const uint64_t block = find_weight_type(static_cast<uint32_t>(source.type))->block_elements;
      const auto blocks = static_cast<uint32_t>(cols / block);
      for (uint64_t done = 0; done < n_rows; done += kMostGridRows) {
        const auto rows = static_cast<uint32_t>(std::min<uint64_t>(kMostGridRows, n_rows - done));
        const cuda_args::RepackRows<DevicePointer> args = {.out = to + done * to_row_bytes,
                                                           .raw = staging.raw.at(done * raw_bytes),
                                                           .raw_row_bytes = raw_bytes,
                                                           .out_row_bytes = to_row_bytes,
                                                           .rows = rows,
                                                           .n_blocks = blocks};
        Launch(*repack->second, {divide_up(blocks, 8), rows}, 256, 0, args).enqueue(device, false);
      }
    } else {
      send(staging, to, to_row_bytes, raw_bytes, n_rows);
    }
    device.check(api.event_record(staging.copied, device.stream()), kWhat);
  }
}

DeviceBuffer WeightStore::copy_floats(const CudaWeight& weight, uint64_t to_row_bytes) {
  const Device& device = state_->device;
  DeviceBuffer memory(state_, weight.rows * to_row_bytes, Purpose::weights);
  if (to_row_bytes != float_row(weight)) {
    device.check(device.api().fill_bytes(memory.at(), 0, memory.bytes(), device.stream()), kWhat);
  }
  const uint64_t chunk_rows = staging_[0].host.bytes() / float_row(weight);
  for (uint64_t row = 0; row < weight.rows; row += chunk_rows) {
    const uint64_t n_rows = std::min(chunk_rows, weight.rows - row);
    Staging& staging = next_staging();
    weight.read(row, n_rows, reinterpret_cast<float*>(staging.host.data()));
    send(staging, memory.at(row * to_row_bytes), to_row_bytes, float_row(weight), n_rows);
    device.check(device.api().event_record(staging.copied, device.stream()), kWhat);
  }
  return memory;
}

void WeightStore::send(const Staging& staging, DevicePointer to, uint64_t to_row_bytes,
                        uint64_t row_bytes, uint64_t n_rows) {
  const Device& device = state_->device;
  const DriverApi& api = device.api();
  if (row_bytes == to_row_bytes) {
    device.check(api.copy_to_device(to, staging.host.data(), n_rows * row_bytes, device.stream()),
                 kWhat);
    return;
  }
  Copy2D copy{};
  copy.src_type = kMemoryTypeHost;
  copy.src_host = staging.host.data();
  copy.src_pitch = copy.width_bytes = row_bytes;
  copy.dst_type = kMemoryTypeDevice;
  copy.dst_device = to;
  copy.dst_pitch = to_row_bytes;
  copy.height = n_rows;
  device.check(api.copy_2d(&copy, device.stream()), kWhat);
}

WeightStore::Staging& WeightStore::next_staging() {
  Staging& staging = staging_[turn_++ % staging_.size()];
  const Device& device = state_->device;
  device.check(device.api().event_synchronize(staging.copied), kWhat);
  return staging;
}

}  // namespace forge::cuda
