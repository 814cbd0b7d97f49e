#include "input_layout.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "rounding.h"

namespace forge {

namespace {

// Room for the counts, with spare entries.
constexpr uint64_t kCounts = 12;

// Allocates consecutive arrays, aligned for vector loads.
class Places {
 public:
  uint64_t take(uint64_t bytes) {
    const uint64_t at = end_;
    end_ = padded_to(end_ + bytes, 16);
    return at;
  }
  uint64_t end() const { return end_; }

 private:
  uint64_t end_ = kCounts * sizeof(uint32_t);
};

template <class T>
void put(uint8_t* at, std::span<const T> values) {
  if (!values.empty()) std::memcpy(at, values.data(), values.size_bytes());
}

RunLayout run_layout(Places& places, uint32_t entries) {
  const uint64_t bytes = entries * sizeof(int32_t);
  return {places.take(bytes), places.take(bytes), places.take(bytes),
          places.take(bytes), places.take(bytes), entries};
}

void put_runs(uint8_t* to, const RunLayout& layout, const std::vector<QueryTile>& runs) {
  for (uint32_t i = 0; i < layout.entries; ++i) {
    const QueryTile run = i < runs.size() ? runs[i] : QueryTile{};
    const auto put_at = [&](uint64_t array, uint32_t value) {
      std::memcpy(to + array + i * sizeof value, &value, sizeof value);
    };
    put_at(layout.first_rows, run.first_row);
    put_at(layout.n_queries, run.n_queries);
    put_at(layout.ends, i < runs.size() ? end_of(run) : 0);
    put_at(layout.n_keys, run.n_keys);
    put_at(layout.sequences, run.sequence);
  }
}

}  // namespace

InputLayout::InputLayout(const StepShape& shape) {
  Places places;
  tokens = places.take(shape.tokens * sizeof(int32_t));
  positions = places.take(shape.tokens * sizeof(int32_t));
  sequences = places.take(shape.tokens * sizeof(int32_t));
  parents = places.take(shape.tokens * sizeof(int32_t));
  n_keys = places.take(shape.tokens * sizeof(int32_t));
  output_rows = places.take(shape.outputs * sizeof(int32_t));
  sampling = places.take(shape.outputs * sizeof(forge_sampling));
  decode_tiles = places.take(shape.max_decode_tiles() * sizeof(QueryTile));
  prefill_tiles = places.take(shape.prefill_tiles * sizeof(QueryTile));
  work = places.take(shape.decode_work * sizeof(AttentionWork));
  decode_runs = run_layout(places, shape.decode_runs);
  prefill_runs = run_layout(places, shape.prefill_runs);
  slots = places.take(shape.slots * sizeof(SlotRun));
  copies = places.take(shape.copies * sizeof(RowCopy));
  decode_tokens = places.take(shape.decode_tokens * sizeof(uint32_t));
  prefill_tokens = places.take(shape.prefill_tokens * sizeof(uint32_t));
  decode_outputs = places.take(shape.decode_outputs * sizeof(uint32_t));
  prefill_outputs = places.take(shape.prefill_outputs * sizeof(uint32_t));
  bytes = places.end();
}

void write_inputs(const StepInputs& inputs, const StepWork& work, uint8_t* to) {
  const InputLayout layout(work.shape);
  const auto& [tiles, rows, shape] = work;
  const auto count = [&](uint64_t at, size_t n) {
    const auto value = static_cast<uint32_t>(n);
    std::memcpy(to + at, &value, sizeof value);
  };
  count(InputLayout::n_tokens, inputs.n_tokens);
  count(InputLayout::n_outputs, inputs.n_outputs);
  count(InputLayout::n_decode_tiles, tiles.decode.size());
  count(InputLayout::n_prefill_tiles, tiles.prefill.size());
  count(InputLayout::n_work, tiles.work.size());
  count(InputLayout::n_decode_tokens, rows.tokens.decode.size());
  count(InputLayout::n_prefill_tokens, rows.tokens.prefill.size());
  count(InputLayout::n_decode_outputs, rows.outputs.decode.size());
  count(InputLayout::n_prefill_outputs, rows.outputs.prefill.size());
  count(InputLayout::attention_mask_stride, inputs.attention_mask.stride);
  count(InputLayout::n_copies, inputs.copies.size());
  std::vector<int32_t> n_keys, parents;
  for (uint32_t t = 0; t < inputs.n_tokens; ++t) {
    n_keys.push_back(inputs.key_lengths[static_cast<size_t>(inputs.sequences[t])]);
    parents.push_back(inputs.parent(t));
  }
  put(to + layout.n_keys, std::span<const int32_t>(n_keys));
  put(to + layout.parents, std::span<const int32_t>(parents));
  static_assert(sizeof(RowCopy) == sizeof(kernel_args::RowCopy));
  put(to + layout.copies, std::span<const RowCopy>(inputs.copies));
  put(to + layout.tokens, inputs.tokens);
  put(to + layout.positions, inputs.positions);
  put(to + layout.sequences, inputs.sequences);
  put(to + layout.output_rows, inputs.output_rows);
  put(to + layout.sampling, inputs.sampling);
  put(to + layout.decode_tiles, std::span<const QueryTile>(tiles.decode));
  put(to + layout.prefill_tiles, std::span<const QueryTile>(tiles.prefill));
  put(to + layout.work, std::span<const AttentionWork>(tiles.work));
  std::memset(to + layout.work + tiles.work.size() * sizeof(AttentionWork), 0,
              (shape.decode_work - tiles.work.size()) * sizeof(AttentionWork));
  put(to + layout.decode_tokens, std::span<const uint32_t>(rows.tokens.decode));
  put(to + layout.prefill_tokens, std::span<const uint32_t>(rows.tokens.prefill));
  put(to + layout.decode_outputs, std::span<const uint32_t>(rows.outputs.decode));
  put(to + layout.prefill_outputs, std::span<const uint32_t>(rows.outputs.prefill));
  put(to + layout.slots, std::span<const SlotRun>(tiles.slots));
  std::memset(to + layout.slots + tiles.slots.size() * sizeof(SlotRun), 0,
              (shape.slots - tiles.slots.size()) * sizeof(SlotRun));
  put_runs(to, layout.decode_runs, tiles.decode_runs);
  put_runs(to, layout.prefill_runs, tiles.prefill_runs);
}

SeriesLayout::SeriesLayout(const StepInputs& first, const StepShape& shape)
    : pieces(padded_to(sizeof(kernel_args::SeriesControl) + first.end_tokens.size_bytes(), 16)),
      piece_bytes(InputLayout(shape).bytes),
      bytes(pieces + (first.n_steps - 1) * piece_bytes) {}

std::vector<StepWork> partition_series(SeriesInputs& series, const StepLimits& limits,
                                       const TilingPolicy& policy) {
  std::vector<StepWork> work;
  uint32_t decode_work = 0;
  for (uint32_t step = 0; step < series.n_steps(); ++step) {
    work.push_back(partition_rows(series.at(step), limits, policy));
    decode_work = std::max(decode_work, work.back().shape.decode_work);
  }
  // Entries of work that a step lacks are unused.
  for (StepWork& of_step : work) {
    of_step.shape.decode_work = decode_work;
    if (of_step.shape != work[0].shape) return {};
  }
  return work;
}

void write_series(SeriesInputs& series, const std::vector<StepWork>& work, uint8_t* to) {
  const StepInputs& first = series.at(0);
  const SeriesLayout layout(first, work[0].shape);
  const kernel_args::SeriesControl control = {
      .step = 0,
      .ended = 0,
      .n_steps = series.n_steps(),
      .n_end_tokens = static_cast<uint32_t>(first.end_tokens.size()),
      .n_outputs = first.n_outputs,
      .pieces = static_cast<uint32_t>(layout.pieces)};
  std::memcpy(to, &control, sizeof control);
  put(to + sizeof control, first.end_tokens);
  for (uint32_t step = 1; step < series.n_steps(); ++step) {
    write_inputs(series.at(step), work[step], to + layout.pieces + (step - 1) * layout.piece_bytes);
  }
}

uint64_t input_bytes(const Program& program, const std::vector<StepShape>& shapes) {
  uint64_t most = 0;
  for (const StepShape& shape : shapes) most = std::max(most, InputLayout(shape).bytes);
  // The piece grows in powers of two.
  return std::bit_ceil(most) + page_table_bytes(program.limits);
}

uint64_t page_table_bytes(const StepLimits& limits) {
  return uint64_t{limits.max_sequences} * limits.max_pages * sizeof(int32_t);
}

bool update_page_tables(const StepInputs& inputs, const StepLimits& limits, uint8_t* known) {
  const uint64_t width = inputs.n_pages * sizeof(int32_t);
  const uint64_t pitch = limits.max_pages * sizeof(int32_t);
  bool changed = false;
  for (uint32_t s = 0; s < inputs.n_sequences; ++s) {
    const int32_t* from = inputs.page_tables.data() + uint64_t{s} * inputs.n_pages;
    uint8_t* row = known + s * pitch;
    if (std::memcmp(row, from, width) == 0) continue;
    std::memcpy(row, from, width);
    changed = true;
  }
  return changed;
}

}  // namespace forge
