#include "kernel_cache.h"

#if defined(_WIN32)
#include <process.h>
#else
#include <unistd.h>
#endif

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <fstream>

#include "../gpu/environment.h"

namespace forge::cuda {

namespace {

// 128-bit FNV-1a of several pieces. Lengths are hashed too, so that piece boundaries matter.
// G. Fowler, L. C. Noll, K.-P. Vo, "The FNV Non-Cryptographic Hash Algorithm".
class Hash {
 public:
  void add(const std::string& piece) {
    add_bytes(piece.data(), piece.size());
    const uint64_t size = piece.size();
    add_bytes(&size, sizeof size);
  }
  std::string hex() const {
    static const char* digits = "0123456789abcdef";
    std::string text;
    for (int shift = 124; shift >= 0; shift -= 4) text += digits[(value_ >> shift) & 15];
    return text;
  }

 private:
  using U128 = unsigned __int128;
  void add_bytes(const void* data, size_t n) {
    const auto* bytes = static_cast<const unsigned char*>(data);
    for (size_t i = 0; i < n; ++i) value_ = (value_ ^ bytes[i]) * kPrime;
  }
  static constexpr U128 kPrime = (U128{1} << 88) + 0x13b;
  U128 value_ = (U128{0x6c62272e07bb0142} << 64) + 0x62b821756295c58d;
};

std::string hash_of(const std::vector<std::string>& pieces) {
  Hash hash;
  for (const std::string& piece : pieces) hash.add(piece);
  return hash.hex();
}

// Header of an image: hashes of its ingredients and of its content.
std::string header_of(const std::vector<std::string>& ingredients, const std::string& image) {
  return "forge kernel 1 " + hash_of(ingredients) + " " + hash_of({image}) + "\n";
}

std::string path_of(const std::string& folder, const std::string& name,
                    const std::vector<std::string>& ingredients) {
  return folder + "/" + name + "-" + hash_of(ingredients);
}

}  // namespace

KernelCache KernelCache::standard() {
  std::string folder = environment("FORGE_CACHE");
  std::string caches = environment("XDG_CACHE_HOME");
  const std::string home = environment("HOME");
#if defined(_WIN32)
  if (caches.empty()) caches = environment("LOCALAPPDATA");
#endif
  if (folder.empty() && !caches.empty()) folder = caches + "/forge";
  if (folder.empty() && !home.empty()) folder = home + "/.cache/forge";
  return KernelCache(folder.empty() ? "" : folder + "/kernels");
}

std::optional<std::string> KernelCache::load(const std::string& name,
                                             const std::vector<std::string>& ingredients) const {
  if (folder_.empty()) return std::nullopt;
  std::ifstream file(to_path(path_of(folder_, name, ingredients)), std::ios::binary);
  std::string header;
  if (!file || !std::getline(file, header)) return std::nullopt;
  std::string image{std::istreambuf_iterator<char>(file), {}};
  if (header + "\n" != header_of(ingredients, image)) return std::nullopt;
  return image;
}

void KernelCache::store(const std::string& name, const std::vector<std::string>& ingredients,
                        const std::string& image) const {
  if (folder_.empty()) return;
  std::error_code error;
  std::filesystem::create_directories(to_path(folder_), error);
  if (error) return;
  static std::atomic<uint32_t> counter = 0;
  const std::string name_in_cache = path_of(folder_, name, ingredients);
  const std::filesystem::path path = to_path(name_in_cache);
  const std::filesystem::path temporary = to_path(
      name_in_cache + "." + std::to_string(getpid()) + "-" + std::to_string(++counter) + ".tmp");
  std::ofstream file(temporary, std::ios::binary);
  file << header_of(ingredients, image) << image;
  file.close();
  if (file) std::filesystem::rename(temporary, path, error);
  if (!file || error) std::filesystem::remove(temporary, error);
}

}  // namespace forge::cuda
