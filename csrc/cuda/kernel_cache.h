#pragma once

#include <optional>
#include <string>
#include <vector>

namespace forge::cuda {

// Compiled kernels on disk, one file per image, named by a hash of everything it is compiled from.
// Files are written atomically; a damaged file counts as missing.
class KernelCache {
 public:
  // Opens the folder "kernels" in $FORGE_CACHE, $XDG_CACHE_HOME/forge or ~/.cache/forge; on Windows
  // %LOCALAPPDATA%/forge comes before the last. The cache stays empty if the folder cannot be
  // created.
  static KernelCache standard();
  explicit KernelCache(std::string folder) : folder_(std::move(folder)) {}

  const std::string& folder() const { return folder_; }

  // Returns the image compiled from the ingredients (sources, options, versions), if it is intact.
  std::optional<std::string> load(const std::string& name,
                                  const std::vector<std::string>& ingredients) const;
  // Stores an image. Ignores write failures: the next start compiles again.
  void store(const std::string& name, const std::vector<std::string>& ingredients,
             const std::string& image) const;

 private:
  std::string folder_;
};

}  // namespace forge::cuda
