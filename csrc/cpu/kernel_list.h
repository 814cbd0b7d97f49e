// The kernels: KERNEL(result, name, parameters), included with that macro defined. The table of
// function pointers, the declarations of a target and its table are made from this list.
//
// MAP_KERNEL(operation, name, parameters) is the kernel of an operation on one number at a time;
// its parameters are x[n], the floats of the operation in their order, and out[n]. The executor
// runs it on every row (operations/row_ops.cpp).

#ifndef MAP_KERNEL
#define MAP_KERNEL(Op, name, parameters) KERNEL(void, name, parameters)
#endif

MAP_KERNEL(SoftcapOp, softcap, (const float* x, uint64_t n, float cap, float* out))
MAP_KERNEL(ClampOp, clamp, (const float* x, uint64_t n, float limit, float* out))
MAP_KERNEL(XieluOp, xielu,
           (const float* x, uint64_t n, float alpha_p, float alpha_n, float beta, float eps,
            float* out))
#undef MAP_KERNEL

// Products: see MatmulBlock.
KERNEL(void, matmul, (const MatmulBlock& block, uint8_t* scratch))
// Quantises activations to signed bytes; n is a multiple of kBlockCols.
KERNEL(void, quantize, (const float* x, uint64_t n, ActivationBlock* out))
// Writes a panel of the first n_rows <= 16 rows. The memory of missing rows must be zero.
KERNEL(void, pack,
       (WeightType type, const uint8_t* rows, uint64_t row_bytes, uint32_t n_rows, uint64_t cols,
        uint8_t* panel))

// out = residual + x / sqrt(mean(x^2) + eps) (weight + offset); residual may be null, and out x.
KERNEL(void, rms_norm,
       (const float* x, const float* weight, uint64_t n, float eps, float offset,
        const float* residual, float* out))
// out = (x - mean) / sqrt(variance + eps) weight + bias; bias may be null.
KERNEL(void, layer_norm,
       (const float* x, const float* weight, const float* bias, uint64_t n, float eps, float* out))
// out = activation(gate) up, or FORGE_CLAMPED_SWIGLU.
KERNEL(void, glu, (const float* gate, const float* up, uint64_t n, uint32_t unit, float* out))
// out = residual + sigmoid(gate) x; residual may be null.
KERNEL(void, sigmoid_gate,
       (const float* x, const float* gate, uint64_t n, const float* residual, float* out))
// out = x / sqrt(mean(x^2) + eps) weight activation(gate)
KERNEL(void, gated_rms_norm,
       (const float* x, const float* gate, const float* weight, uint64_t n, float eps,
        uint32_t activation, float* out))
// out = factor x; out may be x.
KERNEL(void, scale, (const float* x, uint64_t n, float factor, float* out))
// out = residual + alpha activation(x); residual may be null, and out x.
KERNEL(void, epilogue,
       (const float* x, uint64_t n, uint32_t activation, float alpha, const float* residual,
        float* out))
// The sum of x[i] y[i].
KERNEL(float, dot, (const float* x, const float* y, uint64_t n))
// accumulator += weight x
KERNEL(void, add_scaled, (float* accumulator, const float* x, float weight, uint64_t n))

// Rotates the first 2 n elements of every head in place; table holds n cosines, then n sines.
KERNEL(void, rotate,
       (float* heads, uint32_t n_heads, uint32_t head_dim, const float* table, uint64_t n,
        uint32_t layout))
// Writes the f16 nearest to each x.
KERNEL(void, to_f16, (const float* x, uint64_t n, uint8_t* out))
// Quantises blocks of kKvBlock, of which the last may be shorter. The scale of a block is the
// float16 nearest to its largest magnitude / 127, or NaN if the block holds NaN or infinity.
KERNEL(void, to_q8, (const float* x, uint64_t n, int8_t* out, uint8_t* scales))
// The same with levels from -8 to 7, whose scale makes -8 the x of the largest magnitude (the
// positive one of two).
KERNEL(void, to_q4, (const float* x, uint64_t n, int8_t* out, uint8_t* scales))

// The softmax over the split that begins at `begin`, a multiple of kAttentionSplit.
KERNEL(void, attention_split,
       (const AttentionRows& rows, int32_t begin, const AttentionPartial& out, float* scratch))
// Merges `more` into `into`: the softmax over the positions of both.
KERNEL(void, attention_merge,
       (uint32_t n_rows, uint32_t v_head_dim, const AttentionPartial& into,
        const AttentionPartial& more))
// out = the weighted mean of a row's values; sink, a score without a value, may be null.
KERNEL(void, attention_finish,
       (const AttentionPartial& partial, uint32_t row, uint32_t v_head_dim, const float* sink,
        float* out))

// out[n] = activation(bias + sum over the rows of taps[row][n] rows[row]); bias may be null.
KERNEL(void, conv1d_row,
       (const float* const* rows, const float* taps, uint32_t width, const float* bias, uint64_t n,
        uint32_t activation, float* out))
// out = factor x / sqrt(sum(x^2) + eps)
KERNEL(void, l2_normalize, (const float* x, uint64_t n, float eps, float factor, float* out))
// The recurrence of GatedDeltaRuleOp (common/operations.h).
KERNEL(void, delta_rule, (const DeltaBlock& block))
// The recurrence of SelectiveScanOp.
KERNEL(void, selective_scan, (const ScanBlock& block))

KERNEL(LogitScan, scan, (const float* x, uint64_t n))
// The sum of exp((x - largest) scale). Writes the terms to terms[n], and the sum of every kSumBlock
// of them to sums; both may be null.
KERNEL(double, sum_exp,
       (const float* x, uint64_t n, float largest, float scale, float* terms, double* sums))
// The first index from `begin` on with x > threshold, or n.
KERNEL(uint64_t, find_above, (const float* x, uint64_t begin, uint64_t n, float threshold))
