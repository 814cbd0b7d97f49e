#pragma once

// The rows of a decoded token on their way from the product of Q, K and V to attention: one warp
// normalizes and rotates a head, and appends a key or a value to a page. All results have the bits
// of rope_append's, so that a token's digits do not depend on the kernel that prepared it.

#include "kv.cuh"

struct Angle {
  float cosine, sine;
};

// Rotates a pair of numbers. The order of rounding is the same in every kernel.
DEVICE void rotate(float& a, float& b, Angle angle) {
  const float rotated = fmaf(a, angle.cosine, -(b * angle.sine));
  b = fmaf(a, angle.sine, b * angle.cosine);
  a = rotated;
}

// The numbers of pair i of the n of a head.
struct PairPlace {
  u32 first, second;

  DEVICE_MEMBER PairPlace(u32 i, u32 n, u32 interleaved)
      : first(interleaved ? 2 * i : i), second(interleaved ? 2 * i + 1 : i + n) {}
};

// The cosines and sines of a token, n_freqs each: this lane's are lane + 32 n.
template <int D>
struct HeadAngles {
  static constexpr u32 kOwn = (D / 2 + kWarp - 1) / kWarp;
  Angle own[kOwn];

  DEVICE_MEMBER HeadAngles(const float* angles, u32 n_freqs) {
#pragma unroll
    for (u32 n = 0; n < kOwn; ++n) {
      const u32 i = lane_id() + n * kWarp;
      own[n] = i < n_freqs ? Angle{angles[i], angles[n_freqs + i]} : Angle{1, 0};
    }
  }
};

// Numbers lane + 32 n of a head.
template <int D>
struct HeadNumbers {
  static constexpr u32 kOwn = D / kWarp;
  static_assert(D % kWarp == 0);
  float own[kOwn];

  DEVICE_MEMBER void load(const float* from) {
#pragma unroll
    for (u32 n = 0; n < kOwn; ++n) own[n] = from[lane_id() + n * kWarp];
  }
  DEVICE_MEMBER void store(float* to) const {
#pragma unroll
    for (u32 n = 0; n < kOwn; ++n) to[lane_id() + n * kWarp] = own[n];
  }
  DEVICE_MEMBER void normalise(const HeadNumbers& weight, float eps, float offset) {
    // As block_sum adds the numbers of a block of four warps.
    float squares[4] = {0, 0, 0, 0};
#pragma unroll
    for (u32 n = 0; n < kOwn; ++n) squares[n % 4] += own[n] * own[n];
#pragma unroll
    for (u32 n = 0; n < 4 && n < kOwn; ++n) squares[n] = warp_sum(squares[n]);
    const float sum = (squares[0] + squares[2]) + (squares[1] + squares[3]);
    const float scale = 1.0f / sqrtf(sum / float(D) + eps);
#pragma unroll
    for (u32 n = 0; n < kOwn; ++n) {
      own[n] = own[n] * scale * (weight.own[n] + offset);
    }
  }
};

// values[D] = a head, rotated. Called by a warp that has `values` to itself.
template <int D>
DEVICE void rotate_head(float* values, const HeadNumbers<D>& numbers, const HeadAngles<D>& angles,
                        u32 n_freqs, u32 interleaved) {
  __syncwarp();
  numbers.store(values);
  __syncwarp();
#pragma unroll
  for (u32 n = 0; n < HeadAngles<D>::kOwn; ++n) {
    const u32 i = lane_id() + n * kWarp;
    const PairPlace at(i, n_freqs, interleaved);
    if (i < n_freqs) rotate(values[at.first], values[at.second], angles.own[n]);
  }
  __syncwarp();
}

// Appends a row to a page, and to `tile`, a row of a slice in shared memory, if it is not null.
// scales: those of a cache with scales, the same in all lanes.
template <int D, class T>
DEVICE void append_row(const KvRows<T>& to, u32 slot, u8* tile, const HeadNumbers<D>& numbers,
                       u16 (&)[D / kScaleGroup]) {
#pragma unroll
  for (u32 n = 0; n < HeadNumbers<D>::kOwn; ++n) {
    const u32 i = lane_id() + n * kWarp;
    T number;
    convert(numbers.own[n], number);
    to.row(slot)[i] = number;
    if (tile) reinterpret_cast<T*>(tile)[i] = number;
  }
}
template <int D>
DEVICE void append_row(const KvRows<q8>& to, u32 slot, u8* tile, const HeadNumbers<D>& numbers,
                       u16 (&scales)[D / kScaleGroup]) {
  static_assert(kScaleGroup == kWarp);
#pragma unroll
  for (u32 n = 0; n < HeadNumbers<D>::kOwn; ++n) {
    const u32 i = lane_id() + n * kWarp;
    const ScaledNumber number = round_to_q8(numbers.own[n]);
    to.row(slot)[i].bits = i8(number.multiple);
    if (tile) tile[i] = u8(number.multiple);
    if (lane_id() == 0) to.row_scales(slot)[n] = number.scale;
    scales[n] = number.scale.bits;
  }
}
