#include "options.h"

#include "../fake_options.h"

namespace fake_driver {

void misuse(const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  emulator::abort_for_misuse("fake CUDA driver", format, arguments);
}

const Options& options() {
  static const Options parsed = [] {
    Options result;
    emulator::read_options("FORGE_FAKE_CUDA",
                           {{"devices", &result.devices},
                            {"memory_mib", &result.memory_mib},
                            {"architecture", &result.architecture},
                            {"multiprocessors", &result.multiprocessors},
                            {"l2_kib", &result.l2_kib},
                            {"version", &result.version},
                            {"fail_init", &result.fail_init},
                            {"fail_allocation", &result.fail_allocation},
                            {"fail_launch", &result.fail_launch},
                            {"illegal_address", &result.illegal_address},
                            {"refuse_tensor_maps", &result.refuse_tensor_maps},
                            {"early_only", &result.early_only},
                            {"lost", &result.lost},
                            {"lost_in_turn", &result.lost_in_turn},
                            {"fail_capture", &result.fail_capture},
                            {"most_graphs", &result.most_graphs},
                            {"load_once", &result.load_once},
                            {"fail_stream", &result.fail_stream},
                            {"failing_device", &result.failing_device},
                            {"strict_exit", &result.strict_exit}});
    return result;
  }();
  return parsed;
}

}  // namespace fake_driver
