// The launch between the steps of a series.

#include "operations.h"

namespace {

// More outputs, and more words of a piece, than a block has threads.
constexpr u32 kOutputs = 300, kSteps = 4, kPieceBytes = 24000;
// Places in a piece, in bytes.
constexpr u32 kCount = 8, kTokens = 16, kSampling = 1280;
// The token that ends a series, and another one, which is not chosen.
constexpr u32 kEnd = 99999, kOtherEnd = 99998;
// A result without candidates: token, flags, logprob, n_top.
constexpr u32 kResultWords = 4;

struct Series {
  Buffer<u32> memory, inputs, results, all_results;
  Buffer<i32> history;
};

// The series after its upload: piece s holds 100 (s + 1) + i in word i, but for the number of
// outputs and the end of each output's history.
Series start() {
  const u32 header = sizeof(SeriesControl) / 4, words = kPieceBytes / 4;
  const u32 pieces = (header + 2 + 3) / 4 * 4;
  Series s{Buffer<u32>(pieces + (kSteps - 1) * words), Buffer<u32>(words),
           Buffer<u32>(kOutputs * kResultWords), Buffer<u32>(kSteps * kOutputs * kResultWords),
           Buffer<i32>(kOutputs * kSteps)};
  const SeriesControl control = {.step = 0,
                                            .ended = 0,
                                            .n_steps = kSteps,
                                            .n_end_tokens = 2,
                                            .n_outputs = kOutputs,
                                            .pieces = pieces * 4};
  std::memcpy(s.memory.data(), &control, sizeof control);
  s.memory[header] = kOtherEnd;
  s.memory[header + 1] = kEnd;
  for (u32 step = 1; step < kSteps; ++step) {
    u32* piece = &s.memory[pieces + (step - 1) * words];
    for (u32 i = 0; i < words; ++i) piece[i] = 100 * step + i;
    piece[kCount / 4] = kOutputs;
    for (u32 i = 0; i < kOutputs; ++i) {
      Sampling sampling{};
      sampling.history_end = i * kSteps + step;
      std::memcpy(reinterpret_cast<u8*>(piece) + kSampling + i * sizeof sampling, &sampling,
                  sizeof sampling);
    }
  }
  s.inputs[kCount / 4] = kOutputs;
  return s;
}

// The tokens that a step chooses.
std::vector<u32> tokens_of(u32 step) {
  std::vector<u32> tokens(kOutputs);
  for (u32 i = 0; i < kOutputs; ++i) tokens[i] = 1000 * step + i;
  return tokens;
}

// Runs a step that chooses these tokens. The last output has the flags.
void run(Series& s, const std::vector<u32>& tokens, u32 flags = 0) {
  for (u32 i = 0; i < kOutputs && s.inputs[kCount / 4] > 0; ++i) {
    const u32 result[kResultWords] = {tokens[i], i + 1 == kOutputs ? flags : 0, 7 + i, 0};
    std::copy_n(result, kResultWords, &s.results[i * kResultWords]);
  }
  const NextStepArgs args = {.piece_bytes = kPieceBytes,
                             .result_words = kResultWords,
                             .n_outputs = kCount,
                             .tokens = kTokens,
                             .sampling = kSampling};
  launch<NextStep>(forge::geometry(args),
                   {.control = s.memory.data(),
                    .inputs = s.inputs.data(),
                    .history = s.history.data(),
                    .results = s.results.data(),
                    .all_results = s.all_results.data()},
                   args);
}

void expect_kept(const Series& s, u32 step, const std::vector<u32>& tokens) {
  for (u32 i = 0; i < kOutputs; ++i) {
    const u32* kept = &s.all_results[(step * kOutputs + i) * kResultWords];
    EXPECT(kept[0] == tokens[i] && kept[2] == 7 + i);
  }
}

void expect_ended(const Series& s) {
  for (u32 i = 0; i < kPieceBytes / 4; ++i) EXPECT(s.inputs[i] == 0);
}

}  // namespace

TEST(next_step_continues_with_chosen_tokens) {
  Series s = start();
  for (u32 step = 0; step < kSteps; ++step) {
    const std::vector<u32> tokens = tokens_of(step);
    run(s, tokens);
    expect_kept(s, step, tokens);
    if (step + 1 == kSteps) break;
    EXPECT(s.inputs[1] == 100 * (step + 1) + 1);
    for (u32 i = 0; i < kOutputs; ++i) {
      EXPECT(s.inputs[kTokens / 4 + i] == tokens[i]);
      EXPECT(s.history[i * kSteps + step] == static_cast<i32>(tokens[i]));
    }
  }
  expect_ended(s);
}

TEST(next_step_ends_a_series) {
  for (const bool is_token : {true, false}) {
    Series s = start();
    run(s, tokens_of(0));
    std::vector<u32> last = tokens_of(1);
    if (is_token) last.back() = kEnd;
    run(s, last, is_token ? 0 : 1);
    expect_kept(s, 1, last);
    expect_ended(s);
    // Further steps have no rows and store nothing.
    for (u32 step = 2; step < 2 * kSteps; ++step) run(s, tokens_of(step));
    expect_ended(s);
    for (u32 i = 2 * kOutputs * kResultWords; i < s.all_results.size(); ++i) {
      EXPECT(s.all_results[i] == ~0u);
    }
  }
}
