#pragma once

#include <memory>
#include <string>

#include "../common/error.h"
#include "driver_api.h"
#include "shared_library.h"

namespace forge::cuda {

// The CUDA driver, opened and initialised once for the process.
class Driver {
 public:
  // Throws FORGE_DEVICE_FAILED, with the paths tried and advice, if no driver is found.
  static const Driver& get();
  // The text of that error; empty if a driver is found.
  static std::string problem();

  const DriverApi& api() const { return api_; }
  const std::string& path() const { return library_->path(); }
  // The CUDA version that the driver implements, as in 12040 for 12.4.
  int version() const { return version_; }
  int device_count() const;

  // "CUDA_ERROR_X (its description)".
  std::string describe(Result result) const;

 private:
  Driver() = default;
  static std::unique_ptr<const Driver> open();

  std::shared_ptr<const SharedLibrary> library_;
  DriverApi api_{};
  int version_ = 0;
};

// True if a failure leaves the context unusable: every later call on it fails too.
bool is_fatal(Result result);

// Throws if a call of the driver failed. `what` names the call in the error.
template <class... Parts>
void check_driver(Result result, const Parts&... what) {
  if (result == kSuccess) return;
  const forge_status status = result == kOutOfMemory ? FORGE_OUT_OF_MEMORY : FORGE_DEVICE_FAILED;
  fail(status, what..., ": ", Driver::get().describe(result));
}

// "12.4" for 12040.
std::string version_text(int version);

}  // namespace forge::cuda
