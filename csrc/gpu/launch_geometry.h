#pragma once

// Launches of kernels on any GPU, and the geometry of the kernels that CUDA and Metal launch alike:
// a function of a kernel's scalars (kernels/arguments) and the rows that its grid is for.

#include <cstdint>

#include "../../kernels/arguments/row_arguments.h"
#include "rounding.h"

namespace forge {

// Blocks (threadgroups) of a launch.
struct Grid {
  uint32_t x = 1;
  uint32_t y = 1;
  uint32_t z = 1;
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
inline Geometry geometry(const kernel_args::RopeTableArgs&, uint32_t tokens) {
  return {{tokens}, {128}};
}
#define FORGE_MAP_GEOMETRY(Name, kernel)                                            \
  inline Geometry geometry(const kernel_args::Name##Args& a, uint32_t rows) {       \
    return elementwise(a.cols, rows);                                               \
  }
KERNEL_MAPS(FORGE_MAP_GEOMETRY)
#undef FORGE_MAP_GEOMETRY

}  // namespace forge
