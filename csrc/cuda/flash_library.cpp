#include "flash_library.h"

#include <algorithm>

namespace forge::cuda {

namespace {

const char* name_of(uint32_t function) {
  return function == FLASH_ATTN_DECODE ? "flash_attn_decode" : "flash_attn_varlen_fwd";
}

flash_attn_params on_sm80(flash_attn_params params) {
  params.flags |= FLASH_ATTN_FORCE_SM80;
  return params;
}

}  // namespace

FlashLibrary::FlashLibrary() {
  LibrarySearch search = find_library(kFlashAttnQuery);
  if (!search.library) {
    problem_ = std::move(search.problem);
    return;
  }
  library_ = std::move(search.library);
  // The library is optional: an unusable one is treated like a missing one.
  try {
    load();
  } catch (const Error& error) {
    problem_ = error.what();
  }
}

void FlashLibrary::load() {
  const auto load = [&](auto& function, const char* symbol) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(
        library_->require_symbol(symbol));
  };
  decltype(&flash_attn_version) version = nullptr;
  decltype(&flash_attn_device_status) device_status = nullptr;
  load(version, "flash_attn_version");
  if (version() != FLASH_ATTN_VERSION) {
    problem_ = library_->path() + " is of version " + std::to_string(version()) +
               "; this forge needs " + std::to_string(FLASH_ATTN_VERSION) +
               ", which deno task build makes";
    return;
  }
  load(device_status, "flash_attn_device_status");
  load(status_text_, "flash_attn_status_text");
  load(workspace_size_, "flash_attn_workspace_size");
  load(varlen_fwd_, "flash_attn_varlen_fwd");
  load(decode_, "flash_attn_decode");
  if (const flash_attn_status status = device_status()) {
    problem_ = library_->path() + ": " + status_text_(status);
  }
}

uint64_t FlashLibrary::workspace_bytes(uint32_t function, const flash_attn_params& params) const {
  const auto bytes_of = [&](const flash_attn_params& p) {
    uint64_t bytes = 0;
    if (const flash_attn_status status = workspace_size_(function, &p, &bytes)) {
      fail(FORGE_INTERNAL, name_of(function), ": ", status_text_(status));
    }
    return bytes;
  };
  return std::max(bytes_of(params), bytes_of(on_sm80(params)));
}

void FlashLibrary::call(uint32_t function, const flash_attn_params& params) const {
  const auto entry = function == FLASH_ATTN_DECODE ? decode_ : varlen_fwd_;
  const flash_attn_params plain = on_sm80(params);
  flash_attn_status status = entry(forces_sm80_ ? &plain : &params);
  if (status == FLASH_ATTN_TENSOR_MAP_FAILED) {
    forces_sm80_ = true;
    status = entry(&plain);
  }
  if (status) {
    fail(FORGE_DEVICE_FAILED, name_of(function), ": ", status_text_(status));
  }
}

std::string FlashCall::name() const { return name_of(function_); }

void FlashCall::enqueue(const Device& device) const {
  flash_attn_params params = params_;
  params.stream = device.stream();
  library_->call(function_, params);
  if (device.is_synchronous()) device.synchronize("running " + name());
}

}  // namespace forge::cuda
