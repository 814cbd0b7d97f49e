// Products of float activations with weights of any type.
//
// The product of a weight row and a token is always summed in the same order, so that a token's
// results do not depend on its neighbours in the batch: the columns are taken in chunks of
// kMatmulChunk; inside a chunk, lane i of one vector of sums accumulates the columns equal to i
// modulo kLanes, in order; the lanes are added by the tree of sum4; chunks are added in order. Both
// paths below do exactly that. One token: weights are dequantised in registers and used once.
// Several tokens: a chunk of rows is dequantised into a tile in the second-level cache, and blocks
// of 4 rows by kTileTokens tokens are accumulated in registers.

#include "k_formats.h"
#include "kernels.h"
#include "vector_math.h"

namespace forge::cpu::FORGE_TARGET {

namespace {

// Types without blocks, in blocks of 16; the columns may end within one.
struct FormatF32 {
  static constexpr int kElements = 16;
  static constexpr int kBytes = 64;
  template <class Emit>
  FORGE_INLINE void unpack(const uint8_t* data, Emit emit) {
    Group group;
    for (int i = 0; i < Group::kVectors; ++i) {
      memcpy(&group.part[i], data + 4 * kLanes * i, sizeof(Vec));
    }
    emit(0, group);
  }
};

template <Vec (*load_half)(const uint8_t*)>
struct FormatHalf {
  static constexpr int kElements = 16;
  static constexpr int kBytes = 32;
  template <class Emit>
  FORGE_INLINE void unpack(const uint8_t* data, Emit emit) {
    Group group;
    for (int i = 0; i < Group::kVectors; ++i) group.part[i] = load_half(data + 2 * kLanes * i);
    emit(0, group);
  }
};
using FormatF16 = FormatHalf<load_f16>;
using FormatBF16 = FormatHalf<load_bf16>;

FORGE_INLINE uint64_t smaller(uint64_t a, uint64_t b) { return a < b ? a : b; }

// sums[4] += the products of four weight rows with x. Meanwhile the four rows that follow them in
// memory are fetched: short rows in turn are no pattern that the processor recognises by itself.
template <class Format>
void dot_four_rows(const uint8_t* const (&rows)[4], const uint8_t* next, const float* x,
                   uint64_t cols, float* sums) {
  for (uint64_t begin = 0; begin < cols; begin += kMatmulChunk) {
    const uint64_t end = smaller(begin + kMatmulChunk, cols);
    Vec acc[4] = {zero(), zero(), zero(), zero()};
    uint64_t k = begin;
    for (; k + Format::kElements <= end; k += Format::kElements) {
      const uint64_t at = k / Format::kElements * Format::kBytes;
      FORGE_UNROLL(16)
      for (int line = 0; line < 4 * Format::kBytes; line += 64) {
        __builtin_prefetch(next + 4 * at + line);
      }
      FORGE_UNROLL(4)
      for (int r = 0; r < 4; ++r) {
        Format::unpack(rows[r] + at, [&](int i, Group w) FORGE_INLINE_LAMBDA {
          acc[r] = dot(w, x + k + i, acc[r]);
        });
      }
    }
    if constexpr (Format::kElements == 16) {
      if (k < end) {
        constexpr uint64_t element = Format::kBytes / 16;
        float x_tail[16] = {};
        memcpy(x_tail, x + k, (end - k) * sizeof(float));
        FORGE_UNROLL(4)
        for (int r = 0; r < 4; ++r) {
          uint8_t tail[Format::kBytes] = {};
          memcpy(tail, rows[r] + k * element, (end - k) * element);
          Format::unpack(tail, [&](int, Group w) FORGE_INLINE_LAMBDA {
            acc[r] = dot(w, x_tail, acc[r]);
          });
        }
      }
    }
    sum4(acc[0], acc[1], acc[2], acc[3], sums);
  }
}

template <class Format>
void dot_rows(const MatmulBlock& block, const float* x, float* sums) {
  for (uint32_t r = 0; r < block.n_rows; r += 4) {
    const uint8_t* rows[4];
    // Past the last row, the last one again: its sums are not used.
    for (uint32_t i = 0; i < 4; ++i) {
      rows[i] = block.weights + smaller(r + i, block.n_rows - 1) * block.row_bytes;
    }
    const uint8_t* next = block.weights + (r + 4) * block.row_bytes;
    dot_four_rows<Format>(rows, next, x, block.cols, sums + r);
  }
}

// Columns [begin, end) of a row as floats, filled up with zeros to a multiple of 16.
template <class Format>
void dequantize_row(const uint8_t* row, uint64_t begin, uint64_t end, float* out) {
  uint64_t k = begin;
  for (; k + Format::kElements <= end; k += Format::kElements) {
    Format::unpack(row + k / Format::kElements * Format::kBytes,
                   [&](int i, Group w) FORGE_INLINE_LAMBDA { store(out + k - begin + i, w); });
  }
  if constexpr (Format::kElements == 16) {
    if (k < end) {
      constexpr uint64_t element = Format::kBytes / 16;
      uint8_t tail[Format::kBytes] = {};
      memcpy(tail, row + k * element, (end - k) * element);
      Format::unpack(tail,
                     [&](int, Group w) FORGE_INLINE_LAMBDA { store(out + k - begin, w); });
    }
  }
}

struct FormatKernels {
  void (*dot_rows)(const MatmulBlock& block, const float* x, float* sums);
  void (*dequantize_row)(const uint8_t* row, uint64_t begin, uint64_t end, float* out);
};

// Null members for the types that only common/quant dequantises.
FormatKernels kernels_of(WeightType type) {
  switch (type) {
#define FORGE_FORMAT(name) \
  case WeightType::name: return {dot_rows<Format##name>, dequantize_row<Format##name>};
    FORGE_FORMAT(F32)
    FORGE_FORMAT(F16)
    FORGE_FORMAT(BF16)
    FORGE_FORMAT(Q4_0)
    FORGE_FORMAT(Q4_1)
    FORGE_FORMAT(Q5_0)
    FORGE_FORMAT(Q5_1)
    FORGE_FORMAT(Q8_0)
    FORGE_FORMAT(Q2_K)
    FORGE_FORMAT(Q3_K)
    FORGE_FORMAT(Q4_K)
    FORGE_FORMAT(Q5_K)
    FORGE_FORMAT(Q6_K)
    FORGE_FORMAT(IQ4_NL)
    FORGE_FORMAT(IQ4_XS)
    FORGE_FORMAT(MXFP4)
#undef FORGE_FORMAT
    default: return {nullptr, nullptr};
  }
}

// sums[token][4] += the products of four dequantised rows, `stride` apart, with some tokens.
template <int n_tokens>
void multiply_tile(const float* rows, uint64_t stride, const MatmulToken* tokens,
                   uint64_t first_col, uint64_t n, float* sums) {
  const float* x[n_tokens];
  for (int t = 0; t < n_tokens; ++t) x[t] = tokens[t].x + first_col;
  Vec acc[n_tokens][4];
  for (int t = 0; t < n_tokens; ++t) {
    for (int r = 0; r < 4; ++r) acc[t][r] = zero();
  }
  const auto step = [&](uint64_t k, const float* const* x_at, uint64_t x_k) FORGE_INLINE_LAMBDA {
    Vec w[4];
    FORGE_UNROLL(4)
    for (int r = 0; r < 4; ++r) w[r] = load(rows + r * stride + k);
    FORGE_UNROLL(8)
    for (int t = 0; t < n_tokens; ++t) {
      const Vec a = load(x_at[t] + x_k);
      FORGE_UNROLL(4)
      for (int r = 0; r < 4; ++r) acc[t][r] = fma(w[r], a, acc[t][r]);
    }
  };
  uint64_t k = 0;
  for (; k + 16 <= n; k += 16) {
    for (int i = 0; i < 16; i += kLanes) step(k + i, x, k + i);
  }
  if (k < n) {
    float tail[n_tokens][16] = {};
    const float* x_tail[n_tokens];
    for (int t = 0; t < n_tokens; ++t) {
      memcpy(tail[t], x[t] + k, (n - k) * sizeof(float));
      x_tail[t] = tail[t];
    }
    for (int i = 0; i < 16; i += kLanes) step(k + i, x_tail, i);
  }
  for (int t = 0; t < n_tokens; ++t) {
    sum4(acc[t][0], acc[t][1], acc[t][2], acc[t][3], sums + t * kMatmulRows);
  }
}

void multiply_tokens(const float* rows, uint64_t stride, const MatmulBlock& block, uint32_t token,
                     uint64_t first_col, uint64_t n, float* sums) {
  const uint32_t left = block.n_tokens - token;
  const MatmulToken* tokens = block.tokens + token;
  for (uint32_t r = 0; r < block.n_rows; r += 4) {
    const float* four = rows + r * stride;
    float* to = sums + token * kMatmulRows + r;
    switch (left < kTileTokens ? left : kTileTokens) {
      case 1: multiply_tile<1>(four, stride, tokens, first_col, n, to); break;
      case 2: multiply_tile<2>(four, stride, tokens, first_col, n, to); break;
#define FORGE_TILE(count)                                                    \
  case count:                                                                \
    if constexpr (count <= kTileTokens) {                                    \
      multiply_tile<count>(four, stride, tokens, first_col, n, to);          \
    }                                                                        \
    break;
      FORGE_TILE(3)
      FORGE_TILE(4)
      FORGE_TILE(5)
      FORGE_TILE(6)
#undef FORGE_TILE
      default: break;
    }
  }
}

void multiply_block(const MatmulBlock& block, const FormatKernels& format, float* tile,
                    float* sums) {
  const uint32_t padded_rows = (block.n_rows + 3) / 4 * 4;
  for (uint64_t begin = 0; begin < block.cols; begin += kMatmulChunk) {
    const uint64_t n = smaller(kMatmulChunk, block.cols - begin);
    const uint64_t stride = (n + 15) / 16 * 16;
    for (uint32_t r = 0; r < padded_rows; ++r) {
      float* out = tile + r * stride;
      const uint8_t* row = block.weights + r * block.row_bytes;
      if (r >= block.n_rows) {
        memset(out, 0, stride * sizeof(float));
      } else if (format.dequantize_row) {
        format.dequantize_row(row, begin, begin + n, out);
      } else {
        // Types of this kind have blocks that divide 256, and with it the chunk.
        block.dequantize(row + block.row_bytes * begin / block.cols, out, n);
      }
    }
    for (uint32_t t = 0; t < block.n_tokens; t += kTileTokens) {
      multiply_tokens(tile, stride, block, t, begin, n, sums);
    }
  }
}

void finish(const MatmulBlock& block, const MatmulToken& token, const float* sums) {
  float* out = token.out + block.first_row;
  const float* residual = token.residual ? token.residual + block.first_row : nullptr;
  const float* bias = block.bias ? block.bias + block.first_row : nullptr;
  const Vec alpha = set(block.alpha);
  for (uint32_t r = 0; r < block.n_rows; r += kLanes) {
    const int n = static_cast<int>(smaller(kLanes, block.n_rows - r));
    Vec value = load(sums + r);
    if (bias) value = value + load_n(bias + r, n);
    value = activate(block.activation, value);
    value = residual ? fma(value, alpha, load_n(residual + r, n)) : value * alpha;
    store_n(out + r, value, n);
  }
}

}  // namespace

void matmul(const MatmulBlock& block, float* scratch) {
  float* sums = scratch + kMatmulRows * kMatmulChunk;
  memset(sums, 0, block.n_tokens * kMatmulRows * sizeof(float));
  const FormatKernels format = kernels_of(block.type);
  if (block.n_tokens == 1 && format.dot_rows) {
    format.dot_rows(block, block.tokens[0].x, sums);
  } else {
    multiply_block(block, format, scratch, sums);
  }
  for (uint32_t t = 0; t < block.n_tokens; ++t) {
    finish(block, block.tokens[t], sums + t * kMatmulRows);
  }
}

}  // namespace forge::cpu::FORGE_TARGET
