#pragma once

// Launches of kernels on any GPU, and the geometry of the kernels that CUDA and Metal launch alike:
// a function of a kernel's scalars (kernels/arguments) and the rows that its grid is for.

#include <algorithm>
#include <cstdint>

#include "../../kernels/arguments/kv_arguments.h"
#include "../../kernels/arguments/moe_arguments.h"
#include "../../kernels/arguments/row_arguments.h"
#include "../../kernels/arguments/sampling_arguments.h"
#include "../../kernels/arguments/state_arguments.h"
#include "rounding.h"

namespace forge {

// Blocks (threadgroups) of a launch.
struct Grid {
  uint32_t x = 1;
  uint32_t y = 1;
  uint32_t z = 1;

  uint32_t blocks() const { return x * y * z; }
};

struct Group {
  uint32_t threads;
  uint64_t memory = 0;  // shared by the threads, besides what the kernel declares; in bytes
};

struct Geometry {
  Grid grid;
  Group group;
};

// A grid of blocks of kRowElements elements for each row.
inline Geometry elementwise(uint32_t cols, uint32_t rows) {
  return {{divide_up(cols, kernel_args::kRowElements), rows}, {256}};
}

// Threads that normalise a row.
inline Group norm_group(uint32_t cols) { return {cols > 4096 ? 1024u : 256u}; }

inline Geometry geometry(const kernel_args::EmbedArgs&, uint32_t tokens) {
  return {{tokens}, {128}};
}
inline Geometry geometry(const kernel_args::RmsNormArgs& a, uint32_t rows) {
  return {{rows, a.groups}, norm_group(a.cols)};
}
inline Geometry geometry(const kernel_args::FusedResidualRmsNormArgs& a, uint32_t rows) {
  return {{rows}, norm_group(a.cols)};
}
inline Geometry geometry(const kernel_args::LayerNormArgs& a, uint32_t rows) {
  return {{rows}, norm_group(a.cols)};
}
inline Geometry geometry(const kernel_args::GluArgs& a, uint32_t rows) {
  return elementwise(a.out_cols, rows);
}
inline Geometry geometry(const kernel_args::GatherOutputsArgs& a, uint32_t outputs) {
  return elementwise(a.cols, outputs);
}
inline Geometry geometry(const kernel_args::GatherColumnsArgs& a, uint32_t rows) {
  return elementwise(a.out_cols, rows);
}
inline Geometry geometry(const kernel_args::PermuteColumnsArgs& a, uint32_t rows) {
  return elementwise(a.out_cols, rows);
}
inline Geometry geometry(const kernel_args::SigmoidGateArgs& a, uint32_t rows) {
  return elementwise(a.cols, rows);
}
inline Geometry geometry(const kernel_args::GatedRmsNormArgs& a, uint32_t rows) {
  const uint32_t groups = kernel_args::kNormGroups;
  return {{divide_up(a.cols / a.width, groups), rows}, {32 * groups}};
}
inline Geometry geometry(const kernel_args::NextStepArgs&) { return {{1}, {256}}; }
inline Geometry geometry(const kernel_args::RopeTableArgs&, uint32_t tokens) {
  return {{tokens}, {128}};
}
inline Geometry geometry(const kernel_args::RopeAppendArgs& a, uint32_t tokens) {
  const uint32_t kept_heads = (a.kv.values_in_keys ? 1 : 2) * a.kv.n_kv_heads;
  return {{tokens, a.n_heads + kept_heads},
          {128, std::max(a.kv.k_dim, a.kv.v_dim) * sizeof(float)}};
}
// On CUDA, where a warp computes a group of heads: as many warps a block as 48 KiB of shared memory
// take.
inline Geometry warp_geometry(const kernel_args::RopeAppendArgs& a, uint32_t tokens) {
  const uint32_t heads = kernel_args::kAppendHeads;
  const uint32_t groups = divide_up(a.n_heads, heads) +
                          (a.kv.values_in_keys ? 1 : 2) * divide_up(a.kv.n_kv_heads, heads);
  const uint64_t bytes = heads * padded_to(std::max(a.kv.k_dim, a.kv.v_dim), 4) * sizeof(float);
  const auto warps = static_cast<uint32_t>(
      std::clamp<uint64_t>(48 * 1024 / bytes, 1, kernel_args::kAppendWarps));
  return {{tokens, divide_up(groups, warps)}, {32 * warps, warps * bytes}};
}
inline Geometry geometry(const kernel_args::PreviousRowsArgs& a, uint32_t tokens) {
  return {{tokens, a.kv.n_kv_heads}, {128}};
}
inline Geometry geometry(const kernel_args::MoeRouteArgs&, uint32_t tokens) {
  return {{divide_up(tokens, 4)}, {128}};
}
inline Geometry geometry(const kernel_args::HeadGroupsArgs& a, uint32_t tokens) {
  return {{divide_up(uint64_t{tokens} * a.n_heads, 256)}, {256}};
}
inline Geometry geometry(const kernel_args::MoeCombineArgs& a, uint32_t tokens) {
  return elementwise(a.cols, tokens);
}
inline Geometry geometry(const kernel_args::CausalConv1dArgs& a, uint32_t runs,
                         uint32_t longest_run) {
  const uint32_t columns = kernel_args::kConvColumns;
  // Runs of few tokens are one piece each.
  const uint32_t pieces = std::max(divide_up(longest_run, kernel_args::kConvTokens), 1u);
  return {{divide_up(a.cols, columns), runs, pieces},
          {columns, a.width * columns * sizeof(float)}};
}
inline Geometry geometry(const kernel_args::GatedDeltaRuleArgs& a, uint32_t runs) {
  const uint32_t columns = kernel_args::kDeltaColumns;
  return {{divide_up(a.v_dim, columns), a.n_v_heads, runs}, {columns * kernel_args::kDeltaLanes}};
}
inline Geometry geometry(const kernel_args::SelectiveScanArgs& a, uint32_t runs) {
  const uint32_t columns = kernel_args::kScanColumns;
  return {{divide_up(a.head_dim, columns), a.n_heads, runs}, {columns * kernel_args::kScanLanes}};
}
// The first dimension, of results, has no limit in reach: a row may have one for each head.
inline Geometry geometry(const kernel_args::LoraProductsArgs& a, uint32_t results) {
  return {{divide_up(results, kernel_args::kLoraRows),
           divide_up(a.n_ranks, kernel_args::kLoraRanks)},
          {32 * kernel_args::kLoraRanks}};
}
inline Geometry geometry(const kernel_args::LoraSumsArgs& a, uint32_t results) {
  return {{divide_up(results, kernel_args::kLoraRows),
           divide_up(a.cols, kernel_args::kLoraColumns)},
          {kernel_args::kLoraColumns}};
}
// Of the sampling kernels that read logits in chunks.
inline Geometry chunk_geometry(const kernel_args::SamplingArgs& a, uint32_t outputs) {
  const uint32_t n_chunks = divide_up(a.vocabulary, kernel_args::kChunk);
  return {{divide_up(n_chunks, kernel_args::kBlockChunks), outputs}, {256}};
}
#define FORGE_MAP_GEOMETRY(Name, kernel)                                            \
  inline Geometry geometry(const kernel_args::Name##Args& a, uint32_t rows) {       \
    return elementwise(a.cols, rows);                                               \
  }
KERNEL_MAPS(FORGE_MAP_GEOMETRY)
#undef FORGE_MAP_GEOMETRY

}  // namespace forge
