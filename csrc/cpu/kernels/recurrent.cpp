// Convolutions over tokens, the gated delta rule, and the scan of Mamba-2.

#include "../kernel_table.h"
#include "vector_math.h"

namespace forge::cpu::FORGE_TARGET {

namespace {

// Number of partial sums over the rows of a state: independent sums hide the latency of an
// addition.
constexpr uint32_t kParts = 4;

// Columns of a panel in use, of those that are left.
FORGE_INLINE int columns_of_panel(uint64_t left) {
  return left < 16 ? static_cast<int>(left) : 16;
}

// The first n of 16 columns, and zeros.
FORGE_INLINE Group load_columns(const float* at, int n) {
  Group out;
  for (int i = 0; i < Group::kVectors; ++i) {
    const int left = n - i * kLanes;
    out.part[i] = left >= kLanes ? load(at + i * kLanes)
                  : left > 0     ? load_n(at + i * kLanes, left)
                                 : zero();
  }
  return out;
}

FORGE_INLINE void store_columns(float* at, const Group& a, int n) {
  for (int i = 0; i < Group::kVectors; ++i) {
    const int left = n - i * kLanes;
    if (left > 0) store_up_to(at + i * kLanes, a.part[i], left < kLanes ? left : kLanes);
  }
}

FORGE_INLINE Group zeros() {
  Group out;
  for (int i = 0; i < Group::kVectors; ++i) out.part[i] = zero();
  return out;
}

FORGE_INLINE Group joined(const Group (&parts)[kParts]) {
  Group out;
  for (int i = 0; i < Group::kVectors; ++i) {
    out.part[i] =
        (parts[0].part[i] + parts[1].part[i]) + (parts[2].part[i] + parts[3].part[i]);
  }
  return out;
}

// Calls body(row, part) for each row, with the part of a sum that it belongs to.
template <class Body>
FORGE_INLINE void for_state_rows(uint32_t n, Body body) {
  uint32_t i = 0;
  for (; i + kParts <= n; i += kParts) {
    FORGE_UNROLL(4)
    for (uint32_t part = 0; part < kParts; ++part) body(i + part, part);
  }
  for (uint32_t part = 0; i + part < n; ++part) body(i + part, part);
}

// Applies one token to 16 columns of the state, a panel [k_dim][16] whose first n columns are used.
FORGE_INLINE void delta_rule_token(const DeltaBlock& block, float* panel, uint32_t token,
                                   uint64_t column, int n) {
  const float* q = block.q + uint64_t{token} * block.k_dim;
  const float* k = block.k + uint64_t{token} * block.k_dim;
  const Vec decay = set(block.decay[token]), beta = set(block.beta[token]);

  Group known[kParts] = {zeros(), zeros(), zeros(), zeros()};
  for_state_rows(block.k_dim, [&](uint32_t row, uint32_t part) FORGE_ALWAYS_INLINE {
    const Vec factor = set(k[row]);
    for (int i = 0; i < Group::kVectors; ++i) {
      const Vec s = load(panel + row * 16 + i * kLanes);
      known[part].part[i] = fma(s, factor, known[part].part[i]);
    }
  });
  const Group sums = joined(known);
  Group delta = load_columns(block.v + token * block.v_stride + column, n);
  for (int i = 0; i < Group::kVectors; ++i) {
    delta.part[i] = (delta.part[i] - decay * sums.part[i]) * beta;
  }

  Group out[kParts] = {zeros(), zeros(), zeros(), zeros()};
  for_state_rows(block.k_dim, [&](uint32_t row, uint32_t part) FORGE_ALWAYS_INLINE {
    const Vec by_k = set(k[row]), by_q = set(q[row]);
    for (int i = 0; i < Group::kVectors; ++i) {
      float* at = panel + row * 16 + i * kLanes;
      const Vec s = fma(by_k, delta.part[i], decay * load(at));
      store(at, s);
      out[part].part[i] = fma(s, by_q, out[part].part[i]);
    }
  });
  store_columns(block.out + token * block.out_stride + column, joined(out), n);
}

// Rows of a state that selective_scan keeps in registers while all tokens pass, and the sums that a
// token adds them to: a sum of four rows is short enough for its latency to hide between tokens.
constexpr uint32_t kScanRows = Group::kVectors == 1 ? 16 : 4;
constexpr uint32_t kScanRowsPerSum = 4;

// Values of each token that all rows of 16 columns of a head share.
struct ScanColumns {
  Group inputs[kScanTokens];  // dt x
  Group sums[kScanTokens];    // c S of the rows so far
};

// Applies all tokens to n rows of 16 columns, from row `first` on.
template <uint32_t n>
FORGE_INLINE void scan_rows(const ScanBlock& block, float* panel, uint32_t first,
                            ScanColumns& columns) {
  constexpr uint32_t kSums = (n + kScanRowsPerSum - 1) / kScanRowsPerSum;
  Group S[n];
  FORGE_UNROLL(16)
  for (uint32_t row = 0; row < n; ++row) S[row] = load_floats(panel + (first + row) * 16);
  const float* b = block.b + first;
  const float* c = block.c + first;
  for (uint32_t token = 0; token < block.n_tokens; ++token) {
    const Vec decay = set(block.decay[token]);
    const Group input = columns.inputs[token];
    Group sums[kSums];
    FORGE_UNROLL(4)
    for (uint32_t i = 0; i < kSums; ++i) sums[i] = i == 0 ? columns.sums[token] : zeros();
    FORGE_UNROLL(16)
    for (uint32_t row = 0; row < n; ++row) {
      const Vec by_b = set(b[row]), by_c = set(c[row]);
      Group& sum = sums[row / kScanRowsPerSum];
      FORGE_UNROLL(4)
      for (int i = 0; i < Group::kVectors; ++i) {
        S[row].part[i] = fma(by_b, input.part[i], decay * S[row].part[i]);
        sum.part[i] = fma(by_c, S[row].part[i], sum.part[i]);
      }
    }
    FORGE_UNROLL(4)
    for (int i = 0; i < Group::kVectors; ++i) {
      Vec total = sums[0].part[i];
      FORGE_UNROLL(4)
      for (uint32_t k = 1; k < kSums; ++k) total = total + sums[k].part[i];
      columns.sums[token].part[i] = total;
    }
    b += block.stride;
    c += block.stride;
  }
  FORGE_UNROLL(16)
  for (uint32_t row = 0; row < n; ++row) store(panel + (first + row) * 16, S[row]);
}

}  // namespace

void conv1d_row(const float* const* rows, const float* taps, uint32_t width, const float* bias,
                uint64_t n, uint32_t activation, float* out) {
  for_vectors(n, [&](uint64_t i, int m) FORGE_ALWAYS_INLINE {
    Vec sum = bias ? load_up_to(bias + i, m) : zero();
    for (uint32_t tap = 0; tap < width; ++tap) {
      sum = fma(load_up_to(taps + tap * n + i, m), load_up_to(rows[tap] + i, m), sum);
    }
    store_up_to(out + i, activate(activation, sum), m);
  });
}

void l2_normalize(const float* x, uint64_t n, float eps, float factor, float* out) {
  const Vec scale = set(factor / __builtin_sqrtf(sum_of_squares(x, n) + eps));
  for_vectors(n, [&](uint64_t i, int m) FORGE_ALWAYS_INLINE {
    store_up_to(out + i, load_up_to(x + i, m) * scale, m);
  });
}

void delta_rule(const DeltaBlock& block) {
  float* panel = block.state;
  for (uint64_t column = 0; column < block.v_dim; column += 16) {
    const int n = columns_of_panel(block.v_dim - column);
    // All tokens pass over a panel while it is in the first-level cache.
    for (uint32_t token = 0; token < block.n_tokens; ++token) {
      delta_rule_token(block, panel, token, column, n);
    }
    panel += block.panel_stride;
  }
}

void selective_scan(const ScanBlock& block) {
  ScanColumns columns;
  float* panel = block.state;
  for (uint64_t column = 0; column < block.head_dim; column += 16) {
    const int n = columns_of_panel(block.head_dim - column);
    for (uint32_t token = 0; token < block.n_tokens; ++token) {
      const Group x = load_columns(block.x + token * block.stride + column, n);
      const Vec dt = set(block.dt[token]), skip = set(block.skip);
      for (int i = 0; i < Group::kVectors; ++i) {
        columns.inputs[token].part[i] = dt * x.part[i];
        columns.sums[token].part[i] = skip * x.part[i];
      }
    }
    uint32_t row = 0;
    for (; row + kScanRows <= block.d_state; row += kScanRows) {
      scan_rows<kScanRows>(block, panel, row, columns);
    }
    for (; row < block.d_state; ++row) scan_rows<1>(block, panel, row, columns);
    for (uint32_t token = 0; token < block.n_tokens; ++token) {
      const uint64_t at = token * block.out_stride + column;
      Group out = columns.sums[token];
      if (block.gate) {
        const Group gate = load_columns(block.gate + at, n);
        for (int i = 0; i < Group::kVectors; ++i) out.part[i] = out.part[i] * silu(gate.part[i]);
      }
      store_columns(block.out + at, out, n);
    }
    panel += block.panel_stride;
  }
}

}  // namespace forge::cpu::FORGE_TARGET
