#pragma once

// Variables and paths of the user's system, as UTF-8.

#include <cstdlib>
#include <filesystem>
#include <string>

#if defined(_WIN32)
#include "../common/windows_api.h"
#endif

namespace forge {

// Value of an environment variable; empty if unset.
inline std::string environment(const char* name) {
#if defined(_WIN32)
  // The variables of the C library are a copy that other modules of the process do not change.
  const std::wstring key = wide(name);
  std::wstring value(GetEnvironmentVariableW(key.c_str(), nullptr, 0), L'\0');
  const auto size = static_cast<DWORD>(value.size());
  value.resize(GetEnvironmentVariableW(key.c_str(), value.data(), size));
  return narrow(value);
#else
  const char* value = std::getenv(name);
  return value ? value : "";
#endif
}

// True if the variable is set, and not to "0".
inline bool is_turned_on(const char* name) {
  const std::string value = environment(name);
  return !value.empty() && value != "0";
}

// Converts a path from and to UTF-8, with / between folders.
inline std::filesystem::path to_path(const std::string& text) {
  return std::filesystem::path(std::u8string(text.begin(), text.end()));
}
inline std::string to_text(const std::filesystem::path& path) {
  const std::u8string text = path.generic_u8string();
  return std::string(text.begin(), text.end());
}

}  // namespace forge
