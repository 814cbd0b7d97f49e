#pragma once

// KV pages and recurrent state in device memory. A cache is allocated when the first step that uses
// it is compiled: all needs of the model are known by then, so that an error can list them.
//
// A device supplies `Transfers`: the types Device, Buffer, Turn (exclusive use of the device) and
// Pages, and the functions
//   Buffer zeroed(device, bytes, what)
//   void copy(device, to, from, bytes, what), read(...) and write(...), complete on return
// where `what` names the work in errors.

#include <memory>
#include <string>
#include <utility>

#include "../../kernels/arguments/kv_arguments.h"
#include "../common/backend.h"
#include "../common/program.h"
#include "device_memory.h"

namespace forge {

// Numbers of a cache that share a scale, if it has scales.
constexpr uint32_t kKvScaleGroup = 32;

// Returns the bytes of `n` numbers of a row without scales; 0 for types that GPUs do not store.
uint64_t kv_row_bytes(WeightType type, uint64_t n);

// Layout of the pages of one layer: for each KV head of a page the keys [page_tokens, k_head_dim],
// their scales (Q8_0, Q4_0), the values [page_tokens, v_head_dim], their scales; each part padded
// to 16 bytes. Values that are in the keys have no parts of their own.
struct KvLayout {
  uint64_t page_bytes;
  uint32_t head_bytes;
  uint32_t v_offset;  // this and the following: byte offsets in a head
  uint32_t k_scales;
  uint32_t v_scales;
};

class DeviceKv : public KvCache {
 public:
  virtual bool is_allocated() const = 0;
  // Allocates the memory, filled with zeros, if it is not allocated yet.
  virtual void allocate() const = 0;

  uint64_t bytes() const { return page_bytes * shape.n_pages; }
  // The layout of the pages, as kernels take it.
  kernel_args::KvPages kernel_pages() const;
  // Element type in the names of kernels: "float", "f16", "bf16", "q8" or "q4".
  const char* element() const;

 protected:
  // Throws FORGE_UNSUPPORTED for an element type that GPUs do not store, FORGE_OUT_OF_MEMORY for a
  // cache larger than the device's whole memory.
  DeviceKv(const KvShape& cache_shape, const DeviceRoom& room);

  const KvLayout layout_;
};

// Recurrent state. Each operation lays out its slots as it likes.
class DeviceStateCache : public StateCache {
 public:
  virtual bool is_allocated() const = 0;
  // Allocates the memory, filled with zeros, if it is not allocated yet.
  virtual void allocate() const = 0;

  uint64_t bytes() const { return slot_bytes * shape.n_slots; }
  // Floats from one slot to the next.
  uint64_t stride() const { return uint64_t{shape.rows} * shape.cols; }

 protected:
  // Throws FORGE_OUT_OF_MEMORY for a cache larger than the device's whole memory.
  DeviceStateCache(const StateShape& cache_shape, const DeviceRoom& room);
};

inline const DeviceKv& device_kv(const KvCache& cache) {
  return static_cast<const DeviceKv&>(cache);
}

inline const DeviceStateCache& device_state(const StateCache& cache) {
  return static_cast<const DeviceStateCache&>(cache);
}

// The memory of a cache: one buffer that is allocated late and copied in whole pages or slots. Its
// functions take the device's turn, except `allocate`, whose caller holds it.
template <class Transfers>
class CacheMemory {
 public:
  using Device = typename Transfers::Device;

  // `name` is used in errors.
  CacheMemory(Device device, uint64_t bytes, const char* name)
      : device_(std::move(device)), bytes_(bytes), name_(name) {}

  bool is_allocated() const { return static_cast<bool>(buffer_); }
  void allocate() const {
    if (!buffer_) buffer_ = Transfers::zeroed(device_, bytes_, "clearing " + name_);
  }
  void copy(uint64_t to, uint64_t from, uint64_t bytes) const {
    const typename Transfers::Turn turn(device_);
    allocate();
    Transfers::copy(device_, buffer_.at(to), buffer_.at(from), bytes, "copying " + name_);
  }
  void read(uint8_t* to, uint64_t from, uint64_t bytes) const {
    const typename Transfers::Turn turn(device_);
    allocate();
    Transfers::read(device_, to, buffer_.at(from), bytes, "reading " + name_);
  }
  void write(uint64_t to, const uint8_t* from, uint64_t bytes) const {
    const typename Transfers::Turn turn(device_);
    allocate();
    Transfers::write(device_, buffer_.at(to), from, bytes, "writing " + name_);
  }
  auto at() const { return buffer_.at(); }

 private:
  Device device_;
  uint64_t bytes_;
  std::string name_;
  mutable typename Transfers::Buffer buffer_;
};

// The pages of one layer.
template <class Transfers>
class KvCacheIn final : public DeviceKv {
 public:
  KvCacheIn(const KvShape& cache_shape, const typename Transfers::Device& device)
      : DeviceKv(cache_shape, device->room()), memory_(device, bytes(), "the KV cache") {}

  void copy(uint32_t from, uint32_t to) override {
    memory_.copy(to * page_bytes, from * page_bytes, page_bytes);
  }
  void read(uint32_t page, uint8_t* data) const override {
    memory_.read(data, page * page_bytes, page_bytes);
  }
  void write(uint32_t page, const uint8_t* data) override {
    memory_.write(page * page_bytes, data, page_bytes);
  }

  bool is_allocated() const override { return memory_.is_allocated(); }
  void allocate() const override { memory_.allocate(); }
  auto memory() const { return memory_.at(); }

  static const KvCacheIn& of(const KvRef& kv) { return static_cast<const KvCacheIn&>(*kv); }

 private:
  CacheMemory<Transfers> memory_;
};

template <class Transfers>
class StateCacheIn final : public DeviceStateCache {
 public:
  StateCacheIn(const StateShape& cache_shape, const typename Transfers::Device& device)
      : DeviceStateCache(cache_shape, device->room()),
        memory_(device, bytes(), "recurrent state") {}

  void copy(uint32_t from, uint32_t to) override {
    memory_.copy(to * slot_bytes, from * slot_bytes, slot_bytes);
  }
  void read(uint32_t slot, uint8_t* data) const override {
    memory_.read(data, slot * slot_bytes, slot_bytes);
  }
  void write(uint32_t slot, const uint8_t* data) override {
    memory_.write(slot * slot_bytes, data, slot_bytes);
  }

  bool is_allocated() const override { return memory_.is_allocated(); }
  void allocate() const override { memory_.allocate(); }
  // Address of slot 0.
  auto memory() const { return memory_.at(); }

  static const StateCacheIn& of(const StateRef& state) {
    return static_cast<const StateCacheIn&>(*state);
  }

 private:
  CacheMemory<Transfers> memory_;
};

// True if the tiled attention kernels have instances for the cache: heads of 16, 32, 64, 80, 96,
// 128 or 256 elements, with keys and values of the same size and stored separately.
bool has_tiled_heads(const KvShape& shape);

// True if the latent attention kernels have instances for the cache: values in keys, with heads of
// 288 and 256 elements, or 576 and 512.
bool has_latent_heads(const KvShape& shape);

// Names of kernel instances for a cache, as in "rope_append<f16>" and "prefill_attention<f16, 64>".
std::string element_instance(const char* kernel, const DeviceKv& kv);
std::string head_instance(const char* kernel, const DeviceKv& kv);

}  // namespace forge
