#include "driver.h"

#include <memory>
#include <mutex>

namespace forge::cuda {

namespace {

// CUDA 11.4: the first with every function of driver_api.h.
constexpr int kOldestVersion = 11040;

}  // namespace

std::string version_text(int version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

bool is_fatal(Result result) {
  switch (result) {
    case kEccUncorrectable:
    case kNvlinkUncorrectable:
    case kContained:
    case kIllegalAddress:
    case kLaunchTimeout:
    case kContextIsDestroyed:
    case kAssert:
    case kHardwareStackError:
    case kIllegalInstruction:
    case kMisalignedAddress:
    case kInvalidAddressSpace:
    case kInvalidPc:
    case kLaunchFailed:
    case kUnknownError:
      return true;
    default:
      return false;
  }
}

std::unique_ptr<const Driver> Driver::open() {
  LibrarySearch search = find_library(kDriverQuery);
  if (!search.library) fail(FORGE_DEVICE_FAILED, search.problem);
  std::unique_ptr<Driver> driver(new Driver);
  driver->library_ = std::move(search.library);
  DriverApi& api = driver->api_;
#define FORGE_DRIVER_LOAD(member, symbol, parameters) \
  api.member = reinterpret_cast<decltype(api.member)>(driver->library_->require_symbol(#symbol));
  FORGE_DRIVER_FUNCTIONS(FORGE_DRIVER_LOAD)
#undef FORGE_DRIVER_LOAD
#define FORGE_DRIVER_LOAD(member, symbol, parameters) \
  api.member = reinterpret_cast<decltype(api.member)>(driver->library_->find(#symbol));
  FORGE_OPTIONAL_DRIVER_FUNCTIONS(FORGE_DRIVER_LOAD)
#undef FORGE_DRIVER_LOAD
  if (const Result result = api.init(0); result != kSuccess) {
    fail(FORGE_DEVICE_FAILED, "the CUDA driver ", driver->path(), " does not start: ",
         driver->describe(result), "; nvidia-smi tells more");
  }
  api.driver_version(&driver->version_);
  if (driver->version_ < kOldestVersion) {
    fail(FORGE_DEVICE_FAILED, "the CUDA driver ", driver->path(), " implements CUDA ",
         version_text(driver->version_), "; forge needs a driver for CUDA ",
         version_text(kOldestVersion), " or newer");
  }
  return driver;
}

const Driver& Driver::get() {
  // Kept for the life of the process: contexts and streams that are released last still need it. A
  // failed search is repeated, since the driver may have been installed meanwhile.
  static std::mutex mutex;
  static const Driver* driver = nullptr;
  const std::lock_guard lock(mutex);
  if (!driver) driver = open().release();
  return *driver;
}

std::string Driver::problem() {
  try {
    get();
    return "";
  } catch (const Error& error) {
    return error.what();
  }
}

int Driver::device_count() const {
  int count = 0;
  const Result result = api_.device_count(&count);
  return result == kSuccess ? count : 0;
}

std::string Driver::describe(Result result) const {
  const char* name = nullptr;
  const char* text = nullptr;
  api_.error_name(result, &name);
  api_.error_string(result, &text);
  return std::string(name ? name : "CUDA error " + std::to_string(result)) +
         (text ? std::string(" (") + text + ")" : "");
}

}  // namespace forge::cuda
