#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "library_end.h"
#include "program.h"

namespace forge {

// The stop flag of the caller. Another thread may raise it at any time, and the exit of the process
// does.
class StopFlag {
 public:
  explicit StopFlag(const forge_step_control* control)
      : flag_(control ? &control->stop : nullptr) {}
  bool raised() const {
    return is_exiting() || (flag_ && __atomic_load_n(flag_, __ATOMIC_RELAXED) != 0);
  }
  // Throws FORGE_CANCELLED if raised.
  void check() const;

 private:
  const int32_t* flag_;
};

// Masks may be written during a run; they are complete after wait().
class MaskGate {
 public:
  MaskGate() = default;
  explicit MaskGate(const forge_step_control* control) : control_(control) {}
  // Returns when the masks are complete. Throws FORGE_CANCELLED if the run is stopped, and
  // FORGE_INVALID_ARGUMENT after the timeout of the caller.
  void wait() const;

 private:
  const forge_step_control* control_ = nullptr;
};

// The attention mask of a run (forge_step_header in forge.h).
struct AttentionMask {
  uint32_t kind = FORGE_MASK_NONE;
  uint32_t n_heads = 0;
  uint32_t stride = 0;  // words from row to row
  std::span<const uint32_t> words;  // [n_tokens, n_heads, stride]

  bool is_bits() const { return kind == FORGE_MASK_BITS; }
  const uint32_t* row(uint32_t token, uint32_t head) const {
    return words.data() + (uint64_t{token} * n_heads + (n_heads == 1 ? 0 : head)) * stride;
  }
};

// A token of a tree whose keys and values are also stored in the pages of a branch.
struct RowCopy {
  uint32_t row;
  uint32_t sequence;
};

// A view of a checked input block: every index in it is in range for the program.
struct StepInputs {
  uint32_t n_tokens = 0;
  uint32_t n_outputs = 0;
  uint32_t n_sequences = 0;
  uint32_t n_pages = 0;
  uint32_t mask_words = 0;
  uint32_t n_steps = 1;
  uint32_t n_adapters = 0;
  std::span<const int32_t> tokens;
  std::span<const int32_t> positions;
  std::span<const int32_t> sequences;
  std::span<const int32_t> parents;  // [n_tokens]; empty if the tokens are chains
  std::span<const int32_t> page_tables;  // [n_sequences, n_pages]
  std::span<const int32_t> slots;        // [n_sequences]; valid if the step has state
  std::span<const int32_t> key_lengths;  // [n_sequences]
  std::span<const float> adapter_scales;  // [n_sequences, n_adapters]
  std::span<const int32_t> output_rows;
  std::span<const forge_sampling> sampling;
  std::span<const int32_t> history;
  std::span<const int32_t> bias_ids;
  std::span<const float> bias_values;
  std::span<const int32_t> end_tokens;
  std::span<const uint32_t> history_sizes;  // [n_outputs]
  std::span<const uint32_t> masks;  // [n_masks, mask_words]; valid after masks_ready.wait()
  MaskGate masks_ready;
  AttentionMask attention_mask;
  std::vector<RowCopy> copies;  // by rows of the branches

  uint32_t rows(Rows kind) const { return kind == Rows::tokens ? n_tokens : n_outputs; }
  // The scale of each adapter for a row.
  const float* scales_of(Rows kind, uint64_t row) const {
    const uint64_t token =
        kind == Rows::tokens ? row : static_cast<uint64_t>(output_rows[static_cast<size_t>(row)]);
    return adapter_scales.data() + static_cast<size_t>(sequences[token]) * n_adapters;
  }
  std::span<const int32_t> page_table(uint32_t token) const {
    return page_table_of(static_cast<uint32_t>(sequences[token]));
  }
  std::span<const int32_t> page_table_of(uint32_t sequence) const {
    return page_tables.subspan(size_t{sequence} * n_pages, n_pages);
  }
  // The row of the token before a token, or -1 if it is not in the step.
  int32_t parent(uint32_t token) const {
    if (!parents.empty()) return parents[token];
    const bool continues = token > 0 && sequences[token - 1] == sequences[token];
    return continues ? static_cast<int32_t>(token) - 1 : -1;
  }
};

// Calls store(page, slot) for each place of a token's keys and values: in the pages of its
// sequence, and of the branches that it is copied to.
template <class Store>
void for_places(const StepInputs& inputs, uint32_t token, uint32_t page_tokens, Store&& store) {
  const auto position = static_cast<uint32_t>(inputs.positions[token]);
  const uint32_t index = position / page_tokens, slot = position % page_tokens;
  store(static_cast<uint32_t>(inputs.page_table(token)[index]), slot);
  for (const RowCopy& copy : inputs.copies) {
    if (copy.row != token) continue;
    store(static_cast<uint32_t>(inputs.page_table_of(copy.sequence)[index]), slot);
  }
}

// The positions that a token sees in an attention operation, besides its mask. Empty if begin ==
// end.
struct KeyRange {
  uint32_t begin;
  uint32_t end;
};
KeyRange visible_keys(const AttentionOp& op, const StepInputs& inputs, uint32_t token);

// The consecutive tokens of one sequence in a step with recurrent state.
struct StateRun {
  uint32_t begin;  // the first of its rows
  uint32_t end;    // the row after its last
  uint32_t slot;
  bool from_zero;  // true if it begins with a state of zeros

  uint32_t length() const { return end - begin; }
};

// Returns the runs of a step in the order of their rows.
std::vector<StateRun> state_runs(const StepInputs& inputs);

// Reads and checks an input block (forge_step_header in forge.h). `data` must be 4-byte aligned.
StepInputs parse_step_inputs(const Program& program, const void* data, uint64_t bytes);

// The result block of a run (forge_result in forge.h).
class ResultBlock {
 public:
  ResultBlock(void* data, uint64_t bytes, uint64_t n_outputs, uint32_t max_top);

  // Returns the block without its first results.
  ResultBlock from(uint64_t first) const;
  forge_result& header(uint64_t output) const;
  int32_t* top_ids(uint64_t output) const;
  float* top_logprobs(uint64_t output) const;

 private:
  ResultBlock(uint8_t* data, uint64_t stride, uint32_t max_top)
      : data_(data), stride_(stride), max_top_(max_top) {}

  uint8_t* data_;
  uint64_t stride_;
  uint32_t max_top_;
};

}  // namespace forge
