#pragma once

// The kernels of one target: what kernel_table.h points to.

#include "../kernel_table.h"

namespace forge::cpu::FORGE_TARGET {

void matmul(const MatmulBlock& block, uint8_t* scratch);
void quantize(const float* x, uint64_t n, ActivationBlock* out);
void pack(WeightType type, const uint8_t* rows, uint64_t row_bytes, uint32_t n_rows, uint64_t cols,
          uint8_t* panel);

void rms_norm(const float* x, const float* weight, uint64_t n, float eps, float offset,
              const float* residual, float* out);
void layer_norm(const float* x, const float* weight, const float* bias, uint64_t n, float eps,
                float* out);
void glu(const float* gate, const float* up, uint64_t n, uint32_t unit, float* out);
void sigmoid_gate(const float* x, const float* gate, uint64_t n, const float* residual,
                  float* out);
void gated_rms_norm(const float* x, const float* gate, const float* weight, uint64_t n, float eps,
                    uint32_t activation, float* out);
void softcap(const float* x, uint64_t n, float cap, float* out);
void clamp(const float* x, uint64_t n, float limit, float* out);
void scale(const float* x, uint64_t n, float factor, float* out);
void add_scaled(float* accumulator, const float* x, float weight, uint64_t n);

void rotate(float* heads, uint32_t n_heads, uint32_t head_dim, const float* table, uint64_t n,
            uint32_t layout);
void to_f16(const float* x, uint64_t n, uint8_t* out);
void to_q8(const float* x, uint64_t n, int8_t* out, uint8_t* scales);

void attention_split(const AttentionRows& rows, int32_t begin, const AttentionPartial& out,
                     float* scratch);
void attention_merge(uint32_t n_rows, uint32_t v_head_dim, const AttentionPartial& into,
                     const AttentionPartial& more);
void attention_finish(const AttentionPartial& partial, uint32_t row, uint32_t v_head_dim,
                      const float* sink, float* out);

void conv1d_row(const float* const* rows, const float* taps, uint32_t width, const float* bias,
                uint64_t n, uint32_t activation, float* out);
void l2_normalize(const float* x, uint64_t n, float eps, float factor, float* out);
void delta_rule(const DeltaBlock& block);

LogitScan scan(const float* x, uint64_t n);
double sum_exp(const float* x, uint64_t n, float largest, float scale, float* terms,
               double* sums);
uint64_t find_above(const float* x, uint64_t begin, uint64_t n, float threshold);

}  // namespace forge::cpu::FORGE_TARGET
