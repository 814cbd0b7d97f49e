#include "memory_needs.h"

#include <algorithm>

#include "../common/error.h"

namespace forge {

namespace {

// What the driver takes for the code of kernels and for graphs.
constexpr uint64_t kDriverBytes = 64u << 20;

// The longest context whose caches fit, in tokens.
uint64_t context_that_fits(const MemoryNeeds& needs, uint64_t room) {
  uint64_t page_bytes = 0;
  uint32_t page_tokens = 0;
  for (const DeviceKv* kv : needs.caches) {
    page_bytes += kv->page_bytes;
    page_tokens = kv->shape.page_tokens;
  }
  const uint64_t others = needs.total() - needs.kv_bytes();
  return page_bytes == 0 || room <= others ? 0 : (room - others) / page_bytes * page_tokens;
}

}  // namespace

uint64_t MemoryNeeds::kv_bytes() const {
  uint64_t bytes = 0;
  for (const DeviceKv* kv : caches) bytes += kv->bytes();
  return bytes;
}

uint64_t MemoryNeeds::state_bytes() const {
  uint64_t bytes = 0;
  for (const DeviceSlots* state : states) bytes += state->bytes();
  return bytes;
}

void require_memory(const DeviceRoom& room, const MemoryNeeds& needs) {
  const uint64_t reserved = std::min(kDriverBytes, room.total_bytes / 32);
  const uint64_t usable = room.free_bytes > reserved ? room.free_bytes - reserved : 0;
  if (needs.total() <= usable) return;
  const uint64_t context = context_that_fits(needs, usable);
  const std::string advice =
      context > 0 ? "a context of " + std::to_string(context) + " tokens would fit"
                  : "weights and activations alone do not fit: a smaller quantisation takes less";
  fail(FORGE_OUT_OF_MEMORY, "the model needs ", size_text(needs.total()), " of ", room.device,
       ": weights ", size_text(needs.weights), ", KV cache ", size_text(needs.kv_bytes()),
       needs.states.empty() ? "" : ", recurrent state " + size_text(needs.state_bytes()),
       ", activations ", size_text(needs.activations), "; ", size_text(usable), " of ",
       size_text(room.total_bytes), " are free; ", advice);
}

}  // namespace forge
