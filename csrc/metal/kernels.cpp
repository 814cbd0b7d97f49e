#include "kernels.h"

#include "../gpu/parallel.h"

namespace forge::metal {

const Kernel& Kernels::get(const std::string& file, const std::string& name) {
  Kernel& kernel = kernels_[name];
  if (kernel.name.empty()) {
    kernel.file = file;
    kernel.name = name;
  }
  return kernel;
}

void Kernels::load() {
  std::map<std::string, std::vector<Kernel*>> missing;
  for (auto& [name, kernel] : kernels_) {
    if (!kernel.pipeline) missing[kernel.file].push_back(&kernel);
  }
  const std::vector<std::pair<std::string, std::vector<Kernel*>>> files(missing.begin(),
                                                                        missing.end());
  parallel_for(files.size(), n_threads_,
               [&](size_t i) { load_file(files[i].first, files[i].second); });
}

}  // namespace forge::metal
