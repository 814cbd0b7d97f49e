#include "caches.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "../common/error.h"
#include "../common/float16.h"

namespace forge::cpu {

namespace {

// Kernels read whole vectors, which may extend past the end of the last head.
constexpr uint64_t kSlack = 256;

// The widest head that forge_kv_create accepts.
constexpr uint32_t kMostDims = 4096;
constexpr uint32_t kMostBlocks = kMostDims / kKvBlock;

uint32_t blocks(uint32_t head_dim) { return (head_dim + kKvBlock - 1) / kKvBlock; }

uint64_t element_bytes(WeightType type) {
  switch (type) {
    case WeightType::F32: return 4;
    case WeightType::F16:
    case WeightType::BF16: return 2;
    case WeightType::Q8_0:
    case WeightType::Q4_0: return 1;  // two in Q4_0
    default:
      fail(FORGE_UNSUPPORTED, "KV cache type ", static_cast<uint32_t>(type),
           " is not supported by the CPU device; valid are F32 (0), F16 (1), BF16 (30), "
           "Q8_0 (8) and Q4_0 (2)");
  }
}

// Rounds up to whole cache lines, so that heads begin at cache lines.
uint64_t whole_lines(uint64_t bytes) { return (bytes + 63) / 64 * 64; }

void to_bf16(const float* from, uint32_t n, uint8_t* to) {
  for (uint32_t i = 0; i < n; ++i) {
    const uint16_t brain = f32_to_bf16(from[i]);
    std::memcpy(to + 2 * i, &brain, sizeof brain);
  }
}

// Two levels from -8 to 7 in a byte.
uint8_t nibbles(int low, int high) { return static_cast<uint8_t>((low + 8) | (high + 8) << 4); }

// Writes `n` elements `stride` elements apart.
template <class Element>
void scatter(const void* from, uint32_t n, uint32_t stride, uint8_t* to) {
  const auto* values = static_cast<const uint8_t*>(from);
  for (uint32_t i = 0; i < n; ++i) {
    std::memcpy(to + i * uint64_t{stride} * sizeof(Element), values + i * sizeof(Element),
                sizeof(Element));
  }
}

uint64_t n_panels(uint32_t cols) { return (uint64_t{cols} + kStateColumns - 1) / kStateColumns; }

}  // namespace

CpuKv::CpuKv(const KvShape& cache_shape, CpuDevice& device)
    : kernels_(device.kernels), element_bytes_(element_bytes(cache_shape.type)) {
  shape = cache_shape;
  const uint64_t tokens = shape.page_tokens;
  const uint32_t k_dim = shape.values_in_keys ? 0 : shape.k_head_dim;
  k_bytes_ = tokens * k_dim * element_bytes_;
  v_bytes_ = tokens * row_dim() * element_bytes_;
  if (shape.type == WeightType::Q4_0) {
    k_bytes_ = tokens * ((k_dim + 1) / 2);
    v_bytes_ = tokens * q4_row_bytes(row_dim());
  }
  if (shape.has_scales()) {
    k_scale_bytes_ = tokens * blocks(k_dim) * 2;
    v_scale_bytes_ = tokens * blocks(row_dim()) * 2;
  }
  head_bytes_ = whole_lines(k_bytes_ + k_scale_bytes_ + v_bytes_ + v_scale_bytes_);
  page_bytes = head_bytes_ * shape.n_kv_heads;
  if (page_bytes > (UINT64_MAX >> 1) / shape.n_pages) {
    fail(FORGE_OUT_OF_MEMORY, "a KV cache of ", shape.n_pages, " pages of ", page_bytes, " bytes");
  }
  const ThreadPool& pool = device.pool;
  for (uint32_t node = 0; node < pool.n_nodes(); ++node) {
    const auto first = static_cast<uint32_t>(pool.first_of(node, shape.n_kv_heads));
    const auto end = static_cast<uint32_t>(pool.first_of(node + 1, shape.n_kv_heads));
    const uint64_t bytes = (end - first) * head_bytes_;
    nodes_.push_back({first, end, bytes, Memory(bytes * shape.n_pages + kSlack)});
  }
  is_placed_.resize(shape.n_pages);
  taken_ = device.memory->take(page_bytes * shape.n_pages);
}

void CpuKv::place(std::span<const uint32_t> pages, ThreadPool& pool) {
  std::vector<uint32_t> missing;
  for (const uint32_t page : pages) {
    if (!is_placed_[page]) missing.push_back(page);
    is_placed_[page] = true;
  }
  if (missing.empty()) return;
  std::vector<uint32_t> ends(nodes_.size());
  std::iota(ends.begin(), ends.end(), 1);
  pool.run_at_home(ends, [&](uint32_t node, uint32_t) {
    for (const uint32_t page : missing) {
      std::memset(nodes_[node].page(page), 0, nodes_[node].page_bytes);
    }
  });
}

uint32_t CpuKv::node_of(uint32_t kv_head) const {
  uint32_t node = 0;
  while (kv_head >= nodes_[node].end_head) ++node;
  return node;
}

KvHead CpuKv::head(uint32_t kv_head) const {
  const NodeHeads& node = nodes_[node_of(kv_head)];
  const uint8_t* k = node.memory.data() + (kv_head - node.first_head) * head_bytes_;
  const uint8_t* v = k + k_bytes_ + k_scale_bytes_;
  return {k, k + k_bytes_, v, v + v_bytes_, node.page_bytes};
}

void CpuKv::store(uint32_t page_index, uint32_t slot, const float* k, const float* v) {
  for (const NodeHeads& node : nodes_) {
    uint8_t* head = node.page(page_index);
    for (uint32_t i = node.first_head; i < node.end_head; ++i, head += head_bytes_) {
      const float* keys = k + uint64_t{i} * shape.k_head_dim;
      if (shape.values_in_keys) {
        store_row(head, slot, keys);
      } else {
        store_k(head, slot, keys);
        store_row(head + k_bytes_ + k_scale_bytes_, slot, v + uint64_t{i} * shape.v_head_dim);
      }
    }
  }
}

void CpuKv::read_keys(uint32_t page_index, uint32_t slot, float* k) const {
  const uint32_t n = shape.k_head_dim;
  for (uint32_t head = 0; head < shape.n_kv_heads; ++head, k += n) {
    const NodeHeads& node = nodes_[node_of(head)];
    const uint8_t* row = node.page(page_index) + (head - node.first_head) * head_bytes_ +
                         slot * n * element_bytes_;
    if (shape.type == WeightType::F32) {
      std::memcpy(k, row, n * sizeof(float));
      continue;
    }
    for (uint32_t i = 0; i < n; ++i) {
      uint16_t half;
      std::memcpy(&half, row + 2 * i, sizeof half);
      k[i] = shape.type == WeightType::BF16 ? bf16_to_f32(half) : f16_to_f32(half);
    }
  }
}

void CpuKv::store_k(uint8_t* keys, uint32_t slot, const float* k) {
  const uint32_t n = shape.k_head_dim;
  uint8_t* to = keys + slot * element_bytes_;
  if (shape.type == WeightType::F32) {
    scatter<float>(k, n, shape.page_tokens, to);
  } else if (element_bytes_ == 2) {
    uint8_t half[2 * kMostDims];
    to_half(k, n, half);
    scatter<uint16_t>(half, n, shape.page_tokens, to);
  } else {
    int8_t levels[kMostDims + 1];
    uint8_t scales[2 * kMostBlocks];
    if (shape.type == WeightType::Q8_0) {
      kernels_.to_q8(k, n, levels, scales);
      scatter<int8_t>(levels, n, shape.page_tokens, to);
    } else {
      kernels_.to_q4(k, n, levels, scales);
      levels[n] = 0;
      for (uint32_t i = 0; i < n; i += 2) {
        to[uint64_t{i} / 2 * shape.page_tokens] = nibbles(levels[i], levels[i + 1]);
      }
    }
    scatter<uint16_t>(scales, blocks(n), shape.page_tokens, keys + k_bytes_ + 2 * slot);
  }
}

void CpuKv::store_row(uint8_t* rows, uint32_t slot, const float* x) {
  const uint32_t n = row_dim();
  uint8_t* to = rows + uint64_t{slot} * n * element_bytes_;
  if (shape.type == WeightType::F32) {
    std::memcpy(to, x, n * sizeof(float));
  } else if (element_bytes_ == 2) {
    to_half(x, n, to);
  } else if (shape.type == WeightType::Q8_0) {
    kernels_.to_q8(x, n, reinterpret_cast<int8_t*>(to), rows + v_bytes_ + 2 * slot * blocks(n));
  } else {
    int8_t levels[kMostDims + kKvBlock] = {};
    kernels_.to_q4(x, n, levels, rows + v_bytes_ + 2 * slot * blocks(n));
    constexpr uint32_t kHalf = kKvBlock / 2;
    to = rows + uint64_t{slot} * q4_row_bytes(n);
    for (uint32_t i = 0; i < q4_row_bytes(n); ++i) {
      const int8_t* level = levels + i / kHalf * kKvBlock + i % kHalf;
      to[i] = nibbles(level[0], level[kHalf]);
    }
  }
}

void CpuKv::to_half(const float* from, uint32_t n, uint8_t* to) const {
  if (shape.type == WeightType::BF16) {
    to_bf16(from, n, to);
  } else {
    kernels_.to_f16(from, n, to);
  }
}

void CpuKv::copy(uint32_t from, uint32_t to) {
  is_placed_[to] = true;
  for (const NodeHeads& node : nodes_) {
    std::memcpy(node.page(to), node.page(from), node.page_bytes);
  }
}

void CpuKv::read(uint32_t index, uint8_t* data) const {
  for (const NodeHeads& node : nodes_) {
    std::memcpy(data, node.page(index), node.page_bytes);
    data += node.page_bytes;
  }
}

void CpuKv::write(uint32_t index, const uint8_t* data) {
  is_placed_[index] = true;
  for (const NodeHeads& node : nodes_) {
    std::memcpy(node.page(index), data, node.page_bytes);
    data += node.page_bytes;
  }
}

CpuState::CpuState(const StateShape& cache_shape, MemoryBound& memory) {
  shape = cache_shape;
  slot_bytes = n_panels(shape.cols) * kStateColumns * shape.rows * sizeof(float);
  memory_ = Memory(slot_bytes * shape.n_slots);
  taken_ = memory.take(memory_.bytes());
}

float* CpuState::slot(uint32_t index) const {
  return reinterpret_cast<float*>(memory_.data() + index * slot_bytes);
}

void CpuState::copy(uint32_t from, uint32_t to) {
  std::memcpy(slot(to), slot(from), slot_bytes);
}

void CpuState::read(uint32_t index, uint8_t* data) const {
  std::memcpy(data, slot(index), slot_bytes);
}

void CpuState::write(uint32_t index, const uint8_t* data) {
  std::memcpy(slot(index), data, slot_bytes);
}

void CpuState::read_rows(uint32_t index, float* rows) const {
  const float* panel = slot(index);
  for (uint64_t column = 0; column < shape.cols; column += kStateColumns) {
    const uint64_t n = std::min<uint64_t>(kStateColumns, shape.cols - column);
    for (uint32_t row = 0; row < shape.rows; ++row, panel += kStateColumns) {
      std::memcpy(rows + row * uint64_t{shape.cols} + column, panel, n * sizeof(float));
    }
  }
}

void CpuState::write_row(uint32_t index, uint32_t row, const float* values) {
  float* at = slot(index) + row * kStateColumns;
  for (uint64_t column = 0; column < shape.cols; column += kStateColumns) {
    const uint64_t n = std::min<uint64_t>(kStateColumns, shape.cols - column);
    std::memcpy(at, values + column, n * sizeof(float));
    at += uint64_t{shape.rows} * kStateColumns;
  }
}

}  // namespace forge::cpu
