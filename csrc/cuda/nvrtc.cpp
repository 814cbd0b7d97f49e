#include "nvrtc.h"

#include <algorithm>
#include <cstring>

#include "../common/error.h"
#include "../gpu/kernel_sources.h"
#include "driver.h"
#include "nvrtc_api.h"

namespace forge::cuda {

namespace {

NvrtcApi load_api(const SharedLibrary& library) {
  NvrtcApi api{};
#define FORGE_NVRTC_LOAD(member, symbol, result, parameters) \
  api.member = reinterpret_cast<decltype(api.member)>(library.require_symbol(#symbol));
  FORGE_NVRTC_FUNCTIONS(FORGE_NVRTC_LOAD)
#undef FORGE_NVRTC_LOAD
  return api;
}

void check(const NvrtcApi& api, NvrtcResult result, const char* what) {
  if (result != 0) fail(FORGE_INTERNAL, what, ": ", api.error_string(result));
}

}  // namespace

Nvrtc::Nvrtc(int driver_version) {
  LibrarySearch search = find_library(for_driver(kNvrtcQuery, driver_version));
  if (!search.library) {
    fail(FORGE_DEVICE_FAILED, search.problem, " (the driver is for CUDA ",
         version_text(driver_version), ")");
  }
  library_ = std::move(search.library);
  const NvrtcApi api = load_api(*library_);
  int major = 0, minor = 0;
  check(api, api.version(&major, &minor), "nvrtcVersion");
  version_ = std::to_string(major) + "." + std::to_string(minor);
  int count = 0;
  check(api, api.count_architectures(&count), "nvrtcGetNumSupportedArchs");
  architectures_.resize(static_cast<size_t>(count));
  check(api, api.architectures(architectures_.data()), "nvrtcGetSupportedArchs");
  std::sort(architectures_.begin(), architectures_.end());
}

bool Nvrtc::knows_wgmma() const { return std::stoi(version_) >= 12; }

bool Nvrtc::takes_large_parameters() const {
  return std::stoi(version_) > 12 || (std::stoi(version_) == 12 && version_ != "12.0");
}

std::string Nvrtc::architecture_option(int architecture, bool uses_wgmma) const {
  if (uses_wgmma) return "--gpu-architecture=sm_90a";
  int best = 0;
  for (const int known : architectures_) {
    if (known <= architecture) best = known;
  }
  if (best == 0) {
    fail(FORGE_UNSUPPORTED, path(), " (NVRTC ", version_,
         ") compiles for no architecture up to sm_", architecture);
  }
  if (best != architecture) return "--gpu-architecture=compute_" + std::to_string(best);
  return "--gpu-architecture=sm_" + std::to_string(best);
}

KernelImage Nvrtc::compile(const char* file, const char* source, const std::string& instance,
                           const std::vector<std::string>& options) const {
  // NVRTC opens its library of built-in functions by name, which the system's loader may not find.
#if defined(_WIN32)
  library_->open_siblings("nvrtc-builtins64_*.dll");
#else
  library_->open_siblings("libnvrtc-builtins.so.*");
#endif
  const NvrtcApi api = load_api(*library_);
  std::vector<const char*> texts, names;
  for (const KernelSource& source : kernel_sources()) {
    texts.push_back(source.text);
    names.push_back(source.name);
  }
  NvrtcProgram program = nullptr;
  check(api,
        api.create(&program, source, file, static_cast<int>(texts.size()),
                   texts.data(), names.data()),
        "nvrtcCreateProgram");
  const std::unique_ptr<NvrtcProgram, NvrtcResult (*)(NvrtcProgram*)> owner(&program, api.destroy);
  check(api, api.add_name(program, instance.c_str()), "nvrtcAddNameExpression");

  std::vector<const char*> arguments;
  for (const std::string& option : options) arguments.push_back(option.c_str());
  const NvrtcResult result =
      api.compile(program, static_cast<int>(arguments.size()), arguments.data());
  if (result != 0) {
    size_t size = 0;
    api.log_size(program, &size);
    std::string log(size, '\0');
    if (size > 0) api.log(program, log.data());
    fail(FORGE_INTERNAL, "NVRTC ", version_, " does not compile ", instance, " of ", file, ": ",
         api.error_string(result), "\n", log.c_str());
  }

  const bool is_ptx = std::any_of(options.begin(), options.end(), [](const std::string& option) {
    return option.starts_with("--gpu-architecture=compute_");
  });
  KernelImage image;
  const char* symbol = nullptr;
  check(api, api.lowered_name(program, instance.c_str(), &symbol), "nvrtcGetLoweredName");
  image.symbol = symbol;
  size_t size = 0;
  check(api, is_ptx ? api.ptx_size(program, &size) : api.cubin_size(program, &size),
        "size of the compiled kernel");
  image.code.resize(size);
  check(api, is_ptx ? api.ptx(program, image.code.data()) : api.cubin(program, image.code.data()),
        "fetching the compiled kernel");
  return image;
}

}  // namespace forge::cuda
