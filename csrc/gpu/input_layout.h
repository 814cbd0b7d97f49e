#pragma once

// How the inputs of a run lie in device memory: what has a size that the shape bounds in one piece,
// and the page tables, which most runs leave as they are.

#include "../common/step_inputs.h"
#include "step_rows.h"

namespace forge {

// Byte offsets of the arrays that describe the runs of sequences in a list: int32_t each, as many
// as the shape has entries; those beyond the list's end have no queries.
struct RunLayout {
  uint64_t first_rows, n_queries, n_keys, sequences;
  uint32_t entries;
};

// Byte offsets of the arrays in the piece. The counts stand at its beginning: tokens, outputs, decode
// tiles, prefill tiles, entries of work, and the rows of each kind of product, as uint32_t.
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

  explicit InputLayout(const StepShape& shape);

  uint64_t tokens, positions, sequences, output_rows, sampling, decode_tiles, prefill_tiles, work;
  RunLayout decode_runs, prefill_runs;
  uint64_t decode_tokens, prefill_tokens, decode_outputs, prefill_outputs;  // lists of rows
  uint64_t bytes;
};

// Writes the counts and arrays of a run where the layout of its shape has them.
void write_inputs(const StepInputs& inputs, const QueryTiles& tiles, const InputLayout& layout,
                  uint8_t* to, const StepRows& rows = {});

// Bytes of the page tables of all sequences, whose rows are `limits.max_pages` entries apart.
uint64_t page_table_bytes(const StepLimits& limits);

// Brings the tables of a run's sequences into `known`; whether that changed anything.
bool update_page_tables(const StepInputs& inputs, const StepLimits& limits, uint8_t* known);

}  // namespace forge
