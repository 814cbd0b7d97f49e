// One call of the library: its shape, random tensors, and the expected result.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "flash_attn.h"

namespace flash_attn_test {

// The shape of a call. Written as words `name=value`; lengths are lists such as `q=3,0,7`.
struct CaseShape {
  std::string function = "fwd";  // fwd, varlen or decode
  std::string dtype = "bf16";
  std::string kv = "as_q";       // q8: keys and values of Q8_0; e4m3: these and queries of E4M3
  int32_t head_dim = 64;
  int32_t heads = 1;
  int32_t kv_heads = 1;
  std::vector<int32_t> q;
  std::vector<int32_t> k;
  int32_t page = 0;          // rows per page; 0: no pages
  int32_t packed_q = 0;      // decode: packed queries
  int32_t gap = 0;           // unused rows before each sequence's packed queries
  int32_t shuffled = 0;      // 1: rows of the block table are shuffled
  int32_t causal = 0;
  int32_t left = -1;
  int32_t right = -1;
  int32_t sinks = 0;
  int32_t splits = 0;
  int32_t no_split = 0;
  int32_t early = 0;         // decode: keys before the previous kernel ends
  int32_t force_sm80 = 0;
  int32_t capability = 80;
  int32_t heads_first = 0;   // layout [heads, rows, dim] instead of [rows, heads, dim]
  int32_t nan_sequence = -1; // this sequence's keys and values are NaN, and it is not compared
  int32_t order = 0;         // seed of the order of threads; 0: in order
  int32_t seed = 1;
  int32_t descale = 0;       // of E4M3: 1: factors of each sequence and key head; 2: of each tensor
  int32_t far = 0;           // 1: pages are 4 GiB apart
  std::string mask = "none"; // f32, as_dtype, bytes or bits
  std::string mask_of = "bqhk";  // dimensions that the mask has
  int32_t pitch = 0;         // 1: the unit of its strides is on the device
  float softcap = 0;
  float scale = 0;           // 0: 1 / sqrt(head_dim)
  float spread = 1;          // standard deviation of queries and keys
};

// Reads a line; an unknown word ends the program.
CaseShape parse_case(const std::string &line);

// Frees the elements of a tensor: heap memory, or a mapping of `mapped` bytes.
struct FreeElements {
  size_t mapped = 0;
  void operator()(uint16_t *elements) const;
};

// A 16-bit tensor of rows of heads, each row head_dim long. Of Q8_0 and E4M3 an element is two
// numbers; the factors of a head of Q8_0 follow its rows.
struct Tensor {
  std::unique_ptr<uint16_t[], FreeElements> data;
  int64_t elements = 0;
  int64_t batch_stride = 0;
  int64_t row_stride = 0;
  int64_t head_stride = 0;
  int64_t scales = 0;
};

class AttentionCase {
 public:
  explicit AttentionCase(const CaseShape &shape);

  flash_attn_status run();

  // Compares with sums in double. Prints one JSON object.
  void report(flash_attn_status status) const;

 private:
  int32_t batch() const { return static_cast<int32_t>(shape_.q.size()); }
  bool packed_queries() const;
  bool packed_keys() const { return shape_.function == "varlen" && shape_.page == 0; }
  // The first entry of the sequence's pages in the block table.
  size_t block_row(int32_t sequence) const;
  int64_t key_at(const Tensor &tensor, int32_t sequence, int32_t key, int32_t kv_head) const;
  int64_t query_at(const Tensor &tensor, int32_t sequence, int32_t query, int32_t head) const;
  Tensor make_tensor(int64_t batches, int64_t rows, int32_t heads, const std::string &type) const;
  // A tensor of keys or values.
  Tensor make_stored(int64_t batches, int64_t rows) const;
  bool is_q8() const { return shape_.kv == "q8"; }
  bool is_e4m3() const { return shape_.kv == "e4m3"; }
  // Returns the factor of numbers of E4M3; 1 for other types.
  float descale(const std::vector<float> &factors, int32_t sequence, int32_t kv_head) const;
  // Numbers of a row of queries; those of E4M3 without their factor.
  std::vector<float> query_row(int32_t sequence, int32_t query, int32_t head) const;
  // The factor of a row's first 32 numbers.
  int64_t scale_at(const Tensor &tensor, int32_t sequence, int32_t key, int32_t kv_head) const;
  // Numbers of a row of keys or values; those of E4M3 without their factor.
  std::vector<float> stored_row(const Tensor &tensor, int32_t sequence, int32_t key,
                                int32_t kv_head) const;
  bool has_mask() const { return shape_.mask != "none"; }
  void make_mask();
  void put_in_mask(int64_t at, int32_t key, float number);
  // The element that holds an entry of the mask; of bits, the first word of the row.
  int64_t mask_at(int32_t sequence, int32_t query, int32_t head, int32_t key) const;
  // The number that the mask adds to a score.
  float mask_number(int32_t sequence, int32_t query, int32_t head, int32_t key) const;
  void fill();
  void make_pages();
  // Pages of a sparse mapping, zeros until written.
  Tensor make_far_pages(int64_t pages) const;
  // The product of a query and a key, without factors of E4M3, which are added as by a GPU.
  template <class Real>
  Real product_of(const std::vector<float> &q, const std::vector<float> &k) const;
  template <class Real>
  Real reference_row(int32_t sequence, int32_t query, int32_t head, std::vector<Real> &out,
                     std::vector<Real> &magnitude) const;
  float value(uint16_t bits) const;
  float rounded(float x) const;

  CaseShape shape_;
  flash_attn_params params_ = {};
  Tensor q_, k_, v_, out_;
  std::vector<int32_t> cu_q_, cu_k_, seqlens_q_, seqlens_k_, table_, block_rows_;
  int64_t table_stride_ = 0;
  std::vector<float> sinks_, lse_, q_descale_, k_descale_, v_descale_;
  std::vector<unsigned char> mask_;
  std::vector<int32_t> mask_pitch_;
};

}  // namespace flash_attn_test
