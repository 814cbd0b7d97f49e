#pragma once

// Division of a run's tokens among kernels, and the shape of the plan that runs it.
//
// A sequence's result must not depend on the other sequences of the batch. Kernels that multiply
// few rows at memory speed and kernels that multiply many at the speed of arithmetic add in
// different orders, so the sequence's own run selects the kernel of a row: rows of a run of at most
// kDecodeQueries consecutive tokens are decode rows, those of longer runs are prefill rows. Output
// rows are decode rows if the sequence's run has at most kDecodeQueries outputs.

#include <compare>
#include <cstdint>
#include <vector>

#include "../../kernels/arguments/kv_arguments.h"
#include "../../kernels/arguments/moe_arguments.h"
#include "../../kernels/arguments/state_arguments.h"
#include "../common/step_inputs.h"

namespace forge {

// Structs that kernels read, with the names of kernels/arguments.
using kernel_args::AttentionWork;
using kernel_args::MoeTile;
using kernel_args::QueryTile;
using kernel_args::SlotRun;

// The position after the last query of a tile.
inline uint32_t end_of(const QueryTile& tile) { return tile.first_position + tile.n_queries; }

// Maximum query tokens of a sequence per tile of decode attention and of prefill attention.
constexpr uint32_t kDecodeQueries = 16;
constexpr uint32_t kPrefillQueries = 64;
// Positions per split of decode attention, of short sequences.
constexpr uint32_t kSplitTokens = 256;

// Returns the positions per split for a query that sees `n_keys` positions: at least kSplitTokens,
// and as many more as a limit on the number of splits requires, in steps of an eighth of a power of
// two. Each query's own position selects them, so that the order of its sums depends neither on the
// batch nor on the other queries of its tile.
uint32_t split_tokens(uint64_t n_keys, uint32_t most_splits);

// The lists that the kernels of a step read.
struct TilingPolicy {
  uint32_t decode_queries = kDecodeQueries;  // longer runs of a sequence are prefill
  uint32_t most_splits = UINT32_MAX;         // of a sequence in decode attention
  // True if attention without causality reads the lists.
  bool sees_ahead = false;
  // True if a library computes whole runs.
  bool lists_decode_runs = false;
  bool lists_prefill_runs = false;
  // True if the step has recurrent state.
  bool lists_slots = false;
  // Of the caches; 0 without them.
  uint32_t page_tokens = 0;
  uint32_t n_pages = 0;
};

// Splits the tokens of a run where the sequence changes or positions are not consecutive.
std::vector<QueryTile> sequence_runs(const StepInputs& inputs);

// The tokens of a run as attention and recurrent operations compute them.
struct QueryTiles {
  std::vector<QueryTile> decode;     // at most kDecodeQueries queries each
  std::vector<QueryTile> prefill;    // at most kPrefillQueries queries each
  std::vector<AttentionWork> work;   // of the decode tiles
  std::vector<QueryTile> decode_runs, prefill_runs;  // of any length; empty if not listed
  std::vector<SlotRun> slots;        // empty if not listed
};

// Row indices, ascending.
struct RowClasses {
  std::vector<uint32_t> decode;
  std::vector<uint32_t> prefill;
};

struct StepRows {
  RowClasses tokens;
  RowClasses outputs;
};

// Sizes of a run, rounded up so that few plans serve all runs.
struct StepShape {
  uint32_t tokens = 0;
  uint32_t outputs = 0;
  uint32_t decode_queries = 0;  // maximum of a decode tile; 0: no decode tiles
  uint32_t decode_work = 0;     // entries of work
  uint32_t prefill_tiles = 0;
  uint32_t decode_runs = 0;     // entries of the lists
  uint32_t prefill_runs = 0;
  uint32_t slots = 0;
  uint32_t copies = 0;
  uint32_t decode_tokens = 0;   // rows of each class
  uint32_t prefill_tokens = 0;
  uint32_t decode_outputs = 0;
  uint32_t prefill_outputs = 0;
  bool draws = false;        // true if the token of an output is drawn
  bool reports_top = false;  // true if an output reports its most probable tokens
  // The kind of the attention mask (FORGE_MASK_...), and its heads.
  uint32_t mask_kind = 0;
  uint32_t mask_heads = 0;
  // True if no token sees a position that another token of the run appends.
  bool appends_apart = false;

  auto operator<=>(const StepShape&) const = default;

  uint32_t max_decode_tiles() const { return decode_queries == 0 ? 0 : tokens; }
};

// The tokens of a run divided among kernels, and the shape of the plan that runs them.
struct StepWork {
  QueryTiles tiles;
  StepRows rows;
  StepShape shape;
};

StepWork partition_rows(const StepInputs& inputs, const StepLimits& limits,
                        const TilingPolicy& policy = {});

// Returns shapes that together use every kernel and the most memory of any run whose sequences
// share no pages.
std::vector<StepShape> typical_shapes(const Program& program, const TilingPolicy& policy = {});

}  // namespace forge
