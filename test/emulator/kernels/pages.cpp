#include "pages.h"

#include <algorithm>
#include <bit>

namespace kernel_test {

namespace {

u32 padded(u32 bytes) { return (bytes + 15) / 16 * 16; }

u32 longest(const std::vector<u32>& lengths) {
  return *std::max_element(lengths.begin(), lengths.end());
}

}  // namespace

Pages::Pages(const KvType& type, u32 n_pages, u32 page_tokens, u32 n_kv_heads, u32 k_dim, u32 v_dim,
             bool values_in_keys)
    : cache{}, data(0), type_(type) {
  const auto scale_bytes = [&](u32 dim) {
    return is_scaled(type) ? padded(page_tokens * ((dim + 31) / 32) * 2) : 0;
  };
  cache.page_tokens = page_tokens;
  cache.n_kv_heads = n_kv_heads;
  cache.k_dim = k_dim;
  cache.v_dim = v_dim;
  cache.k_scales = padded(page_tokens * row_bytes(type, k_dim));
  cache.v_offset = cache.k_scales + scale_bytes(k_dim);
  cache.v_scales = cache.v_offset + padded(page_tokens * row_bytes(type, v_dim));
  cache.head_bytes = cache.v_scales + scale_bytes(v_dim);
  if (values_in_keys) {
    cache.values_in_keys = 1;
    cache.head_bytes = cache.v_offset;
    cache.v_offset = 0;
    cache.v_scales = cache.k_scales;
  }
  cache.page_bytes = u64(n_kv_heads) * cache.head_bytes;
  if (FarPages::stride > 0) {
    cache.page_bytes = FarPages::stride;
    data.~Buffer();
    new (&data) Buffer<u8>(Buffer<u8>::sparse(n_pages * cache.page_bytes));
    cache.data = data.data();
    return;
  }
  data.~Buffer();
  new (&data) Buffer<u8>(n_pages * cache.page_bytes);
  cache.data = data.data();
}

double Pages::number(u64 rows, u64 scales, u32 dim, u32 slot, u32 i) const {
  const u8* row = data.data() + rows + u64(slot) * row_bytes(type_, dim);
  const u8* at = row + u64(i) * type_.bits / 8;
  if (type_.bits == 32) {
    float value;
    std::memcpy(&value, at, 4);
    return value;
  }
  u16 bits;
  if (type_.bits == 16) {
    std::memcpy(&bits, at, 2);
    return type_.name[0] == 'f' ? forge::f16_to_f32(bits) : forge::bf16_to_f32(bits);
  }
  std::memcpy(&bits, data.data() + scales + (u64(slot) * ((dim + 31) / 32) + i / 32) * 2, 2);
  const double scale = forge::f16_to_f32(bits);
  if (type_.bits == 8) return scale * static_cast<signed char>(*at);
  // Of eight numbers, the even ones are in the first two bytes.
  const u32 pair = row[i / 8 * 4 + i % 2 * 2 + i % 8 / 4];
  return scale * (static_cast<int>(i % 4 < 2 ? pair % 16 : pair / 16) - 8);
}

double Pages::k(u32 page, u32 slot, u32 head, u32 i) const {
  const u64 at = head_at(page, head);
  return number(at, at + cache.k_scales, cache.k_dim, slot, i);
}

double Pages::v(u32 page, u32 slot, u32 head, u32 i) const {
  if (cache.values_in_keys != 0) return k(page, slot, head, i);
  const u64 at = head_at(page, head);
  return number(at + cache.v_offset, at + cache.v_scales, cache.v_dim, slot, i);
}

void Pages::fill_part(Random& random, u64 rows, u64 scales, u32 dim) {
  for (u32 slot = 0; slot < cache.page_tokens; ++slot) {
    u8* row = data.data() + rows + u64(slot) * row_bytes(type_, dim);
    for (u32 i = 0; type_.bits > 4 && i < dim; ++i) {
      u8* at = row + u64(i) * type_.bits / 8;
      const float value = random.normal();
      const u16 bits = type_.name[0] == 'f' ? forge::f32_to_f16(value) : forge::f32_to_bf16(value);
      if (type_.bits == 32) std::memcpy(at, &value, 4);
      if (type_.bits == 16) std::memcpy(at, &bits, 2);
      if (type_.bits == 8) *at = static_cast<u8>(random.below(255) - 127);
    }
    for (u32 i = 0; type_.bits == 4 && i < row_bytes(type_, dim); ++i) {
      row[i] = static_cast<u8>(random.below(256));
    }
    for (u32 group = 0; is_scaled(type_) && group < (dim + 31) / 32; ++group) {
      const float scale = 0.004f + 0.02f * std::abs(random.number());
      const u16 bits = forge::f32_to_f16(type_.bits == 4 ? 16 * scale : scale);
      std::memcpy(data.data() + scales + (u64(slot) * ((dim + 31) / 32) + group) * 2, &bits, 2);
    }
  }
}

void Pages::fill(Random& random) {
  const u64 n_pages = data.size() / cache.page_bytes;
  for (u32 i = 0; i < n_pages * cache.n_kv_heads; ++i) {
    const u64 at = head_at(i / cache.n_kv_heads, i % cache.n_kv_heads);
    fill_part(random, at, at + cache.k_scales, cache.k_dim);
    if (cache.values_in_keys != 0) continue;
    fill_part(random, at + cache.v_offset, at + cache.v_scales, cache.v_dim);
  }
}

void Pages::spoil(u32 page, u32 slot) {
  const auto spoil_row = [&](u64 rows, u64 scales, u32 dim) {
    const u64 bytes = row_bytes(type_, dim);
    std::memset(data.data() + rows + slot * bytes, 0xff, bytes);
    const u64 groups = is_scaled(type_) ? (dim + 31) / 32 : 0;
    std::memset(data.data() + scales + slot * groups * 2, 0xff, groups * 2);
  };
  for (u32 head = 0; head < cache.n_kv_heads; ++head) {
    const u64 at = head_at(page, head);
    spoil_row(at, at + cache.k_scales, cache.k_dim);
    if (cache.values_in_keys != 0) continue;
    spoil_row(at + cache.v_offset, at + cache.v_scales, cache.v_dim);
  }
}

void Pages::spoil_after(const Sequences& sequences, const std::vector<u32>& lengths) {
  for (u32 s = 0; s < lengths.size(); ++s) {
    for (u32 at = lengths[s]; at % cache.page_tokens != 0; ++at) {
      spoil(sequences.page(s, at, cache.page_tokens), at % cache.page_tokens);
    }
  }
}

Sequences::Sequences(Random& random, const std::vector<u32>& lengths, u32 page_tokens)
    : n_pages(0),
      page_stride((longest(lengths) + page_tokens - 1) / page_tokens + 1),
      page_tables(lengths.size() * page_stride) {
  for (size_t s = 0; s < lengths.size(); ++s) {
    for (u32 p = 0; p < (lengths[s] + page_tokens - 1) / page_tokens; ++p) {
      page_tables[s * page_stride + p] = static_cast<i32>(n_pages++);
    }
  }
  // Entries beyond a sequence's pages stay 0xff, which reveals a kernel that uses one.
  std::vector<i32> order(n_pages);
  for (u32 i = 0; i < n_pages; ++i) order[i] = static_cast<i32>(i);
  for (u32 i = n_pages; i > 1; --i) std::swap(order[i - 1], order[random.below(i)]);
  for (i32& page : page_tables) {
    if (page >= 0) page = order[static_cast<size_t>(page)];
  }
}

Buffer<u32> random_mask(Random& random, u32 rows, u32 stride, bool bits) {
  Buffer<u32> mask(u64(rows) * stride);
  for (u32 i = 0; i < mask.size(); ++i) {
    const u32 word = static_cast<u32>(random.next());
    const float bias = random.below(2) ? -INFINITY : static_cast<float>(random.normal());
    if (bits) mask[i] = i < stride ? 0 : word;
    else mask[i] = std::bit_cast<u32>(i < stride ? -INFINITY : bias);
  }
  return mask;
}

std::vector<double> plain_attention(const Pages& pages, const Sequences& sequences, u32 sequence,
                                    u32 position, u32 head, const float* q,
                                    const AttentionShape& shape, u32 n_keys) {
  const KvCache& kv = pages.cache;
  const u32 kv_head = head / (shape.n_heads / kv.n_kv_heads);
  const u64 first = shape.window > 0 && position >= shape.window ? position - shape.window + 1 : 0;
  // Without causality a window reaches as far ahead as back.
  const u64 ahead = shape.window > 0 ? u64{position} + shape.window : n_keys;
  const u64 end = n_keys > 0 ? std::min<u64>(ahead, n_keys) : u64{position} + 1;
  std::vector<double> scores;
  double largest = shape.sinks ? shape.sinks[head] : -INFINITY;
  for (u32 p = static_cast<u32>(first); p < end; ++p) {
    const u32 page = sequences.page(sequence, p, kv.page_tokens);
    double score = 0;
    for (u32 i = 0; i < kv.k_dim; ++i)
      score += q[i] * pages.k(page, p % kv.page_tokens, kv_head, i);
    score *= shape.scale;
    if (shape.softcap > 0) score = shape.softcap * std::tanh(score / shape.softcap);
    if (shape.mask && (shape.mask[p / 32] >> p % 32 & 1) == 0) score = -INFINITY;
    if (shape.bias) score += shape.bias[p];
    scores.push_back(score);
    largest = std::max(largest, score);
  }
  double total = shape.sinks ? std::exp(shape.sinks[head] - largest) : 0;
  std::vector<double> out(kv.v_dim, 0.0);
  if (std::isinf(largest)) return out;
  for (u32 p = static_cast<u32>(first); p < end; ++p) {
    const double weight = std::exp(scores[p - first] - largest);
    const u32 page = sequences.page(sequence, p, kv.page_tokens);
    total += weight;
    for (u32 i = 0; i < kv.v_dim; ++i) {
      out[i] += weight * pages.v(page, p % kv.page_tokens, kv_head, i);
    }
  }
  for (double& value : out) value /= total;
  return out;
}

}  // namespace kernel_test
