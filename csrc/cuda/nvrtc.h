#pragma once

#include <memory>
#include <string>
#include <vector>

#include "shared_library.h"

namespace forge::cuda {

// One instance of a kernel, compiled.
struct KernelImage {
  std::string symbol;  // the function's name in the code
  std::string code;    // machine code, or PTX that the driver compiles
};

// NVIDIA's run-time compiler.
class Nvrtc {
 public:
  // Opens the newest NVRTC whose machine code a driver of CUDA `driver_version` loads. Throws
  // FORGE_DEVICE_FAILED, with the paths tried and advice, if none is found.
  explicit Nvrtc(int driver_version);

  const std::string& path() const { return library_->path(); }
  // As in "13.0".
  const std::string& version() const { return version_; }

  // True for CUDA 12 and newer, which know the instructions of sm_90a.
  bool knows_wgmma() const;
  // Returns the option that compiles for an architecture such as 90: machine code if this NVRTC
  // supports the architecture, else PTX for the newest one it supports. Kernels with wgmma are
  // compiled for sm_90a, which runs on SM90 alone.
  std::string architecture_option(int architecture, bool uses_wgmma) const;

  // True for CUDA 12.1 and newer.
  bool takes_large_parameters() const;

  // Compiles one instance, such as "matvec<FormatQ8_0, 1>", of a kernel in the source of a file,
  // which may include the other files. Throws FORGE_INTERNAL with the compiler's log on failure.
  // Thread-safe.
  KernelImage compile(const char* file, const char* source, const std::string& instance,
                      const std::vector<std::string>& options) const;

 private:
  std::shared_ptr<const SharedLibrary> library_;
  std::string version_;
  std::vector<int> architectures_;  // ascending
};

}  // namespace forge::cuda
