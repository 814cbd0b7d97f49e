#include "memory_ledger.h"

#include <cstdio>

#include "../common/error.h"

namespace forge {

namespace {

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

}  // namespace

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
