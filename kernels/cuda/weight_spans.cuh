#pragma once

// Weights in shared memory, as weight_ring.cuh copies them: the stages of a ring.
//
// A stage has the same columns of 16 rows: 64 of weights of 16 bits, 128 of others. WeightSpans<F>
// has
//   kStageCols, kStagesOfSpan   columns of a stage, and stages of a span of 128 columns
//   kRowBytes                   of a stage
//   Copies                      begin(row_at) finds the rows that a lane copies, row_at(i) being
//                               where row i begins, in 16 bytes from the weight's first row, at
//                               `rows`; copy(to, rows, cols, stage) copies a stage of them
//   chunk(from, row, c, stage)  chunk c of a row of a stage, as F::load reads it from memory
//
// Each plane of a format is a plane of the stage. Lanes that an access serves at once read all
// banks: rows of 128 bytes have their halves swapped in every other row.

#include "formats.cuh"
#include "warp.cuh"

constexpr u32 kSpanCols = 128;
// Slices of a part of a row's columns (Tiling).
constexpr u32 kPartSlices = 4;

template <class F>
struct WeightSpans;

// The first stage of a slice, of kPartSlices * parts slices of a row.
template <class F>
DEVICE u32 first_stage(u32 slice, u32 cols, u32 parts) {
  using Spans = WeightSpans<F>;
  const u32 spans = (cols + kSpanCols - 1) / kSpanCols;
  const u32 span = slice * spans / (kPartSlices * parts);
  return min(span * Spans::kStagesOfSpan, (cols + Spans::kStageCols - 1) / Spans::kStageCols);
}

// A plane of a stage: `row_bytes` bytes of each of 16 rows, copied in pieces of `width` bytes. A
// lane copies the same piece of each of its rows.
template <u32 row_bytes, u32 width = row_bytes < 16 ? row_bytes : 16>
struct Plane {
  static constexpr u32 kBytes = 16 * row_bytes, kPieces = row_bytes / width;
  static constexpr u32 kCopies = 16 * kPieces < kWarp ? 1 : 16 * kPieces / kWarp;  // of a lane

  u32 starts[kCopies];  // of this lane's rows; addresses would take two registers

  template <class RowAt>
  DEVICE_MEMBER void begin(RowAt row_at) {
#pragma unroll
    for (u32 i = 0; i < kCopies; ++i) starts[i] = row_at(row(i));
  }

  // Copies the plane from `offset` bytes after the start of each row, except for pieces from
  // number n_pieces on.
  DEVICE_MEMBER void copy(u8* to, const u8* rows, u64 offset, u32 n_pieces = kPieces) const {
    const u32 piece = lane_id() % kPieces;
    if (lane_id() >= 16 * kPieces || piece >= n_pieces) return;
#pragma unroll
    for (u32 i = 0; i < kCopies; ++i) {
      const u8* from = rows + u64(starts[i]) * 16 + offset + piece * width;
      copy_async<width>(to + place(row(i), piece), from);
    }
  }

  // Place of a piece of a row in the plane.
  static DEVICE_MEMBER u32 place(u32 row, u32 piece) {
    const u32 swapped = row_bytes == 128 ? piece ^ row % 2 * (kPieces / 2) : piece;
    return row * row_bytes + swapped * width;
  }

 private:
  static DEVICE_MEMBER u32 row(u32 i) {
    return (i * (kWarp / kPieces) + lane_id() / kPieces) % 16;
  }
};

template <class Value>
DEVICE Value shared_value(const u8* p) {
  return *reinterpret_cast<const Value*>(p);
}

template <class Half>
struct WeightSpans<FormatHalf<Half>> {
  static constexpr u32 kStageCols = 64, kStagesOfSpan = 2;
  using Quants = Plane<128>;
  static constexpr u32 kRowBytes = 128;
  struct Copies {
    Quants quants;
    template <class RowAt>
    DEVICE_MEMBER void begin(RowAt row_at) {
      quants.begin(row_at);
    }
    DEVICE_MEMBER void copy(u8* to, const u8* rows, u32 cols, u32 stage) const {
      quants.copy(to, rows, u64(stage) * 128, (cols - stage * kStageCols + 7) / 8);
    }
  };
  static DEVICE_MEMBER typename FormatHalf<Half>::Chunk chunk(const u8* from, u32 row, u32 c, u32) {
    return {shared_value<uint4>(from + Quants::place(row, c))};
  }
};

// Quants of a byte, and a scale of `Scale` for 32 of them.
template <class F, class Scale>
struct ByteSpans {
  static constexpr u32 kStageCols = 128, kStagesOfSpan = 1;
  using Quants = Plane<128>;
  using Scales = Plane<4 * sizeof(Scale)>;
  static constexpr u32 kRowBytes = 128 + 4 * sizeof(Scale);
  struct Copies {
    Quants quants;
    Scales scales;
    template <class RowAt>
    DEVICE_MEMBER void begin(RowAt row_at) {
      quants.begin(row_at);
      scales.begin(row_at);
    }
    DEVICE_MEMBER void copy(u8* to, const u8* rows, u32 cols, u32 stage) const {
      quants.copy(to, rows, u64(stage) * 128, (cols - stage * kStageCols) / 16);
      scales.copy(to + Quants::kBytes, rows, u64(cols) + stage * (4 * sizeof(Scale)));
    }
  };
  static DEVICE_MEMBER typename F::Chunk chunk(const u8* from, u32 row, u32 c, u32) {
    const u8* scales = from + Quants::kBytes + Scales::place(row, 0);
    return {shared_value<uint4>(from + Quants::place(row, c)),
            shared_value<Scale>(scales + c / 2 * sizeof(Scale))};
  }
};
template <>
struct WeightSpans<FormatQ8_0> : ByteSpans<FormatQ8_0, f16> {};
template <>
struct WeightSpans<FormatFP8> : ByteSpans<FormatFP8, float> {};

template <>
struct WeightSpans<FormatQ4_0> {
  static constexpr u32 kStageCols = 128, kStagesOfSpan = 1;
  using Quants = Plane<64>;
  using Scales = Plane<8>;
  static constexpr u32 kRowBytes = 64 + 8;
  struct Copies {
    Quants quants;
    Scales scales;
    template <class RowAt>
    DEVICE_MEMBER void begin(RowAt row_at) {
      quants.begin(row_at);
      scales.begin(row_at);
    }
    DEVICE_MEMBER void copy(u8* to, const u8* rows, u32 cols, u32 stage) const {
      quants.copy(to, rows, u64(stage) * 64, (cols - stage * kStageCols) / 32);
      scales.copy(to + Quants::kBytes, rows, u64(cols) / 2 + stage * 8);
    }
  };
  static DEVICE_MEMBER FormatQ4_0::Chunk chunk(const u8* from, u32 row, u32 c, u32) {
    const u8* scales = from + Quants::kBytes + Scales::place(row, 0);
    return {shared_value<uint4>(from + Quants::place(row, c)), shared_value<f16>(scales + c * 2)};
  }
};

// A stage is half of a block; both halves have its head.
template <>
struct WeightSpans<FormatQ4_K> {
  static constexpr u32 kStageCols = 128, kStagesOfSpan = 1;
  using Quants = Plane<64>;
  using Head = Plane<16>;
  static constexpr u32 kRowBytes = 64 + 16;
  struct Copies {
    Quants quants;
    Head head;
    template <class RowAt>
    DEVICE_MEMBER void begin(RowAt row_at) {
      quants.begin(row_at);
      head.begin(row_at);
    }
    DEVICE_MEMBER void copy(u8* to, const u8* rows, u32, u32 stage) const {
      const u64 block = u64(stage / 2) * 144;
      quants.copy(to, rows, block + 16 + stage % 2 * 64);
      head.copy(to + Quants::kBytes, rows, block);
    }
  };
  static DEVICE_MEMBER FormatQ4_K::Chunk chunk(const u8* from, u32 row, u32 c, u32 stage) {
    return {shared_value<uint4>(from + Quants::place(row, c)),
            shared_value<uint4>(from + Quants::kBytes + Head::place(row, 0)), stage % 2 * 4 + c};
  }
};

// Two blocks share the four bytes of their scales d that a copy takes at least.
template <>
struct WeightSpans<FormatQ6_K> {
  static constexpr u32 kStageCols = 128, kStagesOfSpan = 1;
  using Low = Plane<64>;
  using High = Plane<32>;
  using Scales = Plane<8>;
  using Pair = Plane<4>;
  static constexpr u32 kRowBytes = 64 + 32 + 8 + 4;
  static constexpr u32 kScales = Low::kBytes + High::kBytes, kPair = kScales + Scales::kBytes;
  struct Copies {
    Low low;
    High high;
    Scales scales;
    Pair pair;
    template <class RowAt>
    DEVICE_MEMBER void begin(RowAt row_at) {
      low.begin(row_at);
      high.begin(row_at);
      scales.begin(row_at);
      pair.begin(row_at);
    }
    DEVICE_MEMBER void copy(u8* to, const u8* rows, u32 cols, u32 stage) const {
      const u64 to_high = cols / 2, to_scales = to_high + cols / 4, to_d = to_scales + cols / 16;
      low.copy(to, rows, u64(stage) * 64);
      high.copy(to + Low::kBytes, rows, to_high + stage * 32);
      scales.copy(to + kScales, rows, to_scales + stage * 8);
      pair.copy(to + kPair, rows, to_d + stage / 4 * 4);
    }
  };
  static DEVICE_MEMBER FormatQ6_K::Chunk chunk(const u8* from, u32 row, u32 c, u32 stage) {
    const u8* high = from + Low::kBytes + High::place(row, 0);
    return {shared_value<uint4>(from + Low::place(row, c)), shared_value<uint2>(high + c * 8),
            shared_value<u16>(from + kScales + Scales::place(row, 0) + c * 2),
            shared_value<f16>(from + kPair + Pair::place(row, 0) + stage / 2 % 2 * 2)};
  }
};
