#pragma once

// libflash_attn.so (csrc/flash_attn), if it is installed and runs on the device.

#include <atomic>
#include <memory>
#include <string>

#include "../flash_attn/flash_attn.h"
#include "device.h"
#include "shared_library.h"

namespace forge::cuda {

class FlashLibrary {
 public:
  // Searches the folder of this library, or the path in FORGE_FLASH_ATTN. The device's context must
  // be current.
  FlashLibrary();

  // The reason why it is not used; empty if it is.
  const std::string& problem() const { return problem_; }
  const std::string& path() const { return library_->path(); }

  // Bytes of workspace of a call by the kernels of any architecture. Throws FORGE_INTERNAL with the
  // library's message if it rejects the parameters.
  uint64_t workspace_bytes(uint32_t function, const flash_attn_params& params) const;
  // Enqueues a call on the stream of its parameters. Throws FORGE_DEVICE_FAILED on failure. If the
  // driver refuses the descriptions of pages that the kernels of SM90 read by, this and later calls
  // take the kernels of SM80, which need none.
  void call(uint32_t function, const flash_attn_params& params) const;

 private:
  // Finds the functions and checks that the device can run them.
  void load();

  std::shared_ptr<const SharedLibrary> library_;
  std::string problem_;
  mutable std::atomic<bool> forces_sm80_ = false;
  decltype(&flash_attn_status_text) status_text_ = nullptr;
  decltype(&flash_attn_workspace_size) workspace_size_ = nullptr;
  decltype(&flash_attn_varlen_fwd) varlen_fwd_ = nullptr;
  decltype(&flash_attn_decode) decode_ = nullptr;
};

// One call of the library in a plan, its parameters' stream excepted.
class FlashCall {
 public:
  FlashCall(const FlashLibrary& library, uint32_t function, const flash_attn_params& params)
      : library_(&library), function_(function), params_(params) {}

  void enqueue(const Device& device) const;
  std::string name() const;

 private:
  const FlashLibrary* library_;
  uint32_t function_;
  flash_attn_params params_;
};

}  // namespace forge::cuda
