#pragma once

// A KV cache as the kernels lay it out, and a plain reading of it.

#include "../../../csrc/common/float16.h"
#include "support.h"

namespace kernel_test {

// kernels/cuda/kv.cuh's KvCache.
struct KvCache {
  u8* data;
  u64 page_bytes;
  u32 head_bytes, v_offset, k_scales, v_scales, page_tokens, n_kv_heads, k_dim, v_dim;
  u32 values_in_keys;
};

struct KvType {
  const char* name;  // the kernels' template argument
  u32 bytes;         // of a number
  double tolerance;  // relative error of a stored number
};
inline const KvType kv_types[] = {
    {"float", 4, 1e-7}, {"f16", 2, 5e-4}, {"bf16", 2, 4e-3}, {"q8", 1, 8e-3}};

// While it lives, the pages of caches lie 2 GiB from each other, so that all but the first ones are
// beyond what 32 bits can count. True where the device has such memory.
class FarPages {
 public:
  FarPages() : usable_(Buffer<u8>::sparse(1).size() > 0) { stride = usable_ ? u64(1) << 31 : 0; }
  ~FarPages() { stride = 0; }
  explicit operator bool() const { return usable_; }
  static inline u64 stride = 0;

 private:
  bool usable_;
};

class Pages {
 public:
  // With `values_in_keys` values are the first v_dim numbers of keys.
  Pages(const KvType& type, u32 n_pages, u32 page_tokens, u32 n_kv_heads, u32 k_dim, u32 v_dim,
        bool values_in_keys = false);

  // The number that the cache holds.
  double k(u32 page, u32 slot, u32 head, u32 i) const;
  double v(u32 page, u32 slot, u32 head, u32 i) const;
  // Fills every row with random numbers.
  void fill(Random& random);

  KvCache cache;
  Buffer<u8> data;

 private:
  double number(u64 rows, u64 scales, u32 dim, u32 slot, u32 i) const;
  void fill_part(Random& random, u64 rows, u64 scales, u32 dim);
  u64 head_at(u32 page, u32 head) const {
    return page * cache.page_bytes + u64(head) * cache.head_bytes;
  }
  KvType type_;
};

// Some sequences of different lengths, whose pages are shuffled.
struct Sequences {
  Sequences(Random& random, const std::vector<u32>& lengths, u32 page_tokens);
  u32 n_pages;      // that all need
  u32 page_stride;  // entries of a page table
  Buffer<i32> page_tables;
  u32 page(u32 sequence, u32 position, u32 page_tokens) const {
    return static_cast<u32>(page_tables[u64(sequence) * page_stride + position / page_tokens]);
  }
};

struct AttentionShape {
  u32 n_heads;
  double scale;
  u32 window;
  double softcap;
  const float* sinks;
  const u32* mask;  // a bit for each position that is seen; null: all are
};

// One query's attention over the positions up to its own; q[k_dim], the result [v_dim], zeros where
// nothing is seen.
std::vector<double> plain_attention(const Pages& pages, const Sequences& sequences, u32 sequence,
                                    u32 position, u32 head, const float* q,
                                    const AttentionShape& shape);

}  // namespace kernel_test
