#pragma once

// A KV cache in the layout of the kernels, and a plain reader of it.

#include "../../../csrc/common/float16.h"
#include "../../../kernels/arguments/cuda_arguments.h"
#include "support.h"

namespace kernel_test {

using KvCache = cuda_args::KvCache<u8*>;

struct KvType {
  const char* name;  // the kernels' template argument
  u32 bits;          // per number
  double tolerance;  // relative error of a stored number
};
inline const KvType kv_types[] = {
    {"float", 32, 1e-7}, {"f16", 16, 5e-4}, {"bf16", 16, 4e-3}, {"q8", 8, 8e-3}, {"q4", 4, 0.13}};

// True if every 32 numbers share a scale.
inline bool is_scaled(const KvType& type) { return type.bits <= 8; }
// Bytes of a row; those of Q4_0 are whole groups.
inline u32 row_bytes(const KvType& type, u32 dim) {
  return type.bits == 4 ? (dim + 31) / 32 * 16 : dim * type.bits / 8;
}

// During its lifetime, pages of caches are 2 GiB apart, so that only the first ones are within 32
// bits. True if the device supports such memory.
class FarPages {
 public:
  FarPages() : usable_(Buffer<u8>::sparse(1).size() > 0) { stride = usable_ ? u64(1) << 31 : 0; }
  ~FarPages() { stride = 0; }
  explicit operator bool() const { return usable_; }
  static inline u64 stride = 0;

 private:
  bool usable_;
};

struct Sequences;

class Pages {
 public:
  // With `values_in_keys`, values are the first v_dim numbers of keys.
  Pages(const KvType& type, u32 n_pages, u32 page_tokens, u32 n_kv_heads, u32 k_dim, u32 v_dim,
        bool values_in_keys = false);

  // The number stored in the cache.
  double k(u32 page, u32 slot, u32 head, u32 i) const;
  double v(u32 page, u32 slot, u32 head, u32 i) const;
  // The layout, as kernels of kernels/arguments take it.
  const kernel_args::KvPages& kernel_pages() const { return cache; }
  // Fills every row with random numbers.
  void fill(Random& random);
  // Makes all rows after the last positions of sequences NaN: no kernel may use them.
  void spoil_after(const Sequences& sequences, const std::vector<u32>& lengths);

  KvCache cache;
  Buffer<u8> data;

 private:
  double number(u64 rows, u64 scales, u32 dim, u32 slot, u32 i) const;
  void spoil(u32 page, u32 slot);
  void fill_part(Random& random, u64 rows, u64 scales, u32 dim);
  u64 head_at(u32 page, u32 head) const {
    return page * cache.page_bytes + u64(head) * cache.head_bytes;
  }
  KvType type_;
};

// Sequences of different lengths with shuffled pages.
struct Sequences {
  Sequences(Random& random, const std::vector<u32>& lengths, u32 page_tokens);
  u32 n_pages;      // total pages needed
  u32 page_stride;  // entries per page table
  Buffer<i32> page_tables;
  u32 page(u32 sequence, u32 position, u32 page_tokens) const {
    return static_cast<u32>(page_tables[u64(sequence) * page_stride + position / page_tokens]);
  }
};

// Masks of `rows` queries and heads: bits, or the bits of floats. A random half of the positions is
// hidden, and all of them for the first row; floats also change the other scores.
Buffer<u32> random_mask(Random& random, u32 rows, u32 stride, bool bits);

struct AttentionShape {
  u32 n_heads;
  double scale;
  u32 window;
  double softcap;
  const float* sinks;
  const u32* mask;  // a bit for each visible position; null: all
  const float* bias = nullptr;  // added to the scores, one for each position; null: none
};

// Attention of one query, q[k_dim], over the positions up to its own, or, if n_keys is not 0, over
// the first n_keys. The result is [v_dim], zeros without visible positions.
std::vector<double> plain_attention(const Pages& pages, const Sequences& sequences, u32 sequence,
                                    u32 position, u32 head, const float* q,
                                    const AttentionShape& shape, u32 n_keys = 0);

}  // namespace kernel_test
