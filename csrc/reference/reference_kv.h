#pragma once

#include <vector>

#include "../common/backend.h"

namespace forge::reference {

// Pages of layout [page][token][k of every head | v of every head], in the float type of the cache;
// keys only if values are in the keys. A Q8_0 or Q4_0 cache stores float32 numbers rounded as 8 or
// 4 bits would be: blocks of 32 elements of a head (the last one may be shorter) are levels -127 to
// 127, or -8 to 7, of a float16 scale.
class ReferenceKv : public KvCache {
 public:
  explicit ReferenceKv(const KvShape& shape);

  void copy(uint32_t from, uint32_t to) override;
  void read(uint32_t page, uint8_t* data) const override;
  void write(uint32_t page, const uint8_t* data) override;

  uint32_t k_cols() const { return shape.n_kv_heads * shape.k_head_dim; }
  // 0 if values are in the keys.
  uint32_t v_cols() const { return shape.n_kv_heads * (shape.kept_dim() - shape.k_head_dim); }

  // Stores k[k_cols] and v[v_cols] of the token at `slot` of a page, rounded to the type of the
  // cache.
  void store(uint32_t page, uint32_t slot, const float* k, const float* v);
  // Return element `i` of the key or value of a head.
  float k(uint32_t page, uint32_t slot, uint32_t head, uint32_t i) const {
    return load(page, slot, head * shape.k_head_dim + i);
  }
  float v(uint32_t page, uint32_t slot, uint32_t head, uint32_t i) const {
    if (shape.values_in_keys) return k(page, slot, head, i);
    return load(page, slot, k_cols() + head * shape.v_head_dim + i);
  }

 private:
  uint64_t index(uint32_t page, uint32_t slot, uint32_t i) const;
  void store_one(uint32_t page, uint32_t slot, uint32_t i, float value);
  float load(uint32_t page, uint32_t slot, uint32_t i) const;

  uint32_t element_bytes_;
  std::vector<uint8_t> data_;
};

}  // namespace forge::reference
