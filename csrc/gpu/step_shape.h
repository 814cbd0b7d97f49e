#pragma once

#include <compare>
#include <cstdint>
#include <vector>

#include "../common/step_inputs.h"
#include "tiles.h"

namespace forge {

// The most query tokens of a sequence that decode attention takes together, and prefill attention.
constexpr uint32_t kDecodeQueries = 16;
constexpr uint32_t kPrefillQueries = 64;
// The positions in one split of decode attention: a fixed number, so that how a sequence is summed
// up does not depend on the others of its batch.
constexpr uint32_t kSplitTokens = 256;

// How the kernels of a step's attention want its tokens.
struct TilingPolicy {
  uint32_t decode_queries = kDecodeQueries;  // longer runs of a sequence count as prefill
  // Whether a library takes whole runs, beside the tiles.
  bool lists_decode_runs = false;
  bool lists_prefill_runs = false;
  // Whether the step has recurrent state.
  bool lists_slots = false;
};

// The tokens of a run, cut where the sequence changes or positions do not follow one another.
std::vector<QueryTile> sequence_runs(const StepInputs& inputs);

// How the tokens of a run are dealt out to attention.
struct QueryTiles {
  std::vector<QueryTile> decode;   // at most kDecodeQueries queries each
  std::vector<QueryTile> prefill;  // at most kPrefillQueries
  std::vector<AttentionWork> work;  // of the decode tiles
  std::vector<QueryTile> decode_runs, prefill_runs;  // of any length; those that are listed
  std::vector<SlotRun> slots;  // where the step has recurrent state
};

// Cuts the runs of sequences into tiles. Short runs are read fastest by the kernel that splits the
// keys, long ones by the one that shares them.
QueryTiles query_tiles(const StepInputs& inputs, const TilingPolicy& policy = {});

// What a plan of launches is made for: the sizes of a run, rounded up, so that few plans serve all.
struct StepShape {
  uint32_t tokens = 0;
  uint32_t outputs = 0;         // 0: none
  uint32_t decode_queries = 0;  // the most of a decode tile; 0: there is none
  uint32_t decode_work = 0;     // entries of work
  uint32_t prefill_tiles = 0;
  uint32_t decode_runs = 0;     // entries of the lists of runs
  uint32_t prefill_runs = 0;
  uint32_t slots = 0;           // likewise
  // Rows by the kind of product that computes them (step_rows.h); 0 where products do not tell.
  uint32_t decode_tokens = 0;
  uint32_t prefill_tokens = 0;
  uint32_t decode_outputs = 0;
  uint32_t prefill_outputs = 0;
  bool reports_top = false;  // whether an output asks for the most probable tokens

  auto operator<=>(const StepShape&) const = default;

  uint32_t max_decode_tiles() const { return decode_queries == 0 ? 0 : tokens; }
};

// A number of rows as shapes have it: rounded up, but to no more than the limit.
uint32_t rounded_rows(uint64_t n, uint32_t limit);

// The shape of the plan that runs these inputs, under a step's limits; without rows by their kind,
// which deal_out (run_work.h) adds.
StepShape shape_of(const StepInputs& inputs, const QueryTiles& tiles, const StepLimits& limits);

// Shapes that use, between them, every kernel and the most memory of any run whose sequences share
// no pages.
std::vector<StepShape> typical_shapes(const Program& program, const TilingPolicy& policy = {});

}  // namespace forge
