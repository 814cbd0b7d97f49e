#include "kernels.h"

#include <cctype>

#include "../gpu/parallel.h"

namespace forge::metal {

namespace {

// A kernel's name as an identifier: other characters become underscores.
std::string identifier_of(const std::string& name) {
  std::string identifier;
  for (const char c : name) {
    if (std::isalnum(static_cast<unsigned char>(c)) || c == '_') {
      identifier += c;
    } else if (!identifier.ends_with('_')) {
      identifier += '_';
    }
  }
  if (name.ends_with('>')) identifier.pop_back();
  return identifier;
}

}  // namespace

const Kernel& Kernels::get(const std::string& file, const std::string& name) {
  Kernel& kernel = kernels_[name];
  if (kernel.name.empty()) {
    kernel.file = file;
    kernel.name = name;
    kernel.function = identifier_of(name);
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
