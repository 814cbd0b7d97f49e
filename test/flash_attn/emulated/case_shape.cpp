#include <cstdio>
#include <cstdlib>
#include <map>
#include <sstream>

#include "attention_case.h"

namespace flash_attn_test {

namespace {

std::vector<int32_t> parse_list(const std::string &text) {
  std::vector<int32_t> list;
  std::stringstream stream(text);
  for (std::string part; std::getline(stream, part, ',');) list.push_back(std::stoi(part));
  return list;
}

}  // namespace

CaseShape parse_case(const std::string &line) {
  CaseShape shape;
  const std::map<std::string, int32_t *> integers = {
      {"head_dim", &shape.head_dim},     {"heads", &shape.heads},
      {"kv_heads", &shape.kv_heads},     {"page", &shape.page},
      {"packed_q", &shape.packed_q},     {"causal", &shape.causal},
      {"gap", &shape.gap},               {"shuffled", &shape.shuffled},
      {"left", &shape.left},             {"right", &shape.right},
      {"sinks", &shape.sinks},           {"splits", &shape.splits},
      {"no_split", &shape.no_split},     {"force_sm80", &shape.force_sm80},
      {"early", &shape.early},
      {"capability", &shape.capability}, {"heads_first", &shape.heads_first},
      {"nan_sequence", &shape.nan_sequence},
      {"order", &shape.order},           {"seed", &shape.seed},
      {"far", &shape.far},               {"descale", &shape.descale},
      {"pitch", &shape.pitch},
  };
  const std::map<std::string, float *> numbers = {
      {"softcap", &shape.softcap}, {"scale", &shape.scale}, {"spread", &shape.spread}};
  const std::map<std::string, std::string *> texts = {{"fn", &shape.function},
                                                      {"dtype", &shape.dtype},
                                                      {"kv", &shape.kv},
                                                      {"mask", &shape.mask},
                                                      {"mask_of", &shape.mask_of}};
  const std::map<std::string, std::vector<int32_t> *> lists = {{"q", &shape.q}, {"k", &shape.k}};
  std::stringstream words(line);
  for (std::string word; words >> word;) {
    const size_t equals = word.find('=');
    const std::string name = word.substr(0, equals);
    const std::string value = equals == std::string::npos ? "" : word.substr(equals + 1);
    if (const auto at = integers.find(name); at != integers.end()) {
      *at->second = std::stoi(value);
    } else if (const auto at = numbers.find(name); at != numbers.end()) {
      *at->second = std::stof(value);
    } else if (const auto at = texts.find(name); at != texts.end()) {
      *at->second = value;
    } else if (const auto at = lists.find(name); at != lists.end()) {
      *at->second = parse_list(value);
    } else {
      std::fprintf(stderr, "unknown word \"%s\"\n", word.c_str());
      std::exit(2);
    }
  }
  if (shape.q.size() != shape.k.size()) {
    std::fprintf(stderr, "q and k list different numbers of sequences\n");
    std::exit(2);
  }
  return shape;
}

}  // namespace flash_attn_test
