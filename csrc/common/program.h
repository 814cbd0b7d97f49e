#pragma once

// A recorded step as data: values, and the operations between them in execution order.

#include <algorithm>
#include <vector>

#include "operations.h"

namespace forge {

struct StepLimits {
  uint32_t max_tokens;
  uint32_t max_outputs;
  uint32_t max_sequences;
  uint32_t max_pages;
};

struct Program {
  StepLimits limits{};
  std::vector<Value> values;  // value v is values[v - 1]
  std::vector<Op> ops;
  // Bounds for checking input blocks; 0 if the step has no such operation.
  uint64_t vocabulary = 0;       // rows of the embedding, times the token types
  uint64_t n_positions = 0;      // rows of the embedding of positions
  uint64_t logits_cols = 0;      // width of the sampled logits
  uint32_t max_top = 0;          // of the sample operation
  uint32_t page_tokens = 0;      // of every KV cache in the step
  uint32_t n_pages = 0;          // of the smallest KV cache in the step
  uint32_t n_slots = 0;          // of the smallest state cache in the step
  uint32_t n_adapters = 0;       // of every lora operation
  bool samples = false;
  bool is_causal = true;         // true if all attention is
  uint32_t masked_heads = 0;     // query heads of masked attention

  const Value& value(ValueId id) const { return values[id - 1]; }
  uint64_t max_rows(ValueId id) const {
    return value(id).rows == Rows::tokens ? limits.max_tokens : limits.max_outputs;
  }
  // Results of a row: one for each chosen block, or for each block.
  uint64_t results_a_row(const LoraOp& op) const {
    return op.route == 0 ? op.n_blocks : value(op.route).cols / 2;
  }
  // True if exactly one operation reads the value and it is not kept after the run.
  bool is_read_once(ValueId id) const {
    size_t readers = 0;
    for (const Op& op : ops) {
      visit_op([&](const auto& typed) { readers += std::ranges::count(typed.reads(), id); }, op);
    }
    return readers == 1 && !value(id).keep;
  }
};

}  // namespace forge
