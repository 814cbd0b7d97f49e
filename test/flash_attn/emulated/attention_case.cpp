#include "attention_case.h"

#include <sys/mman.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <random>

#include "../../../csrc/common/float16.h"
#include "case_call.h"
#include "e4m3.h"

namespace flash_attn_test {

namespace {

// NaN in both types; kernels must neither read it nor leave it in an output.
constexpr uint16_t kUntouched = 0xffff;

int32_t longest(const std::vector<int32_t> &lengths) {
  return lengths.empty() ? 0 : *std::max_element(lengths.begin(), lengths.end());
}

std::vector<int32_t> cumulative(const std::vector<int32_t> &lengths) {
  std::vector<int32_t> sums(lengths.size() + 1, 0);
  std::partial_sum(lengths.begin(), lengths.end(), sums.begin() + 1);
  return sums;
}

int32_t pages_of(int32_t keys, int32_t page) { return (keys + page - 1) / page; }

}  // namespace

void FreeElements::operator()(uint16_t *elements) const {
  if (mapped > 0) {
    munmap(elements, mapped);
  } else {
    ::operator delete[](elements);
  }
}

AttentionCase::AttentionCase(const CaseShape &shape) : shape_(shape) {
  seqlens_q_ = shape.q;
  cu_q_ = cumulative(shape.q);
  if (packed_queries()) {
    for (size_t b = 0; b < cu_q_.size(); b++) cu_q_[b] += shape.gap * static_cast<int32_t>(b + 1);
  }
  cu_k_ = cumulative(shape.k);
  seqlens_k_ = shape.k;
  const int64_t n = batch();
  const int32_t total_q = cu_q_.back(), total_k = cu_k_.back();
  const int64_t q_batches = packed_queries() ? 1 : n;
  const int64_t q_rows = packed_queries() ? total_q : longest(shape.q);
  q_ = make_tensor(q_batches, q_rows, shape.heads, is_e4m3() ? "e4m3" : "as_q");
  out_ = make_tensor(q_batches, q_rows, shape.heads, "as_q");
  if (shape.page > 0) {
    make_pages();
  } else {
    const int64_t k_rows = packed_keys() ? total_k : longest(shape.k);
    k_ = make_stored(packed_keys() ? 1 : n, k_rows);
    v_ = make_stored(packed_keys() ? 1 : n, k_rows);
  }
  lse_.assign(static_cast<size_t>(std::max<int64_t>(q_batches * q_rows * shape.heads, 1)), NAN);
  params_.lse_head_stride = q_rows;
  params_.lse_batch_stride = q_rows * shape.heads;
  params_.total_q = total_q;
  params_.total_k = total_k;
  fill();
  if (has_mask()) make_mask();
}

bool AttentionCase::packed_queries() const {
  return shape_.function == "varlen" || (shape_.function == "decode" && shape_.packed_q != 0);
}

Tensor AttentionCase::make_stored(int64_t batches, int64_t rows) const {
  return make_tensor(batches, rows, shape_.kv_heads, shape_.kv);
}

Tensor AttentionCase::make_tensor(int64_t batches, int64_t rows, int32_t heads,
                                  const std::string &type) const {
  // Gaps of eight elements after rows and heads reveal a kernel that assumes a stride.
  Tensor t;
  const int64_t gap = 8, columns = type == "as_q" ? shape_.head_dim : shape_.head_dim / 2;
  if (type == "q8") {
    t.row_stride = columns + gap;
    t.scales = rows * t.row_stride;
    t.head_stride = t.scales + (rows * shape_.head_dim / 32 + 7) / 8 * 8;
    t.batch_stride = heads * t.head_stride + gap;
  } else if (shape_.heads_first != 0) {
    t.row_stride = columns + gap;
    t.head_stride = rows * t.row_stride;
    t.batch_stride = heads * t.head_stride;
  } else {
    t.head_stride = columns;
    t.row_stride = heads * t.head_stride + gap;
    t.batch_stride = rows * t.row_stride;
  }
  t.elements = std::max<int64_t>(batches * t.batch_stride, 8);
  t.data.reset(static_cast<uint16_t *>(operator new[](static_cast<size_t>(t.elements) * 2)));
  std::fill_n(t.data.get(), t.elements, kUntouched);
  return t;
}

Tensor AttentionCase::make_far_pages(int64_t pages) const {
  Tensor t = make_stored(1, shape_.page);
  t.batch_stride = int64_t{1} << 31;
  t.elements = pages * t.batch_stride;
  const size_t bytes = static_cast<size_t>(t.elements) * sizeof(uint16_t);
  void *memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) std::abort();
  t.data = {static_cast<uint16_t *>(memory), FreeElements{bytes}};
  return t;
}

void AttentionCase::make_pages() {
  int32_t n_pages = 0;
  for (const int32_t keys : shape_.k) n_pages += pages_of(keys, shape_.page);
  // One page is unused, and pages are in random order.
  std::vector<int32_t> order(static_cast<size_t>(n_pages) + 1);
  std::iota(order.begin(), order.end(), 0);
  std::mt19937 random(static_cast<uint32_t>(shape_.seed));
  std::shuffle(order.begin(), order.end(), random);
  table_stride_ = pages_of(longest(shape_.k), shape_.page);
  // Table entries beyond a sequence's own pages are invalid.
  table_.assign(static_cast<size_t>(std::max<int64_t>(table_stride_ * batch(), 1)), 1 << 28);
  block_rows_.resize(shape_.k.size());
  std::iota(block_rows_.begin(), block_rows_.end(), 0);
  if (shape_.shuffled != 0) std::shuffle(block_rows_.begin(), block_rows_.end(), random);
  size_t next = 0;
  for (int32_t b = 0; b < batch(); b++) {
    for (int32_t i = 0; i < pages_of(shape_.k[static_cast<size_t>(b)], shape_.page); i++) {
      table_[block_row(b) + static_cast<size_t>(i)] = order[next++];
    }
  }
  const auto make = [&] {
    return shape_.far != 0 ? make_far_pages(n_pages + 1)
                           : make_stored(n_pages + 1, shape_.page);
  };
  k_ = make();
  v_ = make();
}

size_t AttentionCase::block_row(int32_t sequence) const {
  return static_cast<size_t>(block_rows_[static_cast<size_t>(sequence)] * table_stride_);
}

int64_t AttentionCase::key_at(const Tensor &t, int32_t sequence, int32_t key,
                              int32_t kv_head) const {
  const int64_t head = kv_head * t.head_stride;
  if (shape_.page > 0) {
    const auto entry = block_row(sequence) + static_cast<size_t>(key / shape_.page);
    return table_[entry] * t.batch_stride + key % shape_.page * t.row_stride + head;
  }
  if (packed_keys()) return (cu_k_[static_cast<size_t>(sequence)] + key) * t.row_stride + head;
  return sequence * t.batch_stride + key * t.row_stride + head;
}

int64_t AttentionCase::scale_at(const Tensor &t, int32_t sequence, int32_t key,
                                int32_t kv_head) const {
  const int64_t row = shape_.page > 0 ? key % shape_.page : key;
  const int64_t first = key_at(t, sequence, key, kv_head) - row * t.row_stride;
  return first + t.scales + row * shape_.head_dim / 32;
}

std::vector<float> AttentionCase::stored_row(const Tensor &t, int32_t sequence, int32_t key,
                                             int32_t kv_head) const {
  const uint16_t *const row = t.data.get() + key_at(t, sequence, key, kv_head);
  std::vector<float> numbers(static_cast<size_t>(shape_.head_dim));
  if (is_q8()) {
    const uint16_t *const scales = t.data.get() + scale_at(t, sequence, key, kv_head);
    const auto *const bytes = reinterpret_cast<const int8_t *>(row);
    for (size_t d = 0; d < numbers.size(); d++) {
      numbers[d] = forge::f16_to_f32(scales[d / 32]) * static_cast<float>(bytes[d]);
    }
  } else if (is_e4m3()) {
    const auto *const bytes = reinterpret_cast<const uint8_t *>(row);
    std::transform(bytes, bytes + numbers.size(), numbers.begin(), flash_attn::e4m3_to_float);
  } else {
    std::transform(row, row + numbers.size(), numbers.begin(),
                   [&](uint16_t bits) { return value(bits); });
  }
  return numbers;
}

float AttentionCase::descale(const std::vector<float> &factors, int32_t sequence,
                             int32_t kv_head) const {
  if (shape_.descale == 0) return 1;
  const int32_t at = shape_.descale == 2 ? 0 : sequence * shape_.kv_heads + kv_head;
  return factors[static_cast<size_t>(at)];
}

std::vector<float> AttentionCase::query_row(int32_t sequence, int32_t query, int32_t head) const {
  std::vector<float> numbers(static_cast<size_t>(shape_.head_dim));
  const uint16_t *const row = q_.data.get() + query_at(q_, sequence, query, head);
  for (size_t d = 0; d < numbers.size(); d++) {
    numbers[d] = is_e4m3() ? flash_attn::e4m3_of(row[d / 2], static_cast<int>(d % 2))
                           : value(row[d]);
  }
  return numbers;
}

int64_t AttentionCase::query_at(const Tensor &t, int32_t sequence, int32_t query,
                                int32_t head) const {
  const int64_t at = head * t.head_stride;
  if (packed_queries()) return (cu_q_[static_cast<size_t>(sequence)] + query) * t.row_stride + at;
  return sequence * t.batch_stride + query * t.row_stride + at;
}

float AttentionCase::value(uint16_t bits) const {
  return shape_.dtype == "f16" ? forge::f16_to_f32(bits) : forge::bf16_to_f32(bits);
}

float AttentionCase::rounded(float x) const {
  return value(shape_.dtype == "f16" ? forge::f32_to_f16(x) : forge::f32_to_bf16(x));
}

int64_t AttentionCase::mask_at(int32_t sequence, int32_t query, int32_t head, int32_t key) const {
  const int64_t unit = shape_.pitch != 0 ? mask_pitch_[0] : 1;
  const int64_t row = packed_queries()
                          ? (cu_q_[static_cast<size_t>(sequence)] + query) * params_.mask_row_stride
                          : sequence * params_.mask_batch_stride + query * params_.mask_row_stride;
  const int64_t at = (row + head * params_.mask_head_stride) * unit;
  return at + (shape_.mask == "bits" ? 0 : int64_t{key} * params_.mask_key_stride);
}

void AttentionCase::put_in_mask(int64_t at, int32_t key, float number) {
  const auto put = [&](auto element) {
    const size_t offset = static_cast<size_t>(at) * sizeof element;
    std::memcpy(mask_.data() + offset, &element, sizeof element);
  };
  if (shape_.mask == "f32") {
    put(number);
  } else if (shape_.mask == "as_dtype") {
    put(shape_.dtype == "f16" ? forge::f32_to_f16(number) : forge::f32_to_bf16(number));
  } else if (shape_.mask == "bytes") {
    put(static_cast<uint8_t>(number < 0 ? 0 : 1 + key % 255));
  } else {
    uint32_t word;
    const size_t word_at = (static_cast<size_t>(at) + static_cast<size_t>(key / 32)) * 4;
    std::memcpy(&word, mask_.data() + word_at, 4);
    const uint32_t bit = uint32_t{1} << key % 32;
    word = number < 0 ? word & ~bit : word | bit;
    std::memcpy(mask_.data() + word_at, &word, 4);
  }
}

float AttentionCase::mask_number(int32_t sequence, int32_t query, int32_t head,
                                 int32_t key) const {
  const auto at = static_cast<size_t>(mask_at(sequence, query, head, key));
  const auto element = [&]<class Element>(Element, size_t index) {
    Element read;
    std::memcpy(&read, mask_.data() + index * sizeof read, sizeof read);
    return read;
  };
  if (shape_.mask == "f32") return element(0.0f, at);
  if (shape_.mask == "as_dtype") return value(element(uint16_t{0}, at));
  if (shape_.mask == "bytes") return element(uint8_t{0}, at) != 0 ? 0 : -INFINITY;
  const uint32_t word = element(uint32_t{0}, at + static_cast<size_t>(key / 32));
  return (word >> key % 32 & 1) != 0 ? 0 : -INFINITY;
}

// A mask with half of the keys hidden, all keys of some rows, and runs of whole tiles of others;
// hidden by -infinity or by low numbers. It ends at the last entry, so that a sanitizer sees a
// read of one more; entries of no key are NaN.
void AttentionCase::make_mask() {
  const auto has = [&](char dimension) {
    return shape_.mask_of.find(dimension) != std::string::npos ? 1 : 0;
  };
  const bool bits = shape_.mask == "bits";
  const int64_t keys = longest(shape_.k), heads = has('h') != 0 ? shape_.heads : 1;
  const int64_t queries = packed_queries() ? cu_q_.back() : longest(shape_.q);
  const int64_t row = bits ? (keys + 31) / 32 : has('k') != 0 ? keys : 1;
  mask_pitch_ = {static_cast<int32_t>(std::max<int64_t>(row, 1))};
  const int64_t unit = shape_.pitch != 0 ? 1 : row;
  params_.mask_key_stride = bits ? 0 : has('k');
  params_.mask_head_stride = has('h') * unit;
  params_.mask_row_stride = has('q') * heads * unit;
  params_.mask_batch_stride = has('b') * (has('q') != 0 ? queries : 1) * heads * unit;
  const int64_t batches = packed_queries() || has('b') == 0 ? 1 : batch();
  const int64_t rows = batches * (has('q') != 0 ? queries : 1) * heads;
  const size_t bytes = shape_.mask == "bytes" ? 1 : shape_.mask == "as_dtype" ? 2 : 4;
  mask_.assign(static_cast<size_t>(rows * row) * bytes, 0xff);
  mask_.shrink_to_fit();
  std::mt19937 random(static_cast<uint32_t>(shape_.seed) + 5);
  std::normal_distribution<float> normal(0, 1);
  const bool is_f16 = shape_.mask == "as_dtype" && shape_.dtype == "f16";
  const float hidden_by[] = {-INFINITY, is_f16 ? -1000.0f : -3.4e38f, is_f16 ? -1000.0f : -1e31f};
  for (int32_t b = 0; b < batch(); b++) {
    for (int32_t i = 0; i < shape_.q[static_cast<size_t>(b)]; i++) {
      for (int32_t h = 0; h < shape_.heads; h++) {
        const uint32_t kind = random() % 8;
        const auto shown_from = static_cast<int32_t>(random() % 400);
        const float hidden = hidden_by[random() % 3];
        for (int32_t key = 0; key < shape_.k[static_cast<size_t>(b)]; key++) {
          const bool shows = kind == 0 ? false : kind == 1 ? key >= shown_from : random() % 2 == 0;
          put_in_mask(mask_at(b, i, h, key), key, shows ? std::fabs(normal(random)) : hidden);
        }
      }
    }
  }
}

void AttentionCase::fill() {
  std::mt19937 random(static_cast<uint32_t>(shape_.seed) * 7919u + 17u);
  std::normal_distribution<float> normal(0, 1);
  const bool f16 = shape_.dtype == "f16";
  const auto put = [&](Tensor &t, int64_t at, float spread) {
    for (int32_t d = 0; d < shape_.head_dim; d++) {
      const float x = normal(random) * spread;
      if (is_e4m3()) {
        auto *const bytes = reinterpret_cast<uint8_t *>(t.data.get() + at);
        bytes[d] = flash_attn::round_to_e4m3(x);
        continue;
      }
      t.data[static_cast<size_t>(at + d)] = f16 ? forge::f32_to_f16(x) : forge::f32_to_bf16(x);
    }
  };
  const auto put_q8 = [&](Tensor &t, int64_t at, int64_t scales, float spread) {
    auto *const bytes = reinterpret_cast<int8_t *>(t.data.get() + at);
    for (int32_t block = 0; block < shape_.head_dim / 32; block++) {
      // Blocks of different sizes, and now and then the largest and the smallest byte.
      const float scale = std::exp(normal(random)) * spread / 64;
      t.data[static_cast<size_t>(scales + block)] = forge::f32_to_f16(scale);
      for (int32_t d = 32 * block; d < 32 * block + 32; d++) {
        const float x = std::round(normal(random) * 48);
        bytes[d] = static_cast<int8_t>(std::clamp(x, -128.0f, 127.0f));
      }
    }
  };
  const auto put_stored = [&](Tensor &t, int32_t b, int32_t i, int32_t h, float spread) {
    const int64_t at = key_at(t, b, i, h);
    if (is_q8()) {
      put_q8(t, at, scale_at(t, b, i, h), spread);
    } else {
      put(t, at, spread);
    }
  };
  for (int32_t b = 0; b < batch(); b++) {
    for (int32_t i = 0; i < shape_.q[static_cast<size_t>(b)]; i++) {
      for (int32_t h = 0; h < shape_.heads; h++) put(q_, query_at(q_, b, i, h), shape_.spread);
    }
    if (b == shape_.nan_sequence) continue;
    for (int32_t i = 0; i < shape_.k[static_cast<size_t>(b)]; i++) {
      for (int32_t h = 0; h < shape_.kv_heads; h++) {
        put_stored(k_, b, i, h, shape_.spread);
        put_stored(v_, b, i, h, 1);
      }
    }
  }
  for (int32_t h = 0; h < shape_.heads; h++) sinks_.push_back(normal(random));
  for (std::vector<float> *const factors : {&q_descale_, &k_descale_, &v_descale_}) {
    for (int32_t i = 0; i < batch() * shape_.kv_heads; i++) {
      factors->push_back(std::exp(normal(random) / 2));
    }
  }
}

flash_attn_status AttentionCase::run() {
  flash_attn_params &p = params_;
  p.version = FLASH_ATTN_VERSION;
  p.dtype = shape_.dtype == "f16" ? FLASH_ATTN_F16 : FLASH_ATTN_BF16;
  if (shape_.causal != 0) p.flags |= FLASH_ATTN_CAUSAL;
  if (shape_.force_sm80 != 0) p.flags |= FLASH_ATTN_FORCE_SM80;
  if (shape_.no_split != 0) p.flags |= FLASH_ATTN_NO_SPLIT;
  if (shape_.early != 0) p.flags |= FLASH_ATTN_EARLY_KEYS;
  p.head_dim = shape_.head_dim;
  p.n_heads = shape_.heads;
  p.n_kv_heads = shape_.kv_heads;
  p.batch = batch();
  p.seqlen_q = longest(shape_.q);
  p.seqlen_k = longest(shape_.k);
  p.window_left = shape_.left;
  p.window_right = shape_.right;
  p.scale = shape_.scale > 0 ? shape_.scale : 1 / std::sqrt(static_cast<float>(shape_.head_dim));
  p.softcap = shape_.softcap;
  if (shape_.page > 0) {
    p.page_size = shape_.page;
    p.block_table = table_.data();
    p.block_table_stride = table_stride_;
    if (shape_.shuffled != 0) p.block_rows = block_rows_.data();
  }
  if (shape_.page > 0 || shape_.function == "decode") p.seqlens_k = seqlens_k_.data();
  if (packed_queries()) p.cu_seqlens_q = cu_q_.data();
  if (shape_.gap > 0) p.seqlens_q = seqlens_q_.data();
  if (packed_keys()) p.cu_seqlens_k = cu_k_.data();
  p.q = q_.data.get();
  // Without keys there need not be tensors of them.
  p.k = p.seqlen_k > 0 ? k_.data.get() : nullptr;
  p.v = p.seqlen_k > 0 ? v_.data.get() : nullptr;
  p.out = out_.data.get();
  p.lse = lse_.data();
  p.sinks = shape_.sinks != 0 ? sinks_.data() : nullptr;
  p.mask = has_mask() ? mask_.data() : nullptr;
  p.mask_pitch = shape_.pitch != 0 ? mask_pitch_.data() : nullptr;
  p.mask_type = shape_.mask == "f32"        ? FLASH_ATTN_MASK_F32
                : shape_.mask == "as_dtype" ? FLASH_ATTN_MASK_AS_DTYPE
                : shape_.mask == "bytes"    ? FLASH_ATTN_MASK_BYTES
                : shape_.mask == "bits"     ? FLASH_ATTN_MASK_BITS
                                            : FLASH_ATTN_MASK_NONE;
  p.q_batch_stride = q_.batch_stride;
  p.q_row_stride = q_.row_stride;
  p.q_head_stride = q_.head_stride;
  const int64_t step = shape_.kv == "as_q" ? 1 : 2;
  if (is_e4m3()) {
    p.kv_dtype = FLASH_ATTN_KV_E4M3;
    p.q_batch_stride *= 2;
    p.q_row_stride *= 2;
    p.q_head_stride *= 2;
    if (shape_.descale != 0) {
      p.q_descale = q_descale_.data();
      p.k_descale = k_descale_.data();
      p.v_descale = v_descale_.data();
    }
    p.descale_batch_stride = shape_.descale == 1 ? shape_.kv_heads : 0;
    p.descale_head_stride = shape_.descale == 1 ? 1 : 0;
  }
  p.k_batch_stride = k_.batch_stride * step;
  p.k_row_stride = k_.row_stride * step;
  p.k_head_stride = k_.head_stride * step;
  p.v_batch_stride = v_.batch_stride * step;
  p.v_row_stride = v_.row_stride * step;
  p.v_head_stride = v_.head_stride * step;
  if (is_q8()) {
    p.kv_dtype = FLASH_ATTN_KV_Q8_0;
    p.k_scales = p.k == nullptr ? nullptr : k_.data.get() + k_.scales;
    p.v_scales = p.v == nullptr ? nullptr : v_.data.get() + v_.scales;
  }
  p.out_batch_stride = out_.batch_stride;
  p.out_row_stride = out_.row_stride;
  p.out_head_stride = out_.head_stride;
  p.n_splits = shape_.splits;

  const uint32_t function = shape_.function == "fwd"      ? FLASH_ATTN_FWD
                            : shape_.function == "varlen" ? FLASH_ATTN_VARLEN_FWD
                                                          : FLASH_ATTN_DECODE;
  const auto integers = [](const int32_t *&member, const std::vector<int32_t> &list) {
    return CallArray{&member, list.size() * sizeof(int32_t), false};
  };
  const auto tensor = [](auto &member, const Tensor &of, bool is_result) {
    return CallArray{&member, static_cast<size_t>(of.elements) * sizeof(uint16_t), is_result};
  };
  const auto factors = [](const float *&member, const std::vector<float> &list) {
    return CallArray{&member, list.size() * sizeof(float), false};
  };
  const auto scales = [](auto &member, const Tensor &of) {
    const auto elements = static_cast<size_t>(of.elements - of.scales);
    return CallArray{&member, elements * sizeof(uint16_t), false};
  };
  return call_library(
      shape_, function, p,
      {tensor(p.q, q_, false), tensor(p.k, k_, false), tensor(p.v, v_, false),
       scales(p.k_scales, k_), scales(p.v_scales, v_), tensor(p.out, out_, true),
       {&p.lse, lse_.size() * sizeof(float), true},
       {&p.mask, mask_.size(), false}, integers(p.mask_pitch, mask_pitch_),
       factors(p.sinks, sinks_), factors(p.q_descale, q_descale_),
       factors(p.k_descale, k_descale_), factors(p.v_descale, v_descale_),
       integers(p.block_table, table_), integers(p.block_rows, block_rows_),
       integers(p.seqlens_k, seqlens_k_),
       integers(p.seqlens_q, seqlens_q_), integers(p.cu_seqlens_q, cu_q_),
       integers(p.cu_seqlens_k, cu_k_)});
}

}  // namespace flash_attn_test
