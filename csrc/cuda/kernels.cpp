#include "kernels.h"

#include <cctype>

#include "../gpu/kernel_sources.h"
#include "../gpu/parallel.h"

namespace forge::cuda {

namespace {

// Name of a cache file: letters and digits of the instance and architecture.
std::string file_name(const std::string& instance, const std::string& architecture) {
  std::string name;
  for (const char c : instance + "-" + architecture.substr(architecture.find('=') + 1)) {
    name += std::isalnum(static_cast<unsigned char>(c)) || c == '-' ? c : '_';
  }
  return name;
}

}  // namespace

Kernels::Kernels(std::shared_ptr<DeviceState> state, uint32_t n_threads)
    : state_(std::move(state)), n_threads_(n_threads), cache_(KernelCache::standard()) {}

Kernels::~Kernels() {
  const DeviceScope scope(state_->device);
  for (const Module module : modules_) state_->device.api().module_unload(module);
}

const Nvrtc& Kernels::nvrtc() {
  if (!nvrtc_) nvrtc_.emplace(state_->device.driver().version());
  return *nvrtc_;
}

const Kernel& Kernels::get(const std::string& file, const std::string& instance) {
  return kernels_.try_emplace(instance, Kernel{file, instance, ""}).first->second;
}

const Kernel& Kernels::get(const std::string& file, const std::string& instance,
                           const std::string& source) {
  return kernels_.try_emplace(source, Kernel{file, instance, source}).first->second;
}

void Kernels::load() {
  std::vector<Kernel*> missing;
  for (auto& [name, kernel] : kernels_) {
    if (!kernel.function) missing.push_back(&kernel);
  }
  if (missing.empty()) return;
  // Before the threads that use it.
  nvrtc();
  std::vector<KernelImage> images(missing.size());
  parallel_for(missing.size(), n_threads_, [&](size_t i) { images[i] = image_of(*missing[i]); });
  for (size_t i = 0; i < missing.size(); ++i) load_image(*missing[i], images[i]);
}

KernelImage Kernels::image_of(const Kernel& kernel) const {
  const std::string architecture = nvrtc_->architecture_option(
      state_->device.properties().architecture, kernel.file.starts_with("wgmma_"));
  const std::vector<std::string> options = {architecture, "--std=c++17", "-default-device"};
  std::vector<std::string> ingredients = options;
  ingredients.insert(ingredients.end(), {nvrtc_->version(), kernel.instance, kernel.source});
  for (const KernelSource& source : kernel_sources()) {
    const std::string name = source.name;
    // A kernel's file includes headers only; a source of the library includes files.
    if (name == kernel.file || !name.ends_with(".cu") ||
        kernel.source.find("\"" + name + "\"") != std::string::npos) {
      ingredients.insert(ingredients.end(), {name, source.text});
    }
  }
  const std::string name = file_name(kernel.instance, architecture);
  // On disk, the symbol is the first line.
  if (const std::optional<std::string> kept = cache_.load(name, ingredients)) {
    const size_t line = kept->find('\n');
    if (line != std::string::npos) return {kept->substr(0, line), kept->substr(line + 1)};
  }
  const char* file = kernel.file.c_str();
  const char* source = kernel.source.empty() ? kernel_source(file).text : kernel.source.c_str();
  KernelImage image = nvrtc_->compile(file, source, kernel.instance, options);
  cache_.store(name, ingredients, image.symbol + "\n" + image.code);
  return image;
}

void Kernels::load_image(Kernel& kernel, const KernelImage& image) {
  const Device& device = state_->device;
  const DriverApi& api = device.api();
  const DeviceScope scope(device);
  Module module = nullptr;
  device.check(api.module_load(&module, image.code.c_str()), "loading ", kernel.instance);
  modules_.push_back(module);
  Function function = nullptr;
  device.check(api.module_function(&function, module, image.symbol.c_str()), "finding ",
               kernel.instance);
  int fixed = 0;
  device.check(api.function_attribute(&fixed, FunctionAttribute::static_shared_bytes, function),
               "cuFuncGetAttribute");
  // Launches may use all shared memory that the device allows a block.
  const int rest = static_cast<int>(device.properties().max_shared_bytes) - fixed;
  device.check(
      api.set_function_attribute(function, FunctionAttribute::max_dynamic_shared_bytes, rest),
      "cuFuncSetAttribute");
  kernel.function = function;
}

}  // namespace forge::cuda
