#pragma once

#include <cstdlib>
#include <string>

namespace forge {

// What an environment variable says; empty when it is not set.
inline std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

// Whether a variable turns something on.
inline bool is_turned_on(const char* name) {
  const std::string value = environment(name);
  return !value.empty() && value != "0";
}

}  // namespace forge
