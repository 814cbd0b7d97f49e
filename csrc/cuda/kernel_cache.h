#pragma once

#include <optional>
#include <string>
#include <vector>

namespace forge::cuda {

// Compiled kernels on disk, one file an image, named by a hash of everything that shaped it. Files
// appear whole or not at all; one that is damaged counts as missing.
class KernelCache {
 public:
  // In $FORGE_CACHE, $XDG_CACHE_HOME/forge or ~/.cache/forge, below it in "kernels". Where there is
  // no such folder and none can be made, nothing is kept.
  static KernelCache standard();
  explicit KernelCache(std::string folder) : folder_(std::move(folder)) {}

  const std::string& folder() const { return folder_; }

  // The image that the ingredients (sources, options, versions) made, if it is there and intact.
  std::optional<std::string> load(const std::string& name,
                                  const std::vector<std::string>& ingredients) const;
  // Keeps an image. A failure to write is no error: the next start compiles again.
  void store(const std::string& name, const std::vector<std::string>& ingredients,
             const std::string& image) const;

 private:
  std::string folder_;
};

}  // namespace forge::cuda
