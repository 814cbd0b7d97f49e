#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>

#include "kernel_cache.h"
#include "memory.h"
#include "nvrtc.h"

namespace forge::cuda {

// A kernel that plans launch; `function` is null until it is loaded.
struct Kernel {
  std::string file;      // in kernels/cuda, or the name of `source`
  std::string instance;  // its name expression, as in "matvec<FormatQ8_0, 1>"
  std::string source;    // that includes such files; empty: the file itself
  Function function = nullptr;
};

// The kernels of one device. Each instance is compiled once, kept on disk, and loaded when a plan
// first names it.
class Kernels {
 public:
  // Compiles with at most `n_threads` threads.
  Kernels(std::shared_ptr<DeviceState> state, uint32_t n_threads);
  ~Kernels();
  Kernels(const Kernels&) = delete;
  Kernels& operator=(const Kernels&) = delete;

  // Returns the kernel of a name; a new one is not loaded until `load`. The address stays valid.
  const Kernel& get(const std::string& file, const std::string& instance);
  // Returns the kernel of a source that the library writes, under a name that no file has.
  const Kernel& get(const std::string& file, const std::string& instance,
                    const std::string& source);
  // Loads all new kernels. Throws as Nvrtc does.
  void load();

  // As in "13.0"; opens NVRTC.
  const std::string& compiler_version() { return nvrtc().version(); }
  const std::string& compiler_path() { return nvrtc().path(); }
  // True if kernels with wgmma, those of files wgmma_*.cu, can be compiled.
  bool compiles_wgmma() { return nvrtc().knows_wgmma(); }
  // True if kernels may take parameters of up to 32 KB.
  bool takes_large_parameters() { return nvrtc().takes_large_parameters(); }
  const std::string& cache_folder() const { return cache_.folder(); }

 private:
  const Nvrtc& nvrtc();
  KernelImage image_of(const Kernel& kernel) const;
  void load_image(Kernel& kernel, const KernelImage& image);

  std::shared_ptr<DeviceState> state_;
  uint32_t n_threads_;
  KernelCache cache_;
  std::optional<Nvrtc> nvrtc_;
  std::map<std::string, Kernel> kernels_;  // by instance or source
  std::vector<Module> modules_;
};

}  // namespace forge::cuda
