#pragma once

#include <cstdlib>
#include <string>

namespace forge {

// Value of an environment variable; empty if unset.
inline std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

// True if the variable is set, and not to "0".
inline bool is_turned_on(const char* name) {
  const std::string value = environment(name);
  return !value.empty() && value != "0";
}

}  // namespace forge
