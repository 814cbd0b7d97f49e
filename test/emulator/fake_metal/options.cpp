#include "options.h"

#include "../fake_options.h"

namespace fake_metal {

void misuse(const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  emulator::abort_for_misuse("fake Metal", format, arguments);
}

const Options& options() {
  static const Options parsed = [] {
    Options result;
    emulator::read_options("FORGE_FAKE_METAL",
                           {{"devices", &result.devices},
                            {"family", &result.family},
                            {"memory_mib", &result.memory_mib},
                            {"taken_mib", &result.taken_mib},
                            {"buffer_kib", &result.buffer_kib},
                            {"max_threads", &result.max_threads},
                            {"matrix_places", &result.matrix_places},
                            {"residency", &result.residency},
                            {"fail_allocation", &result.fail_allocation},
                            {"fail_compile", &result.fail_compile},
                            {"fail_pipeline", &result.fail_pipeline},
                            {"fail_commands", &result.fail_commands},
                            {"fail_code", &result.fail_code},
                            {"slow_exit_ms", &result.slow_exit_ms},
                            {"trace", &result.trace}});
    return result;
  }();
  return parsed;
}

}  // namespace fake_metal
