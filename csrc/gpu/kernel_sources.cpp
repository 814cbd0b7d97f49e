#include "kernel_sources.h"

#include <cstring>
#include <vector>

#include "../common/error.h"

namespace forge {

// Names and texts in turn, then null; the build generates it.
extern const char* const embedded_files[];

std::span<const KernelSource> kernel_sources() {
  // Never freed: a run may outlive the destructors of an exiting process.
  static const auto* const sources = [] {
    auto* list = new std::vector<KernelSource>;
    for (const char* const* file = embedded_files; *file; file += 2) {
      list->push_back({file[0], file[1]});
    }
    return list;
  }();
  return *sources;
}

const KernelSource& kernel_source(const char* name) {
  for (const KernelSource& source : kernel_sources()) {
    if (std::strcmp(source.name, name) == 0) return source;
  }
  fail(FORGE_INTERNAL, "the library carries no kernel source ", name);
}

}  // namespace forge
