#pragma once

#include <memory>
#include <string>
#include <vector>

#include "shared_library.h"

namespace forge::cuda {

// One instance of a kernel, compiled.
struct KernelImage {
  std::string symbol;  // the function's name in the code
  std::string code;    // machine code of a device, or PTX that the driver turns into it
};

// NVIDIA's run-time compiler.
class Nvrtc {
 public:
  // Opens the newest NVRTC whose machine code a driver of CUDA `driver_version` loads. Throws
  // FORGE_DEVICE_FAILED with what was tried, and what to do, when there is none.
  explicit Nvrtc(int driver_version);

  const std::string& path() const { return library_->path(); }
  // As in "13.0".
  const std::string& version() const { return version_; }

  // The option that compiles for a device of an architecture such as 90: its own machine code where
  // this NVRTC knows the architecture, PTX of the newest older one where it does not.
  std::string architecture_option(int architecture) const;

  // Compiles one instance, such as "matvec<FormatQ8_0, 1>", of a kernel in a file of kernels/cuda;
  // the other files are there for it to include. Throws FORGE_INTERNAL with the compiler's own
  // words when it does not compile. May be called from several threads.
  KernelImage compile(const char* file, const std::string& instance,
                      const std::vector<std::string>& options) const;

 private:
  std::shared_ptr<const SharedLibrary> library_;
  std::string version_;
  std::vector<int> architectures_;  // ascending
};

}  // namespace forge::cuda
