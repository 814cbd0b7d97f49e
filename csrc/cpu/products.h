#pragma once

#include <span>
#include <vector>

#include "../common/step_inputs.h"
#include "cpu_device.h"
#include "memory.h"
#include "packed_weight.h"

namespace forge::cpu {

// Rows that kernels take at a time with few tokens, where there are so many.
constexpr uint32_t kRowsTogether = 32;
// With few tokens, a task takes one part in kShares of a thread's share of what is left.
constexpr uint32_t kShares = 3;

// Some tokens that one group (expert) of a weight's rows is multiplied with.
struct ProductGroup {
  uint64_t group;
  const MatmulToken* tokens;
  uint64_t n_tokens;
};

// What happens to a product before it is stored: see MatmulBlock.
struct Epilogue {
  const float* bias = nullptr;  // [groups, rows of a group]
  float alpha = 1;
  uint32_t activation = FORGE_IDENTITY;
};

// A product whose rows are `width` of a gate and as many of an up part: out = unit(gate, up).
struct GatedProduct {
  uint32_t width;
  uint32_t unit;
  ActivationBlock* blocks;  // null, or where the tokens' units go instead of to their `out`
};

// Deals products out to threads: a task is some panels by a block of tokens.
class Products {
 public:
  explicit Products(CpuDevice& device);

  // Makes room for activations of that many rows and columns.
  void reserve(uint64_t rows, uint64_t cols);

  // The rows of x as signed bytes, cols / kBlockCols blocks a row, valid until the next call; null
  // where the weight needs none.
  const ActivationBlock* quantize(const PackedWeight& weight, const float* x, uint64_t rows,
                                  uint64_t cols);

  // Throws FORGE_CANCELLED when the flag is raised meanwhile.
  void run(const PackedWeight& weight, const std::vector<ProductGroup>& groups,
           const Epilogue& epilogue, const StopFlag& stop);

  // Makes room for gated products.
  void reserve_gated();

  // Writes `width` columns of each token. Throws FORGE_CANCELLED when the flag is raised
  // meanwhile.
  void run_gated(const PackedWeight& weight, const std::vector<MatmulToken>& tokens,
                 const GatedProduct& product, const StopFlag& stop);

  uint64_t scratch_bytes() const {
    return scratch_.bytes() + activations_.bytes() + gated_.bytes();
  }

 private:
  // Multiplies with the rows of a run from `row` on, as many as `block` has; the fields of `block`
  // that depend on the call are set.
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
  // Writes the units of some tokens, whose gates and ups lie in rows of 2 n_rows from `gates` on.
  void write_units(const GatedProduct& product, const GatedTask& task, const float* gates,
                   std::span<const MatmulToken> tokens);
  void plan_gated(const GatedProduct& product, uint64_t row_bytes, uint64_t n_tokens);

  CpuDevice& device_;
  Memory scratch_;
  Memory activations_;
  std::vector<Task> tasks_;

  // Of gated products: each thread's gates and ups, and its tokens, which write there.
  Memory gated_;
  std::vector<std::vector<MatmulToken>> gated_tokens_;
  std::vector<GatedTask> gated_tasks_;
};

}  // namespace forge::cpu
