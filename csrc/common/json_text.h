#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace forge {

// Returns a JSON string literal, with quotes.
std::string json_string(std::string_view text);

// Returns a JSON array of strings.
std::string json_list(const std::vector<std::string>& texts);

// Builds one flat JSON object, in the order its members are added.
class JsonObject {
 public:
  void add(std::string_view key, std::string_view value) { add_raw(key, json_string(value)); }
  void add(std::string_view key, uint64_t value) { add_raw(key, std::to_string(value)); }
  // Adds a value that is JSON already.
  void add_raw(std::string_view key, std::string_view json);
  std::string str() const { return "{" + members_ + "}"; }

 private:
  std::string members_;
};

// Returns a JSON array of the names of the weight types that the library reads.
std::string weight_type_names_json();

}  // namespace forge
