// The two kernels that choose tokens if no output needs more than the largest logit.

#include <algorithm>

#include "launch.h"

namespace {

// The results for rows of `vocabulary` logits.
Buffer<forge_result> choose(const Buffer<float>& logits, u32 outputs, u32 vocabulary) {
  const u32 chunks = blocks_for(vocabulary, metal_args::kArgmaxChunk);
  Buffer<metal_args::ArgmaxPartial> partial(outputs * chunks);
  Buffer<forge_result> results(outputs);
  const Buffer<u32> n_outputs = {outputs};
  const metal_args::SamplingArgs args = {vocabulary, 0, 0};
  launch_metal("argmax_chunks", {{chunks, outputs + 1}, {256}}, args, partial.data(),
               logits.data(), n_outputs.data());
  launch_metal("argmax_token", {{outputs + 1}, {256}}, args, results.data(), partial.data(),
               n_outputs.data());
  return results;
}

void check(u32 vocabulary, bool with_ties) {
  Random random(vocabulary);
  const u32 outputs = 3;
  auto logits = random_floats(random, outputs * vocabulary, 3);
  for (float& x : logits) {
    if (with_ties) x = std::min(std::round(x), 4.0f);
    if (random.below(9) == 0) x = -INFINITY;
  }
  for (u32 o = 0; o < outputs; ++o) logits[o * vocabulary + random.below(vocabulary)] = 1;
  const auto results = choose(logits, outputs, vocabulary);
  for (u32 o = 0; o < outputs; ++o) {
    const float* row = logits.data() + o * vocabulary;
    const float* best = std::max_element(row, row + vocabulary);
    double sum = 0;
    for (u32 i = 0; i < vocabulary; ++i) sum += std::exp(double(row[i]) - *best);
    EXPECT(results[o].token == best - row && results[o].flags == 0 && results[o].n_top == 0);
    EXPECT(std::abs(results[o].logprob + std::log(sum)) < 1e-5);
  }
}

}  // namespace

TEST(argmax_of_one_logit) { check(1, false); }
TEST(argmax_of_part_of_a_chunk) { check(37, true); }
TEST(argmax_of_several_chunks) { check(5003, false); }
TEST(argmax_of_ties_takes_the_lowest_id) { check(4096, true); }
TEST(argmax_of_equal_logits) {
  Buffer<float> logits(3000);
  for (float& x : logits) x = 0.0f;
  for (u32 i = 0; i < 3000; i += 7) logits[i] = -0.0f;
  EXPECT(choose(logits, 1, 3000)[0].token == 0);
}
TEST(argmax_flags_rows_without_a_choice) {
  Random random(3);
  const u32 vocabulary = 2000;
  auto logits = random_floats(random, 4 * vocabulary);
  logits[1999] = NAN;
  logits[vocabulary + 3] = INFINITY;
  for (u32 i = 0; i < vocabulary; ++i) logits[2 * vocabulary + i] = -INFINITY;
  const auto results = choose(logits, 4, vocabulary);
  EXPECT(results[0].token == -1 && results[0].flags == FORGE_LOGITS_NAN);
  EXPECT(results[1].token == -1 && results[1].flags == FORGE_LOGITS_NAN);
  EXPECT(results[2].token == -1 && results[2].flags == FORGE_NOTHING_ALLOWED);
  EXPECT(results[3].token >= 0 && results[3].flags == 0);
}
