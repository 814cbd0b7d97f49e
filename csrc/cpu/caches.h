#pragma once

#include <memory>
#include <span>
#include <vector>

#include "../common/backend.h"
#include "host/cpu_device.h"
#include "host/memory.h"
#include "kernel_table.h"

namespace forge::cpu {

// The heads of a cache are divided among the NUMA nodes of a device, each with memory of its own:
// pages of layout [page][kv head](k: [k_head_dim][page_tokens] | v: [page_tokens][v_head_dim]), in
// the order in which attention reads them: keys of neighbouring positions are adjacent, and so is
// all data of a head. In Q8_0 and Q4_0, scales follow k and v: see KvHead. If values are in the
// keys, a head is [page_tokens][k_head_dim] only.
class CpuKv : public KvCache {
 public:
  CpuKv(const KvShape& cache_shape, CpuDevice& device);

  void copy(uint32_t from, uint32_t to) override;
  void read(uint32_t page, uint8_t* data) const override;
  void write(uint32_t page, const uint8_t* data) override;

  // Has the threads of each node be the first to write to its heads of these pages, which gives
  // them memory of the node, unless the pages have been here before. The caller holds the mutex of
  // the device, which has several nodes.
  void place(std::span<const uint32_t> pages, ThreadPool& pool);

  // Stores k and v of all heads of one token at `slot` of a page.
  void store(uint32_t page, uint32_t slot, const float* k, const float* v);

  // Reads the keys of all heads of one token, of a float type with values in the keys.
  void read_keys(uint32_t page, uint32_t slot, float* k) const;

  // Returns the addresses of a head in page 0.
  KvHead head(uint32_t kv_head) const;

  // The node with the memory of a head.
  uint32_t node_of(uint32_t kv_head) const;

 private:
  // The heads of a NUMA node, which may be none.
  struct NodeHeads {
    uint32_t first_head;
    uint32_t end_head;
    uint64_t page_bytes;
    Memory memory;

    uint8_t* page(uint32_t index) const { return memory.data() + index * page_bytes; }
  };

  // Stores the k of one head into its keys in a page.
  void store_k(uint8_t* keys, uint32_t slot, const float* k);
  // Stores a row of a page: the v of one head, or its k if values are in the keys.
  void store_row(uint8_t* rows, uint32_t slot, const float* x);
  // Number of elements of such a row.
  uint32_t row_dim() const { return shape.values_in_keys ? shape.k_head_dim : shape.v_head_dim; }
  // Converts `n` floats to F16 or BF16, the type of the cache.
  void to_half(const float* from, uint32_t n, uint8_t* to) const;

  const KernelTable& kernels_;
  uint64_t element_bytes_;
  // Of a head in a page.
  uint64_t k_bytes_;
  uint64_t k_scale_bytes_ = 0;
  uint64_t v_bytes_;
  uint64_t v_scale_bytes_ = 0;
  uint64_t head_bytes_;
  std::vector<NodeHeads> nodes_;
  std::vector<uint8_t> is_placed_;  // of each page; bytes, as others may be copied meanwhile
  std::shared_ptr<const void> taken_;
};

// Slots of panels of 16 columns, [panel][rows][16], the last one padded with zeros: the delta rule
// processes one panel at a time, which fits the first-level cache of the processor.
class CpuState : public StateCache {
 public:
  CpuState(const StateShape& cache_shape, MemoryBound& memory);

  void copy(uint32_t from, uint32_t to) override;
  void read(uint32_t slot, uint8_t* data) const override;
  void write(uint32_t slot, const uint8_t* data) override;

  // The panels of a slot.
  float* slot(uint32_t index) const;

  // Copy rows from and to the panels of a slot.
  void read_rows(uint32_t slot, float* rows) const;
  void write_row(uint32_t slot, uint32_t row, const float* values);

 private:
  Memory memory_;
  std::shared_ptr<const void> taken_;
};

}  // namespace forge::cpu
