#include "device_memory.h"

#include <algorithm>
#include <cstdio>

#include "../common/error.h"

namespace forge {

namespace {

// Memory reserved for the driver: code of kernels, and graphs.
constexpr uint64_t kDriverBytes = 64u << 20;

const char* name_of(Purpose purpose) {
  switch (purpose) {
    case Purpose::weights:
      return "weights";
    case Purpose::kv_cache:
      return "KV cache";
    case Purpose::activations:
      return "activations";
  }
  return "";
}

const char* advice_for(Purpose purpose) {
  switch (purpose) {
    case Purpose::weights:
      return "a smaller quantisation of the model takes less";
    case Purpose::kv_cache:
      return "a shorter context takes less";
    case Purpose::activations:
      return "a shorter context leaves more";
  }
  return "";
}

// The longest context, in tokens, whose KV cache fits in `room` bytes.
uint64_t context_that_fits(const MemoryNeeds& needs, uint64_t room) {
  const uint64_t others = needs.total() - needs.kv_cache;
  if (needs.page_bytes == 0 || room <= others) return 0;
  return (room - others) / needs.page_bytes * needs.page_tokens;
}

}  // namespace

void require_memory(const DeviceRoom& room, const MemoryNeeds& needs) {
  const uint64_t reserved = std::min(kDriverBytes, room.total_bytes / 32);
  const uint64_t usable = room.free_bytes > reserved ? room.free_bytes - reserved : 0;
  if (needs.total() <= usable) return;
  const uint64_t context = context_that_fits(needs, usable);
  const std::string advice =
      context > 0 ? "a context of " + std::to_string(context) + " tokens would fit"
                  : "weights and activations alone do not fit: a smaller quantisation takes less";
  const std::string state = needs.recurrent_state == 0
                                ? ""
                                : ", recurrent state " + size_text(needs.recurrent_state);
  fail(FORGE_OUT_OF_MEMORY, "the model needs ", size_text(needs.total()), " of ", room.device,
       ": weights ", size_text(needs.weights), ", KV cache ", size_text(needs.kv_cache), state,
       ", activations ", size_text(needs.activations), "; ", size_text(usable), " of ",
       size_text(room.total_bytes), " are free; ", advice);
}

void fail_out_of_memory(const DeviceRoom& room, const MemoryLedger& ledger, uint64_t bytes,
                        Purpose purpose) {
  std::string held;
  for (const Purpose each : {Purpose::weights, Purpose::kv_cache, Purpose::activations}) {
    const uint64_t taken = ledger.bytes(each);
    if (taken == 0) continue;
    held += std::string(held.empty() ? "" : ", ") + name_of(each) + " " + size_text(taken);
  }
  fail(FORGE_OUT_OF_MEMORY, room.device, ": ", size_text(bytes), " more for ", name_of(purpose),
       " do not fit: ", size_text(room.free_bytes), " of ", size_text(room.total_bytes),
       " are free", held.empty() ? "" : "; forge holds ", held, "; ", advice_for(purpose));
}

std::string size_text(uint64_t bytes) {
  const char* unit = bytes >= 1u << 30 ? "GiB" : bytes >= 1u << 20 ? "MiB" : "KiB";
  const double scale = bytes >= 1u << 30 ? 0x1p-30 : bytes >= 1u << 20 ? 0x1p-20 : 0x1p-10;
  char text[32];
  std::snprintf(text, sizeof text, "%.1f %s", static_cast<double>(bytes) * scale, unit);
  return text;
}

}  // namespace forge
