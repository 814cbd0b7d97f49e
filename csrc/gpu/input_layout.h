#pragma once

// Layout of a run's inputs in device memory: one piece for all arrays whose size the shape bounds,
// the page tables, which rarely change, and arrays that most runs lack.

#include "../../kernels/arguments/cuda_arguments.h"
#include "../common/step_series.h"
#include "step_work.h"

namespace forge {

// Byte offsets of the arrays that describe the runs of sequences in a list: int32_t, one
// for each entry of the shape. Entries past the end of the list have no queries.
struct RunLayout {
  uint64_t first_rows, n_queries, ends, n_keys, sequences;
  uint32_t entries;
};

// Byte offsets of the arrays in the piece. It begins with counts, as uint32_t: tokens, outputs,
// decode tiles, prefill tiles, entries of work, the rows of each class, the words from row to row
// of the attention mask, and copies.
struct InputLayout {
  static constexpr uint64_t n_tokens = 0;
  static constexpr uint64_t n_outputs = 4;
  static constexpr uint64_t n_decode_tiles = 8;
  static constexpr uint64_t n_prefill_tiles = 12;
  static constexpr uint64_t n_work = 16;
  static constexpr uint64_t n_decode_tokens = 20;
  static constexpr uint64_t n_prefill_tokens = 24;
  static constexpr uint64_t n_decode_outputs = 28;
  static constexpr uint64_t n_prefill_outputs = 32;
  static constexpr uint64_t attention_mask_stride = 36;
  static constexpr uint64_t n_copies = 40;

  explicit InputLayout(const StepShape& shape);

  uint64_t tokens, positions, sequences, parents, n_keys, output_rows, sampling, decode_tiles;
  uint64_t prefill_tiles, work;
  RunLayout decode_runs, prefill_runs;
  uint64_t slots;   // SlotRun
  uint64_t copies;  // RowCopy
  uint64_t decode_tokens, prefill_tokens, decode_outputs, prefill_outputs;  // lists of rows
  uint64_t bytes;
};

using cuda_args::RowSet;

// The arrays of a list of runs (RunLayout).
template <class Address>
struct RunAddresses {
  Address first_rows{}, n_queries{}, ends{}, n_keys{}, sequences{};
};

// Addresses of the inputs of a run. They are the same for all runs of a shape, so that its launches
// can be planned once.
template <class Address>
struct InputAddresses {
  // In the piece (InputLayout).
  Address n_tokens{}, n_outputs{}, n_decode_tiles{}, n_prefill_tiles{}, n_work{};
  Address attention_mask_stride{}, n_copies{};
  Address tokens{}, positions{}, sequences{}, parents{}, output_rows{}, sampling{};
  Address n_keys{};  // of each token's sequence, for attention without causality
  Address decode_tiles{}, prefill_tiles{}, work{};
  RunAddresses<Address> decode_runs, prefill_runs;
  Address slots{}, copies{};
  RowSet<Address> decode_tokens, prefill_tokens, decode_outputs, prefill_outputs;
  // Outside the piece.
  Address page_tables{};  // rows are `page_stride` entries apart
  uint32_t page_stride = 0;
  Address history{}, bias_ids{}, bias_values{};
  Address masks{};  // rows are `mask_words` words long
  uint32_t mask_words = 0;
  Address attention_mask{};
  Address adapter_scales{};
};

// Returns the addresses in the piece at `piece`; the others are left empty.
template <class Address>
InputAddresses<Address> addresses_in(const Address& piece, const InputLayout& layout) {
  using Layout = InputLayout;
  const auto runs = [&](const RunLayout& list) {
    return RunAddresses<Address>{piece + list.first_rows, piece + list.n_queries,
                                 piece + list.ends, piece + list.n_keys, piece + list.sequences};
  };
  InputAddresses<Address> at;
  at.n_tokens = piece + Layout::n_tokens;
  at.n_outputs = piece + Layout::n_outputs;
  at.n_decode_tiles = piece + Layout::n_decode_tiles;
  at.n_prefill_tiles = piece + Layout::n_prefill_tiles;
  at.n_work = piece + Layout::n_work;
  at.attention_mask_stride = piece + Layout::attention_mask_stride;
  at.n_copies = piece + Layout::n_copies;
  at.tokens = piece + layout.tokens;
  at.positions = piece + layout.positions;
  at.sequences = piece + layout.sequences;
  at.parents = piece + layout.parents;
  at.n_keys = piece + layout.n_keys;
  at.output_rows = piece + layout.output_rows;
  at.sampling = piece + layout.sampling;
  at.decode_tiles = piece + layout.decode_tiles;
  at.prefill_tiles = piece + layout.prefill_tiles;
  at.work = piece + layout.work;
  at.decode_runs = runs(layout.decode_runs);
  at.prefill_runs = runs(layout.prefill_runs);
  at.slots = piece + layout.slots;
  at.copies = piece + layout.copies;
  at.decode_tokens = {piece + Layout::n_decode_tokens, piece + layout.decode_tokens};
  at.prefill_tokens = {piece + Layout::n_prefill_tokens, piece + layout.prefill_tokens};
  at.decode_outputs = {piece + Layout::n_decode_outputs, piece + layout.decode_outputs};
  at.prefill_outputs = {piece + Layout::n_prefill_outputs, piece + layout.prefill_outputs};
  return at;
}

// Writes the counts and arrays of a run into its piece.
void write_inputs(const StepInputs& inputs, const StepWork& work, uint8_t* to);

// Layout of what next_step reads of a series: SeriesControl, end tokens, and the pieces of all
// steps but the first.
struct SeriesLayout {
  SeriesLayout(const StepInputs& first, const StepShape& shape);
  uint64_t pieces, piece_bytes, bytes;
};

// Divides the rows of all steps of a series; their works have one shape. Empty if that is
// impossible.
std::vector<StepWork> partition_series(SeriesInputs& series, const StepLimits& limits,
                                       const TilingPolicy& policy);

// Writes a series as SeriesLayout describes it.
void write_series(SeriesInputs& series, const std::vector<StepWork>& work, uint8_t* to);

// Bytes of device memory for the inputs of runs of these shapes, without the arrays that most runs
// lack.
uint64_t input_bytes(const Program& program, const std::vector<StepShape>& shapes);

// Words of a mask over the vocabulary.
inline uint32_t mask_words(const Program& program) {
  return static_cast<uint32_t>((program.logits_cols + 31) / 32);
}

// Bytes of the page tables of all sequences, whose rows are `limits.max_pages` entries apart.
uint64_t page_table_bytes(const StepLimits& limits);

// Copies the page tables of a run's sequences to `known`. Returns true if they changed.
bool update_page_tables(const StepInputs& inputs, const StepLimits& limits, uint8_t* known);

}  // namespace forge
