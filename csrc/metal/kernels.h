#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "device.h"

namespace forge::metal {

// A kernel that plans launch; `pipeline` is empty until it has been loaded.
struct Kernel {
  std::string file;  // in kernels/metal, without its ending
  std::string name;      // as arguments.h names it: "rms_norm", "matvec<FormatQ8_0, 1>"
  std::string function;  // its name in a Metal library, an identifier: "matvec_FormatQ8_0_1"
  Object pipeline;
  uint32_t max_threads = 0;              // of a threadgroup
  uint64_t static_threadgroup_bytes = 0;  // beside what a launch brings
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

  // The kernel of a name, which `load` has yet to load if it is new. The address is for good.
  const Kernel& get(const std::string& file, const std::string& name);
  // Compiles every kernel that is not loaded yet. Throws FORGE_INTERNAL with the compiler's words
  // when a source does not compile.
  void load();

 private:
  void load_file(const std::string& file, const std::vector<Kernel*>& kernels);

  std::shared_ptr<const Device> device_;
  uint32_t n_threads_;
  std::map<std::string, Kernel> kernels_;  // by name
};

// The text of a kernel's file as one source: what it includes of kernels/metal stands in it, once.
std::string source_text(const std::string& file);

}  // namespace forge::metal
