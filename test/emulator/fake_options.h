#pragma once

// What the stand-ins for a driver and for Metal share: options in a variable of the environment,
// and how they report misuse.

#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <sstream>
#include <string>

namespace emulator {

// Prints what the program did wrong to `who`, and aborts.
[[noreturn]] inline void abort_for_misuse(const char* who, const char* format,
                                          va_list arguments) {
  std::fprintf(stderr, "%s: ", who);
  std::vfprintf(stderr, format, arguments);
  std::fputs("\n", stderr);
  std::abort();
}

// Sets the numbers that a variable such as "memory_mib=256,fail_allocation=3" names; an entry that
// is none of them aborts.
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
