#include "options.h"

#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <sstream>
#include <string>

namespace fake_driver {

void misuse(const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  std::fputs("fake CUDA driver: ", stderr);
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
        {"memory_mib", &result.memory_mib},
        {"architecture", &result.architecture},
        {"version", &result.version},
        {"fail_init", &result.fail_init},
        {"fail_allocation", &result.fail_allocation},
        {"fail_launch", &result.fail_launch},
        {"illegal_address", &result.illegal_address},
        {"early_only", &result.early_only},
        {"lost", &result.lost},
    };
    const char* text = std::getenv("FORGE_FAKE_CUDA");
    std::istringstream list(text ? text : "");
    for (std::string entry; std::getline(list, entry, ',');) {
      const size_t equals = entry.find('=');
      const auto field = fields.find(entry.substr(0, equals));
      if (equals == std::string::npos || field == fields.end()) {
        misuse("FORGE_FAKE_CUDA has the unknown entry \"%s\"", entry.c_str());
      }
      *field->second = std::strtoull(entry.c_str() + equals + 1, nullptr, 10);
    }
    return result;
  }();
  return parsed;
}

}  // namespace fake_driver
