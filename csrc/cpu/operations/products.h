#pragma once

#include <span>
#include <vector>

#include "../../common/step_inputs.h"
#include "../host/cpu_device.h"
#include "../host/memory.h"
#include "../cpu_weight.h"

namespace forge::cpu {

// The tokens multiplied with one group (expert) of the rows of a weight.
struct ProductGroup {
  uint64_t group;
  const MatmulToken* tokens;
  uint64_t n_tokens;
};

// Applied to a product before it is stored: see MatmulBlock.
struct Epilogue {
  const float* bias = nullptr;  // [groups, rows of a group]
  float alpha = 1;
  uint32_t activation = FORGE_IDENTITY;
};

// A product whose rows are `width` of a gate and as many of an up part: out = unit(gate, up).
struct GatedProduct {
  uint32_t width;
  uint32_t unit;
  ActivationBlock* blocks;  // null, or the destination instead of the `out` of the tokens
};

// Returns the blocks of the row-th `cols` activations, or null if `all` is.
inline const ActivationBlock* blocks_at(const ActivationBlock* all, uint64_t row, uint64_t cols) {
  return all ? all + row * (cols / kBlockCols) : nullptr;
}

// Rows of activations of `cols`, as a product multiplies them; null where it needs floats.
struct Activations {
  const float* x;
  const ActivationBlock* blocks;
  const uint8_t* halves;
  uint64_t rows;
  uint64_t cols;

  MatmulToken token(uint64_t row, float* out, const float* residual) const {
    return {x + row * cols,
            blocks_at(blocks, row, cols),
            halves ? halves + row * kRoundedBytes : nullptr,
            rows * kRoundedBytes,
            out,
            residual};
  }
};

// Divides products among threads: a task is some panels times a block of tokens.
class Products {
 public:
  explicit Products(CpuDevice& device);

  // Allocates memory for quantised activations of this size.
  void reserve(uint64_t rows, uint64_t cols);
  // Allocates memory for rounded ones.
  void reserve_rounded(uint64_t rows, uint64_t cols);

  // Returns the rows of x as signed bytes, cols / kBlockCols blocks a row, valid until the next
  // call; null if the weight needs floats only.
  const ActivationBlock* quantize(const PackedWeight& weight, const float* x, uint64_t rows,
                                  uint64_t cols);

  // Returns the rows of x rounded to BF16, valid until the next call; null if the weight does not
  // need them, or for so few rows that products round them as quickly.
  const uint8_t* round(const PackedWeight& weight, const float* x, uint64_t rows, uint64_t cols);

  // Throws FORGE_CANCELLED if the flag is raised during the call.
  void run(const PackedWeight& weight, const std::vector<ProductGroup>& groups,
           const Epilogue& epilogue, const StopFlag& stop);

  // Allocates memory for gated products.
  void reserve_gated();

  // Writes `width` columns of each token, or some of them if the flag is raised during the call.
  void run_gated(const PackedWeight& weight, const std::vector<MatmulToken>& tokens,
                 const GatedProduct& product, const StopFlag& stop);

  uint64_t scratch_bytes() const {
    return scratch_.bytes() + activations_.bytes() + rounded_.bytes() + gated_.bytes();
  }

 private:
  // Multiplies with block.n_rows rows of a run from `row` on. The caller has set the fields of
  // `block` that depend on the call.
  void multiply(const PanelRun& run, uint64_t row, MatmulBlock block, uint32_t thread);

  struct Task {
    const PanelRun* run;
    const ProductGroup* group;
    uint32_t first_row;
    uint32_t n_rows;
    uint32_t first_token;
  };

  struct GatedTask {
    uint32_t first_row;  // of each part
    uint32_t n_rows;
    uint32_t first_token;
  };

  void plan(const PackedWeight& weight, const std::vector<ProductGroup>& groups);
  // Adds the tasks of the rows of a NUMA node.
  void plan_node(const PackedWeight& weight, const std::vector<ProductGroup>& groups,
                 uint32_t node);
  // Writes the units of some tokens; `gates` holds a row of n_rows gates, then n_rows ups, for
  // each.
  void write_units(const GatedProduct& product, const GatedTask& task, const float* gates,
                   std::span<const MatmulToken> tokens);
  void plan_gated(const PackedWeight& weight, const GatedProduct& product, uint64_t n_tokens);

  CpuDevice& device_;
  Memory scratch_;
  Memory activations_;
  Memory rounded_;
  std::vector<Task> tasks_;
  std::vector<uint32_t> ends_;  // of the tasks of each NUMA node

  // For each thread, of gated products: gates and ups, and the tokens that write to them.
  Memory gated_;
  std::vector<std::vector<MatmulToken>> gated_tokens_;
  std::vector<GatedTask> gated_tasks_;
};

}  // namespace forge::cpu
