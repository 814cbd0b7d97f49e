#include "options.h"

#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <sstream>
#include <string>

namespace fake_metal {

void misuse(const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  std::fputs("fake Metal: ", stderr);
  std::vfprintf(stderr, format, arguments);
  std::fputs("\n", stderr);
  va_end(arguments);
  std::abort();
}

const Options& options() {
  static const Options parsed = [] {
    Options result;
    const std::map<std::string, uint64_t*> fields = {
        {"devices", &result.devices},
        {"family", &result.family},
        {"memory_mib", &result.memory_mib},
        {"buffer_kib", &result.buffer_kib},
        {"max_threads", &result.max_threads},
        {"fail_allocation", &result.fail_allocation},
        {"fail_compile", &result.fail_compile},
        {"fail_pipeline", &result.fail_pipeline},
        {"fail_commands", &result.fail_commands},
        {"fail_code", &result.fail_code},
    };
    const char* text = std::getenv("FORGE_FAKE_METAL");
    std::istringstream list(text ? text : "");
    for (std::string entry; std::getline(list, entry, ',');) {
      const size_t equals = entry.find('=');
      const auto field = fields.find(entry.substr(0, equals));
      if (equals == std::string::npos || field == fields.end()) {
        misuse("FORGE_FAKE_METAL has the unknown entry \"%s\"", entry.c_str());
      }
      *field->second = std::strtoull(entry.c_str() + equals + 1, nullptr, 10);
    }
    return result;
  }();
  return parsed;
}

}  // namespace fake_metal
