#include "step_work.h"

#include <algorithm>
#include <bit>
#include <functional>

namespace forge {

namespace {

// Sizes up to kFine are rounded to powers of two, larger ones to multiples of kFine.
constexpr uint32_t kFine = 64;

uint32_t round_up(size_t n) { return n == 0 ? 0 : std::bit_ceil(static_cast<uint32_t>(n)); }

// Granularity of longer splits, at least a slice of every warp of a block.
constexpr uint32_t kSplitUnit = 64;

uint32_t splits_of(uint64_t positions, uint32_t tokens) {
  return static_cast<uint32_t>((positions + tokens - 1) / tokens);
}

// Rounds a number of rows up, to at most `limit`.
uint32_t rounded_rows(uint64_t n, uint32_t limit) {
  if (n == 0) return 0;
  const uint64_t rounded = n <= kFine ? std::bit_ceil(n) : (n + kFine - 1) / kFine * kFine;
  return static_cast<uint32_t>(std::min<uint64_t>(rounded, limit));
}

}  // namespace

uint32_t split_tokens(uint64_t n_keys, uint32_t most_splits) {
  const auto least = static_cast<uint32_t>((n_keys + most_splits - 1) / most_splits);
  if (least <= kSplitTokens) return kSplitTokens;
  const uint32_t unit = std::max(kSplitUnit, std::bit_floor(least) / 8);
  return (least + unit - 1) / unit * unit;
}

std::vector<QueryTile> sequence_runs(const StepInputs& inputs) {
  std::vector<QueryTile> runs;
  for (uint32_t row = 0; row < inputs.n_tokens; ++row) {
    const auto sequence = static_cast<uint32_t>(inputs.sequences[row]);
    const auto position = static_cast<uint32_t>(inputs.positions[row]);
    if (!runs.empty() && runs.back().sequence == sequence && end_of(runs.back()) == position) {
      ++runs.back().n_queries;
    } else {
      runs.push_back({row, 1, sequence, position,
                      static_cast<uint32_t>(inputs.key_lengths[sequence])});
    }
  }
  return runs;
}

namespace {

// The positions that the queries of a tile up to `position` may see.
uint32_t seen_at(uint32_t position, const QueryTile& tile, const TilingPolicy& policy) {
  return std::max(position + 1, policy.sees_ahead ? tile.n_keys : 0);
}

// Short runs are fastest with the kernel that splits the keys, long ones with the one that shares
// them.
QueryTiles query_tiles(const StepInputs& inputs, const TilingPolicy& policy) {
  QueryTiles tiles;
  for (const QueryTile& run : sequence_runs(inputs)) {
    const bool is_short = run.n_queries <= policy.decode_queries;
    if (is_short ? policy.lists_decode_runs : policy.lists_prefill_runs) {
      (is_short ? tiles.decode_runs : tiles.prefill_runs).push_back(run);
    }
    std::vector<QueryTile>& list = is_short ? tiles.decode : tiles.prefill;
    const auto split_at = [&](uint32_t position) {
      return split_tokens(seen_at(position, run, policy), policy.most_splits);
    };
    for (uint32_t done = 0, n = 0; done < run.n_queries; done += n) {
      const uint32_t position = run.first_position + done;
      n = std::min(is_short ? kDecodeQueries : kPrefillQueries, run.n_queries - done);
      // Decoded queries of a tile share its splits.
      while (is_short && split_at(position + n - 1) != split_at(position)) --n;
      list.push_back({run.first_row + done, n, run.sequence, position, run.n_keys});
    }
  }
  if (policy.lists_slots) {
    for (const StateRun& run : state_runs(inputs)) {
      tiles.slots.push_back({run.begin, run.length(), run.slot, run.from_zero});
    }
  }
  for (const QueryTile& tile : tiles.decode) {
    const uint32_t seen = seen_at(end_of(tile) - 1, tile, policy);
    const uint32_t tokens = split_tokens(seen, policy.most_splits);
    const uint32_t n_splits = splits_of(seen, tokens);
    for (uint32_t split = 0; split < n_splits; ++split) {
      tiles.work.push_back({tile, split, tokens, n_splits});
    }
  }
  // The longest splits start first, so that no processor ends with one alone.
  std::ranges::stable_sort(tiles.work, std::greater(), &AttentionWork::split_tokens);
  return tiles;
}

StepRows step_rows(const StepInputs& inputs) {
  const std::vector<QueryTile> runs = sequence_runs(inputs);
  std::vector<uint32_t> run_of_token(inputs.n_tokens), n_outputs(runs.size());
  StepRows rows;
  for (uint32_t run = 0; run < runs.size(); ++run) {
    const bool is_short = runs[run].n_queries <= kDecodeQueries;
    for (uint32_t i = 0; i < runs[run].n_queries; ++i) {
      const uint32_t token = runs[run].first_row + i;
      run_of_token[token] = run;
      (is_short ? rows.tokens.decode : rows.tokens.prefill).push_back(token);
    }
  }
  const auto run_of_output = [&](uint32_t output) {
    return run_of_token[static_cast<uint32_t>(inputs.output_rows[output])];
  };
  for (uint32_t output = 0; output < inputs.n_outputs; ++output) ++n_outputs[run_of_output(output)];
  for (uint32_t output = 0; output < inputs.n_outputs; ++output) {
    const bool is_few = n_outputs[run_of_output(output)] <= kDecodeQueries;
    (is_few ? rows.outputs.decode : rows.outputs.prefill).push_back(output);
  }
  return rows;
}

// True if no token sees a position that another one appends: the pages to which a token appends, in
// all steps of the run, are not among those that another one reads or to which it appends.
bool append_apart(const StepInputs& inputs, const TilingPolicy& policy) {
  if (policy.page_tokens == 0 || policy.sees_ahead || !inputs.parents.empty()) return false;
  const auto pages_of = [&](uint32_t token, uint32_t steps) {
    const uint32_t end = static_cast<uint32_t>(inputs.positions[token]) + steps;
    return inputs.page_table(token).first((end + policy.page_tokens - 1) / policy.page_tokens);
  };
  const auto appended = [&](uint32_t token) {
    return pages_of(token, inputs.n_steps)
        .subspan(static_cast<uint32_t>(inputs.positions[token]) / policy.page_tokens);
  };
  std::vector<bool> is_appended(policy.n_pages);
  for (uint32_t token = 0; token < inputs.n_tokens; ++token) {
    for (const int32_t page : appended(token)) {
      if (is_appended[static_cast<size_t>(page)]) return false;
      is_appended[static_cast<size_t>(page)] = true;
    }
  }
  for (uint32_t token = 0; token < inputs.n_tokens; ++token) {
    const auto all = pages_of(token, inputs.n_steps);
    for (const int32_t page : all.first(all.size() - appended(token).size())) {
      if (is_appended[static_cast<size_t>(page)]) return false;
    }
  }
  return true;
}

StepShape shape_of(const StepInputs& inputs, const QueryTiles& tiles, const StepRows& rows,
                   const StepLimits& limits, const TilingPolicy& policy) {
  const auto& [tokens, outputs] = rows;
  StepShape shape;
  shape.tokens = rounded_rows(inputs.n_tokens, limits.max_tokens);
  shape.outputs = rounded_rows(inputs.n_outputs, limits.max_outputs);
  uint32_t queries = 0;
  for (const QueryTile& tile : tiles.decode) queries = std::max(queries, tile.n_queries);
  shape.decode_queries = queries == 0 ? 0 : std::bit_ceil(queries);
  shape.decode_work = round_up(tiles.work.size());
  for (const forge_sampling& sampling : inputs.sampling) {
    shape.draws |= sampling.temperature > 0 && sampling.forced_token < 0;
    shape.reports_top |= sampling.n_top > 0;
  }
  shape.mask_kind = inputs.attention_mask.kind;
  shape.mask_heads = inputs.attention_mask.n_heads;
  shape.prefill_tiles = round_up(tiles.prefill.size());
  shape.decode_runs = round_up(tiles.decode_runs.size());
  shape.prefill_runs = round_up(tiles.prefill_runs.size());
  shape.slots = rounded_rows(tiles.slots.size(), limits.max_sequences);
  shape.copies = round_up(inputs.copies.size());
  shape.decode_tokens = rounded_rows(tokens.decode.size(), limits.max_tokens);
  shape.prefill_tokens = rounded_rows(tokens.prefill.size(), limits.max_tokens);
  shape.decode_outputs = rounded_rows(outputs.decode.size(), limits.max_outputs);
  shape.prefill_outputs = rounded_rows(outputs.prefill.size(), limits.max_outputs);
  shape.appends_apart = append_apart(inputs, policy);
  return shape;
}

}  // namespace

StepWork partition_rows(const StepInputs& inputs, const StepLimits& limits,
                        const TilingPolicy& policy) {
  StepWork work{query_tiles(inputs, policy), step_rows(inputs), {}};
  work.shape = shape_of(inputs, work.tiles, work.rows, limits, policy);
  return work;
}

std::vector<StepShape> typical_shapes(const Program& program, const TilingPolicy& policy) {
  const StepLimits& limits = program.limits;
  // Splits of one sequence of maximum length, and of as many tokens as the pages hold.
  const auto most_splits = [&](uint64_t pages, uint64_t sequences) {
    const uint64_t splits = splits_of(pages * program.page_tokens, kSplitTokens);
    return static_cast<uint32_t>(std::min(splits, sequences * policy.most_splits));
  };
  const uint32_t one = most_splits(limits.max_pages, 1);
  const uint32_t all = most_splits(program.n_pages, limits.max_sequences);
  std::vector<StepShape> shapes;
  const auto add = [&](uint32_t tokens) {
    const uint32_t outputs = rounded_rows(tokens, limits.max_outputs);
    const uint32_t sequences = std::min(tokens, limits.max_sequences);
    // The shortest prefill run is a tile of its own.
    const uint32_t runs = tokens / (policy.decode_queries + 1);
    StepShape shape{.tokens = tokens,
                    .outputs = outputs,
                    .decode_queries = 1,
                    .decode_work = std::bit_ceil(std::max(one, all) + sequences),
                    .prefill_tiles = round_up(runs),
                    .decode_runs = policy.lists_decode_runs ? round_up(tokens) : 0,
                    .prefill_runs = policy.lists_prefill_runs ? round_up(runs) : 0,
                    .slots = policy.lists_slots ? sequences : 0,
                    .decode_tokens = tokens,
                    .prefill_tokens = tokens > kDecodeQueries ? tokens : 0,
                    .decode_outputs = outputs,
                    .prefill_outputs = outputs > kDecodeQueries ? outputs : 0,
                    .draws = true,
                    .reports_top = true,
                    .appends_apart = policy.page_tokens > 0 && runs == 0 && !policy.sees_ahead};
    shapes.push_back(shape);
    shape.appends_apart = false;
    shape.decode_queries = policy.decode_queries;
    shape.decode_work = std::bit_ceil(one + sequences);
    shapes.push_back(shape);
  };
  for (uint32_t tokens = 1; tokens < limits.max_tokens && tokens <= kFine; tokens *= 2) add(tokens);
  add(limits.max_tokens);
  return shapes;
}

}  // namespace forge
