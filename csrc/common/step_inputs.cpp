#include "step_inputs.h"

#include <algorithm>
#include <bit>
#include <chrono>
#include <cmath>
#include <thread>

#include "error.h"

namespace forge {

namespace {

// Reads consecutive arrays of the block. Throws at its end.
class BlockReader {
 public:
  BlockReader(const void* data, uint64_t bytes)
      : at_(static_cast<const uint8_t*>(data)), left_(bytes) {}

  template <class T>
  std::span<const T> take(const char* name, uint64_t count) {
    static_assert(sizeof(T) % 4 == 0);
    require(count <= left_ / sizeof(T), "step inputs: ", name, " needs ", count, " entries of ",
            sizeof(T), " bytes, ", left_, " bytes are left");
    const T* begin = reinterpret_cast<const T*>(at_);
    at_ += count * sizeof(T);
    left_ -= count * sizeof(T);
    return {begin, static_cast<size_t>(count)};
  }

  void expect_end() const {
    require(left_ == 0, "step inputs: ", left_, " bytes follow the last array");
  }

 private:
  const uint8_t* at_;
  uint64_t left_;
};

void check_range(const char* name, std::span<const int32_t> values, uint64_t limit) {
  for (size_t i = 0; i < values.size(); ++i) {
    require(values[i] >= 0 && static_cast<uint64_t>(values[i]) < limit, "step inputs: ", name, "[",
            i, "] is ", values[i], "; valid is 0 to ", static_cast<int64_t>(limit) - 1);
  }
}

void check_count(const char* name, uint32_t count, uint32_t most) {
  require(count <= most, "step inputs: ", name, " is ", count, "; the step allows ", most);
}

void check_sampling(const Program& program, const StepInputs& in, const forge_step_header& header) {
  for (const forge_sampling& s : in.sampling) {
    // NaN fails every one of these comparisons.
    require(s.temperature >= 0 && std::isfinite(s.temperature), "sampling: temperature is ",
            s.temperature, "; valid is a finite number >= 0");
    require(s.top_p >= 0 && s.top_p <= 1, "sampling: top_p is ", s.top_p, "; valid is 0 to 1");
    require(s.min_p >= 0 && s.min_p <= 1, "sampling: min_p is ", s.min_p, "; valid is 0 to 1");
    require(s.repeat_penalty > 0 && std::isfinite(s.repeat_penalty),
            "sampling: repeat_penalty is ", s.repeat_penalty, "; valid is a finite number > 0");
    require(std::isfinite(s.presence_penalty) && std::isfinite(s.frequency_penalty),
            "sampling: a penalty is not finite");
    require(s.forced_token < 0 || static_cast<uint64_t>(s.forced_token) < program.logits_cols,
            "sampling: forced_token is ", s.forced_token, " of ", program.logits_cols);
    require(s.history_begin <= s.history_end && s.history_end <= header.n_history,
            "sampling: history slice [", s.history_begin, ", ", s.history_end, ") of ",
            header.n_history);
    require(s.bias_begin <= s.bias_end && s.bias_end <= header.n_bias, "sampling: bias slice [",
            s.bias_begin, ", ", s.bias_end, ") of ", header.n_bias);
    require(s.mask < 0 || static_cast<uint32_t>(s.mask) < header.n_masks, "sampling: mask is ",
            s.mask, " of ", header.n_masks);
    require(s.n_top <= program.max_top, "sampling: n_top is ", s.n_top, "; the step reports ",
            program.max_top);
  }
  check_range("history", in.history, program.logits_cols);
  check_range("bias_ids", in.bias_ids, program.logits_cols);
  for (const float value : in.bias_values) {
    require(value < INFINITY, "step inputs: a bias value is ", value,
            "; valid is a number, or -infinity to ban a token");
  }
}

// Checks the inputs of a run of several steps.
void check_steps(const Program& program, const StepInputs& in, const forge_step_header& header) {
  constexpr uint32_t kMostSteps = 1024;
  require(in.n_steps >= 1 && in.n_steps <= kMostSteps, "step inputs: n_steps is ", in.n_steps,
          "; valid is 1 to ", kMostSteps);
  if (in.n_steps == 1) return;
  require(program.samples, "step inputs: n_steps is ", in.n_steps,
          " for a step that chooses no tokens");
  require(in.n_tokens == in.n_sequences && in.n_tokens == in.n_outputs,
          "step inputs: several steps need as many tokens as sequences and outputs; they got ",
          in.n_tokens, ", ", in.n_sequences, " and ", in.n_outputs);
  require(header.n_masks == 0 && header.attention_mask == FORGE_MASK_NONE,
          "step inputs: several steps take no masks");
  require(in.parents.empty(), "step inputs: several steps take no parents");
  require(program.is_causal, "step inputs: several steps need causal attention");
  const uint64_t n_positions = program.page_tokens
                                   ? static_cast<uint64_t>(in.n_pages) * program.page_tokens
                                   : static_cast<uint64_t>(INT32_MAX);
  for (uint32_t t = 0; t < in.n_tokens; ++t) {
    require(in.sequences[t] == static_cast<int32_t>(t) &&
                in.output_rows[t] == static_cast<int32_t>(t),
            "step inputs: several steps need sequence ", t, " and output ", t, " for token ", t);
    require(in.sampling[t].forced_token < 0, "step inputs: several steps take no forced tokens");
    require(static_cast<uint64_t>(in.positions[t]) + in.n_steps <= n_positions,
            "step inputs: ", in.n_steps, " steps from position ", in.positions[t], "; there are ",
            n_positions);
  }
}

// Reads and checks the attention mask.
AttentionMask take_attention_mask(const Program& program, const StepInputs& in,
                                  const forge_step_header& header, BlockReader& reader) {
  AttentionMask mask;
  mask.kind = header.attention_mask;
  mask.n_heads = header.attention_mask_heads;
  const uint32_t cols = header.attention_mask_cols;
  require(mask.kind <= FORGE_MASK_FLOATS, "step inputs: unknown attention_mask ", mask.kind);
  if (mask.kind == FORGE_MASK_NONE) {
    require(mask.n_heads == 0 && cols == 0, "step inputs: no attention mask has ", mask.n_heads,
            " heads and ", cols, " columns");
    return mask;
  }
  require(program.masked_heads > 0, "step inputs: the step has no masked attention");
  require(mask.n_heads == 1 || mask.n_heads == program.masked_heads,
          "step inputs: attention_mask_heads is ", mask.n_heads, "; valid is 1 or ",
          program.masked_heads);
  const uint64_t n_positions = uint64_t{in.n_pages} * program.page_tokens;
  require(cols >= 1 && cols <= n_positions, "step inputs: attention_mask_cols is ", cols,
          "; valid is 1 to ", n_positions);
  mask.stride = mask.is_bits() ? (cols + 31) / 32 : cols;
  mask.words = reader.take<uint32_t>("attention_masks",
                                     uint64_t{in.n_tokens} * mask.n_heads * mask.stride);
  return mask;
}

// Checks that an attention mask covers what its tokens see, in numbers that scores can add.
void check_attention_mask(const AttentionMask& mask, const StepInputs& in, uint32_t cols) {
  for (uint32_t t = 0; t < in.n_tokens; ++t) {
    const int32_t length = in.key_lengths[static_cast<size_t>(in.sequences[t])];
    const int64_t sees = std::max<int64_t>(int64_t{in.positions[t]} + 1, length);
    require(sees <= cols, "step inputs: attention_mask_cols is ", cols, "; token ", t, " sees ",
            sees, " positions");
  }
  if (mask.is_bits()) return;
  for (const uint32_t word : mask.words) {
    const float value = std::bit_cast<float>(word);
    require(value < INFINITY, "step inputs: an attention mask has ", value,
            "; valid is a number, or -infinity to hide a position");
  }
}

// Checks that each sequence has its own slot and one run of tokens without a gap.
void check_state(const Program& program, const StepInputs& in) {
  check_range("slots", in.slots, program.n_slots);
  std::vector<bool> taken(program.n_slots), begun(in.n_sequences);
  for (const int32_t slot : in.slots) {
    require(!taken[static_cast<size_t>(slot)], "step inputs: two sequences have the slot ", slot);
    taken[static_cast<size_t>(slot)] = true;
  }
  for (uint32_t t = 0; t < in.n_tokens; ++t) {
    const auto sequence = static_cast<size_t>(in.sequences[t]);
    if (t > 0 && in.sequences[t - 1] == in.sequences[t]) {
      require(in.positions[t - 1] + 1 == in.positions[t], "step inputs: positions[", t, "] is ",
              in.positions[t], " after ", in.positions[t - 1],
              "; recurrent state takes a sequence's tokens one after another");
    } else {
      require(!begun[sequence], "step inputs: the tokens of sequence ", sequence,
              " do not follow one another, as recurrent state needs");
      begun[sequence] = true;
    }
  }
}

// Checks the parents of a tree, and lists the copies of its tokens.
void take_tree(const Program& program, const forge_step_header& header, StepInputs& in) {
  require(header.n_parents == 0 || header.n_parents == in.n_tokens, "step inputs: n_parents is ",
          header.n_parents, "; valid is 0 or ", in.n_tokens);
  if (in.parents.empty()) return;
  require(program.n_slots == 0, "step inputs: recurrent state takes no parents");
  require(program.page_tokens > 0, "step inputs: a step without a KV cache takes no parents");
  std::vector<bool> begun(in.n_sequences);
  for (uint32_t t = 0; t < in.n_tokens; ++t) {
    const int32_t parent = in.parents[t];
    require(parent >= -1 && parent < static_cast<int32_t>(t), "step inputs: parents[", t, "] is ",
            parent, "; valid is -1, or a row before it");
    if (parent < 0) continue;
    const auto before = static_cast<uint32_t>(parent);
    require(in.positions[before] + 1 == in.positions[t], "step inputs: parents[", t,
            "] is at position ", in.positions[before], ", the token at ", in.positions[t]);
    if (in.sequences[before] == in.sequences[t]) continue;
    const auto branch = static_cast<uint32_t>(in.sequences[t]);
    require(!begun[branch], "step inputs: sequence ", branch, " begins two branches");
    begun[branch] = true;
    const auto own = in.page_table_of(branch);
    for (int32_t row = parent; row >= 0; row = in.parents[static_cast<size_t>(row)]) {
      const auto ancestor = static_cast<uint32_t>(row);
      const auto index = static_cast<size_t>(in.positions[ancestor]) / program.page_tokens;
      if (own[index] != in.page_table(ancestor)[index]) in.copies.push_back({ancestor, branch});
    }
  }
}

void check_adapters(const Program& program, const StepInputs& in) {
  require(program.n_adapters == 0 || in.n_adapters == program.n_adapters,
          "step inputs: n_adapters is ", in.n_adapters, "; the step has ", program.n_adapters);
  for (const float scale : in.adapter_scales) {
    require(std::isfinite(scale), "step inputs: an adapter scale is ", scale,
            "; valid are finite numbers");
  }
}

}  // namespace

KeyRange visible_keys(const AttentionOp& op, const StepInputs& inputs, uint32_t token) {
  const uint64_t position = static_cast<uint64_t>(inputs.positions[token]);
  const auto sequence = static_cast<size_t>(inputs.sequences[token]);
  const bool has_begin = op.window > 0 && position >= op.window;
  const uint64_t seen = op.chunked ? position % op.window + 1 : op.window;
  const uint64_t begin = has_begin ? position - seen + 1 : 0;
  uint64_t end = position + 1;
  if (!op.causal) {
    end = static_cast<uint64_t>(inputs.key_lengths[sequence]);
    if (op.window > 0) end = std::min(end, position + op.window);
  }
  if (begin >= end) return {0, 0};
  return {static_cast<uint32_t>(begin), static_cast<uint32_t>(end)};
}

std::vector<StateRun> state_runs(const StepInputs& inputs) {
  std::vector<StateRun> runs;
  for (uint32_t t = 0; t < inputs.n_tokens; ++t) {
    const int32_t sequence = inputs.sequences[t];
    if (t == 0 || inputs.sequences[t - 1] != sequence) {
      const auto slot = static_cast<uint32_t>(inputs.slots[static_cast<size_t>(sequence)]);
      runs.push_back({t, t, slot, inputs.positions[t] == 0});
    }
    runs.back().end = t + 1;
  }
  return runs;
}

StepInputs parse_step_inputs(const Program& program, const void* data, uint64_t bytes) {
  require(data && reinterpret_cast<uintptr_t>(data) % 4 == 0,
          "step inputs: the block is null or not aligned to 4 bytes");
  BlockReader reader(data, bytes);
  const forge_step_header header = reader.take<forge_step_header>("header", 1)[0];
  const StepLimits& limits = program.limits;
  check_count("n_tokens", header.n_tokens, limits.max_tokens);
  check_count("n_outputs", header.n_outputs, limits.max_outputs);
  check_count("n_sequences", header.n_sequences, limits.max_sequences);
  check_count("n_pages", header.n_pages, limits.max_pages);
  require(header.n_tokens >= 1 && header.n_sequences >= 1 && header.n_pages >= 1,
          "step inputs: a run needs a token, a sequence and a page");

  StepInputs in;
  in.n_tokens = header.n_tokens;
  in.n_outputs = header.n_outputs;
  in.n_sequences = header.n_sequences;
  in.n_pages = header.n_pages;
  in.mask_words = header.mask_words;
  in.n_steps = header.n_steps;
  in.n_adapters = header.n_adapters;
  in.tokens = reader.take<int32_t>("tokens", header.n_tokens);
  in.positions = reader.take<int32_t>("positions", header.n_tokens);
  in.sequences = reader.take<int32_t>("sequences", header.n_tokens);
  in.parents = reader.take<int32_t>("parents", header.n_parents);
  in.page_tables = reader.take<int32_t>(
      "page_tables", static_cast<uint64_t>(header.n_sequences) * header.n_pages);
  in.slots = reader.take<int32_t>("slots", header.n_sequences);
  in.key_lengths = reader.take<int32_t>("key_lengths", header.n_sequences);
  in.adapter_scales = reader.take<float>(
      "adapter_scales", static_cast<uint64_t>(header.n_sequences) * header.n_adapters);
  in.output_rows = reader.take<int32_t>("output_rows", header.n_outputs);
  in.sampling = reader.take<forge_sampling>("sampling", header.n_outputs);
  in.history = reader.take<int32_t>("history", header.n_history);
  in.bias_ids = reader.take<int32_t>("bias_ids", header.n_bias);
  in.bias_values = reader.take<float>("bias_values", header.n_bias);
  in.end_tokens = reader.take<int32_t>("end_tokens", header.n_end_tokens);
  in.history_sizes = reader.take<uint32_t>("history_sizes", header.n_outputs);
  require(header.mask_words == 0 || header.mask_words == (program.logits_cols + 31) / 32,
          "step inputs: mask_words is ", header.mask_words, "; expected 0 or ",
          (program.logits_cols + 31) / 32);
  require(header.mask_words != 0 || header.n_masks == 0, "step inputs: masks of 0 words");
  in.masks =
      reader.take<uint32_t>("masks", static_cast<uint64_t>(header.n_masks) * header.mask_words);
  in.attention_mask = take_attention_mask(program, in, header, reader);
  reader.expect_end();

  if (program.vocabulary) check_range("tokens", in.tokens, program.vocabulary);
  if (program.n_positions) check_range("positions", in.positions, program.n_positions);
  if (program.page_tokens) {
    check_range("positions", in.positions,
                static_cast<uint64_t>(header.n_pages) * program.page_tokens);
    check_range("page_tables", in.page_tables, program.n_pages);
    check_range("key_lengths", in.key_lengths,
                static_cast<uint64_t>(header.n_pages) * program.page_tokens + 1);
  } else {
    check_range("positions", in.positions, INT32_MAX);
  }
  check_range("sequences", in.sequences, header.n_sequences);
  check_range("output_rows", in.output_rows, header.n_tokens);
  if (in.attention_mask.kind != FORGE_MASK_NONE) {
    check_attention_mask(in.attention_mask, in, header.attention_mask_cols);
  }
  if (program.n_slots) check_state(program, in);
  take_tree(program, header, in);
  check_adapters(program, in);
  if (program.samples) check_sampling(program, in, header);
  check_steps(program, in, header);
  return in;
}

ResultBlock::ResultBlock(void* data, uint64_t bytes, uint64_t n_outputs, uint32_t max_top)
    : data_(static_cast<uint8_t*>(data)),
      stride_(sizeof(forge_result) + 8ull * max_top),
      max_top_(max_top) {
  require(n_outputs == 0 || (data && reinterpret_cast<uintptr_t>(data) % 4 == 0),
          "step results: the block is null or not aligned to 4 bytes");
  require(bytes / stride_ >= n_outputs, "step results: ", n_outputs, " outputs need ",
          n_outputs * stride_, " bytes, the block has ", bytes);
}

ResultBlock ResultBlock::from(uint64_t first) const {
  return {data_ + first * stride_, stride_, max_top_};
}

forge_result& ResultBlock::header(uint64_t output) const {
  return *reinterpret_cast<forge_result*>(data_ + output * stride_);
}

int32_t* ResultBlock::top_ids(uint64_t output) const {
  return reinterpret_cast<int32_t*>(data_ + output * stride_ + sizeof(forge_result));
}

float* ResultBlock::top_logprobs(uint64_t output) const {
  return reinterpret_cast<float*>(top_ids(output) + max_top_);
}

void StopFlag::check() const {
  if (raised()) fail(FORGE_CANCELLED, "stopped on request");
}

void MaskGate::wait() const {
  using Clock = std::chrono::steady_clock;
  if (!control_) return;
  const auto pending = [this] {
    return __atomic_load_n(&control_->masks_pending, __ATOMIC_ACQUIRE);
  };
  const int32_t most = pending();
  if (most == 0) return;
  const StopFlag stop(control_);
  const auto begin = Clock::now();
  // A mask takes less time than a forward pass, so it is nearly always complete here.
  constexpr std::chrono::microseconds kSpin{50};
  while (pending() != 0) {
    stop.check();
    const auto waited = Clock::now() - begin;
    require(waited < std::chrono::milliseconds(most), "step inputs: the masks were not complete ",
            most, " ms after the run was ready for them");
    if (waited >= kSpin) std::this_thread::sleep_for(kSpin);
  }
}

}  // namespace forge
