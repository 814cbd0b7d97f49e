#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "device.h"

namespace forge::metal {

// A kernel that plans launch; `pipeline` is empty until it is loaded.
struct Kernel {
  std::string file;  // in kernels/metal, without its ending
  std::string name;      // as arguments.h names it: "rms_norm", "matvec<FormatQ8_0, 1>"
  std::string function;  // its name in a Metal library, an identifier: "matvec_FormatQ8_0_1"
  Object pipeline;
  uint32_t max_threads = 0;              // of a threadgroup
  uint64_t static_threadgroup_bytes = 0;  // without the memory of a launch
};

// The kernels of one device, compiled from the sources that the library carries. Each instance is
// compiled once in a process; macOS keeps what it compiled from the same source before.
class Kernels {
 public:
  // Compiles with at most `n_threads` threads.
  Kernels(std::shared_ptr<const Device> device, uint32_t n_threads)
      : device_(std::move(device)), n_threads_(n_threads) {}
  Kernels(const Kernels&) = delete;
  Kernels& operator=(const Kernels&) = delete;

  // Returns the kernel of a name; a new one is not loaded until `load`. The address stays valid.
  const Kernel& get(const std::string& file, const std::string& name);
  // Compiles all new kernels. Throws FORGE_INTERNAL with the compiler's log on failure.
  void load();

 private:
  void load_file(const std::string& file, const std::vector<Kernel*>& kernels);

  std::shared_ptr<const Device> device_;
  uint32_t n_threads_;
  std::map<std::string, Kernel> kernels_;  // by name
};

// Returns the text of a kernel's file with its includes from kernels/metal expanded, each once.
std::string source_text(const std::string& file);

}  // namespace forge::metal
