// out[token] = x[token] + scale * row of an embedding, for the id or position of each token.
// Buffers and geometry: row_arguments.h.

#include "blocks.h"

template <class F, bool whole>
inline void embed_row(device float* to, device const float* x, device const u8* row, uint cols,
                      float scale, device const ulong* codebooks, uint thread_index) {
  for (uint chunk = thread_index; chunk < chunks_of<F>(cols); chunk += 128) {
    const typename F::Chunk c = F::template load<whole>(row, cols, chunk, codebooks);
    for (uint r = 0; r < F::kRuns; ++r) {
      const uint start = F::run_start(chunk, r);
      for (uint j = 0; j < F::kRun / 4; ++j) {
        float4 w = F::four(c, r, j);
        if (F::kScaled) w = w * F::scale(c, r) - F::min(c, r);
        w *= scale;
        for (uint k = 0; k < 4; ++k) {
          const uint col = start + 4 * j + k;
          if (col < cols) to[col] = x ? x[col] + w[k] : w[k];
        }
      }
    }
  }
}

template <class F>
[[kernel, max_total_threads_per_threadgroup(128)]] void embed(
    device float* out [[buffer(0)]], device const int* ids [[buffer(1)]],
    device const uint* n_tokens [[buffer(2)]], device const u8* weight [[buffer(3)]],
    device const float* x [[buffer(4)]], device const ulong* codebooks [[buffer(5)]],
    constant EmbedArgs& args [[buffer(6)]],
    uint token [[threadgroup_position_in_grid]],
    uint thread_index [[thread_index_in_threadgroup]]) {
  if (token >= *n_tokens) return;
  device const u8* row =
      weight + ulong(uint(ids[token]) / args.period % args.rows) * args.row_stride;
  device float* to = out + ulong(token) * args.cols;
  device const float* added = args.has_x ? x + ulong(token) * args.cols : nullptr;
  if (F::kUnit % (F::kRun * F::kRuns) == 0 || args.cols % (F::kRun * F::kRuns) == 0) {
    embed_row<F, true>(to, added, row, args.cols, args.scale, codebooks, thread_index);
  } else {
    embed_row<F, false>(to, added, row, args.cols, args.scale, codebooks, thread_index);
  }
}

INSTANCE(embed<FormatF32>)
INSTANCE(embed<FormatF16>)
INSTANCE(embed<FormatBF16>)
INSTANCE(embed<FormatQ8_0>)
INSTANCE(embed<FormatFP8>)
INSTANCE(embed<FormatQ4_0>)
INSTANCE(embed<FormatQ4_K>)
INSTANCE(embed<FormatQ6_K>)
INSTANCE(embed<Blocks<3>>)
INSTANCE(embed<Blocks<6>>)
INSTANCE(embed<Blocks<7>>)
INSTANCE(embed<Blocks<10>>)
INSTANCE(embed<Blocks<11>>)
INSTANCE(embed<Blocks<13>>)
INSTANCE(embed<Blocks<16>>)
INSTANCE(embed<Blocks<17>>)
INSTANCE(embed<Blocks<18>>)
INSTANCE(embed<Blocks<19>>)
INSTANCE(embed<Blocks<20>>)
INSTANCE(embed<Blocks<21>>)
INSTANCE(embed<Blocks<22>>)
INSTANCE(embed<Blocks<23>>)
INSTANCE(embed<Blocks<29>>)
INSTANCE(embed<Blocks<34>>)
INSTANCE(embed<Blocks<35>>)
INSTANCE(embed<Blocks<39>>)
INSTANCE(embed<Blocks<257>>)
