#pragma once

#include "../common/backend.h"
#include "kernel_table.h"
#include "memory.h"

namespace forge::cpu {

// Pages laid out [page][kv head](k: [k_head_dim][page_tokens] | v: [page_tokens][v_head_dim]), the
// way attention reads them: the keys of neighbouring positions side by side, and all of a head's in
// one piece.
class CpuKv : public KvCache {
 public:
  CpuKv(const KvShape& cache_shape, const KernelTable& kernels);

  void copy_page(uint32_t from, uint32_t to) override;
  void read_page(uint32_t page, uint8_t* data) const override;
  void write_page(uint32_t page, const uint8_t* data) override;

  // Stores the k and v of one token, every head of them, at `slot` of a page.
  void store(uint32_t page, uint32_t slot, const float* k, const float* v);

  bool is_f16() const { return shape.type == WeightType::F16; }
  const uint8_t* k(uint32_t kv_head) const { return memory_.data() + kv_head * head_bytes_; }
  const uint8_t* v(uint32_t kv_head) const { return k(kv_head) + k_bytes_; }

 private:
  uint8_t* page(uint32_t page) const { return memory_.data() + page * page_bytes; }

  const KernelTable& kernels_;
  uint64_t element_bytes_;
  uint64_t k_bytes_;     // of a head's keys in a page
  uint64_t head_bytes_;  // of a head's keys and values in a page
  Memory memory_;
};

}  // namespace forge::cpu
