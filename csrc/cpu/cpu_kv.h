#pragma once

#include "../common/backend.h"
#include "kernel_table.h"
#include "memory.h"

namespace forge::cpu {

// Pages laid out [page][kv head](k: [k_head_dim][page_tokens] | v: [page_tokens][v_head_dim]), the
// way attention reads them: the keys of neighbouring positions side by side, and all of a head's in
// one piece. In Q8_0 their scales follow k and v: see KvHead. Where values are in the keys, a head
// is [page_tokens][k_head_dim] alone.
class CpuKv : public KvCache {
 public:
  CpuKv(const KvShape& cache_shape, const KernelTable& kernels);

  void copy_page(uint32_t from, uint32_t to) override;
  void read_page(uint32_t page, uint8_t* data) const override;
  void write_page(uint32_t page, const uint8_t* data) override;

  // Stores the k and v of one token, every head of them, at `slot` of a page.
  void store(uint32_t page, uint32_t slot, const float* k, const float* v);

  // Where a head lies in page 0.
  KvHead head(uint32_t kv_head) const;

 private:
  uint8_t* page(uint32_t page) const { return memory_.data() + page * page_bytes; }
  // The k of one head, into its keys in a page.
  void store_k(uint8_t* keys, uint32_t slot, const float* k);
  // The v of one head, or its k where values are in there: a row of a page.
  void store_row(uint8_t* rows, uint32_t slot, const float* x);
  // Elements of such a row.
  uint32_t row_dim() const { return shape.values_in_keys ? shape.k_head_dim : shape.v_head_dim; }
  // `n` floats in the cache's type of two bytes.
  void to_half(const float* from, uint32_t n, uint8_t* to) const;

  const KernelTable& kernels_;
  uint64_t element_bytes_;
  // Of a head in a page.
  uint64_t k_bytes_;
  uint64_t k_scale_bytes_ = 0;
  uint64_t v_bytes_;
  uint64_t v_scale_bytes_ = 0;
  uint64_t head_bytes_;
  Memory memory_;
};

}  // namespace forge::cpu
