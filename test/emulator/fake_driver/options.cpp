#include "options.h"

#include "../fake_options.h"

namespace fake_driver {

void misuse(const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  emulator::print_misuse("fake CUDA driver", format, arguments);
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
    const std::string unknown = emulator::read_options("FORGE_FAKE_CUDA", fields);
    if (!unknown.empty()) misuse("FORGE_FAKE_CUDA has the unknown entry \"%s\"", unknown.c_str());
    return result;
  }();
  return parsed;
}

}  // namespace fake_driver
