#pragma once

// Shared by the stand-ins for the driver and for Metal: options in an environment variable, and
// reports of misuse.

#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <sstream>
#include <string>

namespace emulator {

// Prints a mistake in the use of `who`, and aborts.
[[noreturn]] inline void abort_for_misuse(const char* who, const char* format,
                                          va_list arguments) {
  std::fprintf(stderr, "%s: ", who);
  std::vfprintf(stderr, format, arguments);
  std::fputs("\n", stderr);
  std::abort();
}

// Sets the numbers named in a variable such as "memory_mib=256,fail_allocation=3"; an unknown entry
// aborts.
inline void read_options(const char* variable, const std::map<std::string, uint64_t*>& fields) {
  const char* text = std::getenv(variable);
  std::istringstream list(text ? text : "");
  for (std::string entry; std::getline(list, entry, ',');) {
    const size_t equals = entry.find('=');
    const auto field = fields.find(entry.substr(0, equals));
    if (equals == std::string::npos || field == fields.end()) {
      std::fprintf(stderr, "%s has the unknown entry \"%s\"\n", variable, entry.c_str());
      std::abort();
    }
    *field->second = std::strtoull(entry.c_str() + equals + 1, nullptr, 10);
  }
}

}  // namespace emulator
