// The kernels that choose tokens, compared with a chain that sorts the vocabulary in double.

#include <algorithm>
#include <map>
#include <tuple>

#include "../../../csrc/common/philox.h"
#include "operations.h"

namespace {

struct Request {
  forge_sampling sampling;
  std::vector<i32> history;
  std::vector<std::pair<i32, float>> bias;
  std::vector<u32> mask;  // empty: none
};

Request plain_request(u32 seed) {
  Request r = {};
  r.sampling.top_p = 1;
  r.sampling.repeat_penalty = 1;
  r.sampling.forced_token = -1;
  r.sampling.mask = -1;
  r.sampling.seed_low = seed;
  r.sampling.seed_high = seed * 77 + 1;
  r.sampling.stream = seed % 3;
  r.sampling.position = seed + 5;
  return r;
}

struct Candidate {
  i32 id;
  double logit;
  double share = 0;
};
bool better(const Candidate& a, const Candidate& b) {
  return a.logit != b.logit ? a.logit > b.logit : a.id < b.id;
}

std::vector<Candidate> plain_candidates(const Request& r, const float* logits, u32 n) {
  const forge_sampling& s = r.sampling;
  std::vector<double> values(logits, logits + n);
  std::map<i32, int> counts;
  for (const i32 id : r.history) ++counts[id];
  for (const auto& [id, count] : counts) {
    double& value = values[static_cast<size_t>(id)];
    value = value > 0 ? value / s.repeat_penalty : value * s.repeat_penalty;
    value -= s.presence_penalty + count * double(s.frequency_penalty);
  }
  for (const auto& [id, value] : r.bias) values[static_cast<size_t>(id)] += value;
  std::vector<Candidate> list;
  for (u32 i = 0; i < n; ++i) {
    const bool allowed = r.mask.empty() || (r.mask[i / 32] >> (i % 32) & 1) != 0;
    // The kernels store adjusted logits as floats.
    const double value = static_cast<float>(values[i]);
    if (allowed && value > -INFINITY) list.push_back({static_cast<i32>(i), value});
  }
  std::sort(list.begin(), list.end(), better);
  return list;
}

i32 plain_choice(const Request& r, const float* logits, u32 n) {
  const forge_sampling& s = r.sampling;
  if (s.forced_token >= 0) return s.forced_token;
  std::vector<Candidate> list = plain_candidates(r, logits, n);
  if (list.empty()) return -1;
  if (s.temperature == 0) return list.front().id;
  const double largest = list.front().logit;
  if (s.top_k > 0 && list.size() > s.top_k) list.resize(s.top_k);
  double total = 0;
  for (Candidate& c : list) total += c.share = std::exp((c.logit - largest) / s.temperature);
  double reached = 0;
  size_t kept = 0;
  while (kept < list.size() && (kept == 0 || reached < s.top_p * total))
    reached += list[kept++].share;
  if (s.top_p < 1) list.resize(kept);
  std::erase_if(list, [&](const Candidate& c) { return c.share < s.min_p; });
  std::sort(list.begin(), list.end(),
            [](const Candidate& a, const Candidate& b) { return a.id < b.id; });
  total = 0;
  for (const Candidate& c : list) total += c.share;
  const double target = total * forge::philox_uniform(s);
  double sum = 0;
  for (const Candidate& c : list) {
    if ((sum += c.share) > target) return c.id;
  }
  return list.back().id;
}

struct Results {
  Buffer<u8> bytes;
  u32 max_top;
  const u8* at(u32 o) const { return bytes.data() + o * (sizeof(forge_result) + 8 * max_top); }
  const forge_result& header(u32 o) const { return *reinterpret_cast<const forge_result*>(at(o)); }
  const i32* ids(u32 o) const { return reinterpret_cast<const i32*>(at(o) + sizeof(forge_result)); }
  const float* logprobs(u32 o) const { return reinterpret_cast<const float*>(ids(o) + max_top); }
};

// Runs the kernels on the requests.
Results choose(const Buffer<float>& logits, std::vector<Request>& requests, u32 vocabulary,
               u32 max_top) {
  const u32 n = static_cast<u32>(requests.size()), words = (vocabulary + 31) / 32;
  std::vector<i32> history, bias_ids;
  std::vector<float> bias_values;
  std::vector<u32> masks;
  for (Request& r : requests) {
    r.sampling.history_begin = static_cast<u32>(history.size());
    history.insert(history.end(), r.history.begin(), r.history.end());
    r.sampling.history_end = static_cast<u32>(history.size());
    r.sampling.bias_begin = static_cast<u32>(bias_ids.size());
    for (const auto& [id, value] : r.bias) {
      bias_ids.push_back(id);
      bias_values.push_back(value);
    }
    r.sampling.bias_end = static_cast<u32>(bias_ids.size());
    if (!r.mask.empty()) {
      r.sampling.mask = static_cast<i32>(masks.size() / words);
      masks.insert(masks.end(), r.mask.begin(), r.mask.end());
    }
  }
  Buffer<forge_sampling> sampling(n);
  for (u32 o = 0; o < n; ++o) sampling[o] = requests[o].sampling;
  const Buffer<u32> n_outputs = {n};
  Results results = {Buffer<u8>(n * (sizeof(forge_result) + 8 * max_top)), max_top};
  const Buffer<i32> history_buffer(history), bias_ids_buffer(bias_ids);
  const Buffer<float> bias_values_buffer(bias_values);
  const Buffer<u32> masks_buffer(masks);
  launch(SampleTokens{.results = results.bytes.data(),
                      .logits = logits.data(),
                      .sampling = sampling.data(),
                      .history = history_buffer.data(),
                      .bias_ids = bias_ids_buffer.data(),
                      .bias_values = bias_values_buffer.data(),
                      .masks = masks_buffer.data(),
                      .n_outputs = n_outputs.data(),
                      .n = n,
                      .args = {.vocabulary = vocabulary, .max_top = max_top, .mask_words = words}});
  return results;
}

double log_sum_exp(const float* logits, u32 n) {
  const double largest = *std::max_element(logits, logits + n);
  double sum = 0;
  for (u32 i = 0; i < n; ++i) sum += std::exp(logits[i] - largest);
  return largest + std::log(sum);
}

void check(const Buffer<float>& logits, std::vector<Request> requests, u32 vocabulary,
           u32 max_top = 0) {
  const Results results = choose(logits, requests, vocabulary, max_top);
  for (u32 o = 0; o < requests.size(); ++o) {
    const float* row = logits.data() + u64(o) * vocabulary;
    const i32 token = plain_choice(requests[o], row, vocabulary);
    const forge_result& result = results.header(o);
    if (result.token != token)
      fail_test("output %u: token %d, expected %d", o, result.token, token);
    EXPECT(result.flags == (token < 0 ? 2u : 0u));
    const double normalizer = log_sum_exp(row, vocabulary);
    const auto is_right = [&](float logprob, float logit) {
      const double expected = logit - normalizer;  // or -infinity
      return logprob == expected || std::abs(logprob - expected) < 1e-5;
    };
    EXPECT(token < 0 || is_right(result.logprob, row[token]));
    std::vector<Candidate> all;
    for (u32 i = 0; i < vocabulary; ++i) all.push_back({static_cast<i32>(i), row[i]});
    std::sort(all.begin(), all.end(), better);
    EXPECT(result.n_top == requests[o].sampling.n_top);
    for (u32 i = 0; i < result.n_top; ++i) {
      EXPECT(results.ids(o)[i] == all[i].id);
      EXPECT(is_right(results.logprobs(o)[i], all[i].logit));
    }
  }
}

Buffer<float> random_logits(Random& random, u32 outputs, u32 vocabulary, bool with_ties) {
  auto logits = random_floats(random, outputs * vocabulary, 3);
  for (float& x : logits) {
    if (with_ties) x = std::round(x * 4) / 4;
    if (random.below(9) == 0) x = -INFINITY;
  }
  for (u32 o = 0; o < outputs; ++o) logits[o * vocabulary] = 1;  // at least one candidate
  return logits;
}

// Combinations of the filters; `every` selects every n-th.
void check_filters(u32 vocabulary, bool with_ties, u32 every = 1) {
  Random random(vocabulary);
  std::vector<Request> requests;
  u32 seed = 0;
  for (const float temperature : {0.0f, 0.7f, 1.6f}) {
    for (const u32 top_k : {0u, 1u, 3u, 40u, 700u}) {
      for (const float top_p : {1.0f, 0.9f, 0.3f}) {
        for (const float min_p : {0.0f, 0.05f}) {
          if (++seed % every != 0) continue;
          Request r = plain_request(seed);
          r.sampling.temperature = temperature;
          r.sampling.top_k = top_k;
          r.sampling.top_p = top_p;
          r.sampling.min_p = min_p;
          if (temperature > 0 || top_k == 0) requests.push_back(r);
        }
      }
    }
  }
  check(random_logits(random, static_cast<u32>(requests.size()), vocabulary, with_ties), requests,
        vocabulary);
}

void check_random(Random& random) {
  const u32 vocabulary = random.between(1, 3000), outputs = 6;
  std::vector<Request> requests;
  for (u32 o = 0; o < outputs; ++o) {
    Request r = plain_request(static_cast<u32>(random.next()));
    r.sampling.temperature = static_cast<float>(random.below(4)) * 0.4f;
    r.sampling.top_k = random.below(2) * random.below(vocabulary + 10);
    r.sampling.top_p = random.below(2) == 0 ? 1.0f : 0.5f + random.number(0.5f);
    r.sampling.min_p = static_cast<float>(random.below(2)) * 0.02f;
    if (random.below(2) == 0) {
      r.sampling.repeat_penalty = 1.5f + random.number();
      r.sampling.presence_penalty = random.number();
      r.sampling.frequency_penalty = random.number();
      for (u32 i = random.below(60); i > 0; --i) {
        r.history.push_back(static_cast<i32>(random.below(vocabulary)));
      }
    }
    if (random.below(3) == 0) r.bias = {{static_cast<i32>(random.below(vocabulary)), 3.0f}};
    if (random.below(3) == 0) {
      for (u32 w = 0; w < (vocabulary + 31) / 32; ++w)
        r.mask.push_back(static_cast<u32>(random.next()));
    }
    requests.push_back(r);
  }
  check(random_logits(random, outputs, vocabulary, random.below(2) == 0), requests, vocabulary);
}

}  // namespace

TEST_RANDOM(random_sampling, check_random, 8)
TEST(sampling_of_one_token) { check_filters(1, false); }
TEST(sampling_of_few_tokens) { check_filters(37, true); }
TEST(sampling_of_two_chunks_with_ties) { check_filters(259, true); }
TEST(sampling_of_wide_rows) { check_filters(5003, false, 5); }
TEST(sampling_of_wide_rows_with_ties) { check_filters(4096, true, 7); }

TEST(sampling_of_equal_logits) {
  const u32 vocabulary = 600;
  std::vector<Request> requests;
  for (u32 seed = 0; seed < 12; ++seed) {
    Request r = plain_request(seed);
    // A subnormal temperature, too, which a GPU may take for 0.
    r.sampling.temperature = seed < 3 ? 0.0f : seed < 6 ? 1e-45f : 1.0f;
    r.sampling.top_k = seed % 4 == 0 ? 0 : 290;
    r.sampling.top_p = seed % 2 == 0 ? 0.5f : 1.0f;
    r.sampling.min_p = seed % 4 == 1 ? 1.0f : 0.0f;
    r.sampling.n_top = 3;
    if (seed % 3 == 1) r.mask.assign((vocabulary + 31) / 32, 0xfffff000u);
    requests.push_back(r);
  }
  Buffer<float> logits(requests.size() * vocabulary);
  for (float& x : logits) x = -0.0f;
  check(logits, requests, vocabulary, 3);
}

// More tokens share a bucket than a list of CUDA's draw_token has room for.
TEST(sampling_of_long_lists) {
  const u32 vocabulary = 2700;
  std::vector<Request> requests;
  for (const auto& [top_k, top_p, temperature] :
       {std::tuple{0u, 0.4f, 1.0f}, {1900u, 1.0f, 1.0f}, {2300u, 0.7f, 1.0f}, {40u, 0.9f, 1e4f},
        {2200u, 1.0f, 0.03f}}) {
    Request r = plain_request(static_cast<u32>(requests.size()));
    r.sampling.temperature = temperature;
    r.sampling.top_k = top_k;
    r.sampling.top_p = top_p;
    requests.push_back(r);
  }
  Buffer<float> logits(requests.size() * vocabulary);
  for (u32 i = 0; i < logits.size(); ++i) logits[i] = static_cast<float>(i * 7 % 5) * 0x1p-9f;
  // The rest of a row is too deep for any bucket but the last.
  for (u32 i = 0; i < vocabulary; ++i) logits[4 * vocabulary + i] = i % 2000 == 0 ? 1.0f : 0.25f;
  check(logits, requests, vocabulary);
}

// More chunks than threads of a block read at once.
TEST(sampling_of_a_large_vocabulary) {
  const u32 vocabulary = 270'001;
  Random random(6);
  std::vector<Request> requests = {plain_request(1), plain_request(2)};
  requests[1].sampling.temperature = 0.9f;
  requests[1].sampling.top_p = 0.9f;
  check(random_logits(random, 2, vocabulary, false), requests, vocabulary);
}

TEST(sampling_adjusts_logits) {
  const u32 vocabulary = 701, outputs = 24;
  Random random(9);
  std::vector<Request> requests;
  for (u32 o = 0; o < outputs; ++o) {
    Request r = plain_request(o);
    r.sampling.temperature = o % 2 != 0 ? 0.9f : 0;
    r.sampling.top_k = o % 3 == 0 ? 20 : 0;
    if (o % 4 != 0) {
      r.sampling.repeat_penalty = 1.3f;
      r.sampling.presence_penalty = 0.4f;
      r.sampling.frequency_penalty = 0.2f;
      // Once more tokens than a block has threads.
      const u32 n = o == 5 ? 1300 : 150;
      for (u32 i = 0; i < n; ++i) r.history.push_back(static_cast<i32>(random.below(120)));
    }
    if (o % 5 == 1) r.bias = {{3, 4.0f}, {700, -INFINITY}, {17, 2.5f}, {0, 1.0f}};
    // As many biases, some of them of the same token.
    for (u32 i = 0; o == 7 && i < 1300; ++i) {
      r.bias.push_back({static_cast<i32>(i % 690), 0.25f * static_cast<float>(i % 9)});
    }
    if (o % 3 == 1) {
      for (u32 w = 0; w < (vocabulary + 31) / 32; ++w)
        r.mask.push_back(static_cast<u32>(random.next()));
    }
    requests.push_back(r);
  }
  check(random_logits(random, outputs, vocabulary, false), requests, vocabulary);
}

TEST(sampling_reports_candidates_and_forced_tokens) {
  const u32 vocabulary = 530, max_top = 20;
  Random random(4);
  std::vector<Request> requests;
  for (u32 o = 0; o < 6; ++o) {
    Request r = plain_request(o);
    r.sampling.n_top = o * 4;
    r.sampling.forced_token = o == 3 ? 11 : -1;
    requests.push_back(r);
  }
  auto logits = random_logits(random, 6, vocabulary, true);
  for (u32 i = 7; i < vocabulary; ++i) logits[5 * vocabulary + i] = -INFINITY;  // fewer than n_top
  check(logits, requests, vocabulary, max_top);
}

TEST(sampling_reports_more_candidates_than_a_chunk_has) {
  const u32 vocabulary = 270, max_top = 260;
  std::vector<Request> requests = {plain_request(1)};
  requests[0].sampling.n_top = max_top;
  Buffer<float> logits(vocabulary);
  for (u32 i = 0; i < vocabulary; ++i) logits[i] = i < 256 ? static_cast<float>(i % 7) : -INFINITY;
  check(logits, requests, vocabulary, max_top);
}

TEST(sampling_flags_rows_without_a_choice) {
  const u32 vocabulary = 300;
  Random random(2);
  std::vector<Request> requests(5, plain_request(1));
  for (Request& r : requests) r.sampling.n_top = 2;
  requests[1].sampling.temperature = 1;
  requests[3].mask.assign((vocabulary + 31) / 32, 0u);
  requests[4].mask.assign((vocabulary + 31) / 32, 0u);
  requests[4].sampling.temperature = 1;
  auto logits = random_floats(random, 5 * vocabulary);
  // In each chunk.
  logits[77] = logits[299] = NAN;
  logits[vocabulary + 299] = INFINITY;
  logits[2 * vocabulary] = -INFINITY;
  const Results results = choose(logits, requests, vocabulary, 2);
  for (const u32 o : {0u, 1u}) {
    EXPECT(results.header(o).token == -1 && results.header(o).flags == FORGE_LOGITS_NAN);
    EXPECT(results.header(o).n_top == 0);
  }
  EXPECT(results.header(2).token >= 0 && results.header(2).flags == 0);
  for (const u32 o : {3u, 4u}) {
    EXPECT(results.header(o).token == -1 && results.header(o).flags == FORGE_NOTHING_ALLOWED);
    EXPECT(results.header(o).n_top == 2);
  }
}
