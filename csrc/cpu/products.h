#pragma once

#include <vector>

#include "../common/step_inputs.h"
#include "cpu_device.h"
#include "cpu_weight.h"
#include "memory.h"

namespace forge::cpu {

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

// Deals products out to threads: a task is some blocks of rows by a block of tokens.
class Products {
 public:
  explicit Products(CpuDevice& device);

  // Throws FORGE_CANCELLED when the flag is raised meanwhile.
  void run(const RowBlocks& rows, const std::vector<ProductGroup>& groups, const Epilogue& epilogue,
           const StopFlag& stop);

  uint64_t scratch_bytes() const { return scratch_.bytes(); }

 private:
  struct Task {
    const ProductGroup* group;
    uint32_t first_block;
    uint32_t end_block;
    uint32_t first_token;
  };

  void plan(const RowBlocks& rows, const std::vector<ProductGroup>& groups);

  CpuDevice& device_;
  Memory scratch_;
  std::vector<Task> tasks_;
};

}  // namespace forge::cpu
