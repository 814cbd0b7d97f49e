// Recurrent state: see abi/caches.h.

#include "border.h"

using namespace forge;

namespace {

constexpr uint32_t kMaxSlots = 1u << 16;

StateCache& state_slot(const StateObject& object, uint32_t slot) {
  const uint32_t n_slots = object.state->shape.n_slots;
  require(slot < n_slots, "state slot ", slot, " of ", n_slots);
  return *object.state;
}

void check_slot_buffer(const StateCache& state, const void* data, uint64_t bytes) {
  require(data && bytes == state.slot_bytes, "a state slot has ", state.slot_bytes,
          " bytes, the buffer has ", bytes);
}

}  // namespace

forge_status forge_state_create(uint32_t device, uint32_t n_slots, uint32_t rows, uint32_t cols,
                                uint32_t* state, uint64_t* slot_bytes) {
  return on_handle(device, [&] {
    auto owner = get_device(device);
    not_null(state, "state");
    not_null(slot_bytes, "slot_bytes");
    require(n_slots >= 1 && n_slots <= kMaxSlots, "state cache: ", n_slots,
            " slots; valid is 1 to ", kMaxSlots);
    for (const uint32_t size : {rows, cols}) {
      require(size >= 1 && size <= 1u << 24, "state cache: matrices of [", rows, ", ", cols,
              "]; valid is 1 to ", 1u << 24);
    }
    // No machine holds more; below it, no backend's computation of sizes can overflow.
    if (static_cast<double>(n_slots) * rows * cols > 0x1p44) {
      fail(FORGE_OUT_OF_MEMORY, "a state cache of ", n_slots, " slots of [", rows, ", ", cols,
           "] is too large");
    }
    auto object = std::make_shared<StateObject>();
    object->state = owner->backend->create_state({n_slots, rows, cols});
    object->device = std::move(owner);
    *slot_bytes = object->state->slot_bytes;
    *state = handles().insert(std::move(object));
  });
}

forge_status forge_state_copy_slot(uint32_t state, uint32_t from, uint32_t to) {
  return on_handle(state, [&] {
    auto object = get<StateObject>(state, "state cache");
    state_slot(*object, to);
    if (from != to) state_slot(*object, from).copy_slot(from, to);
  });
}

forge_status forge_state_read_slot(uint32_t state, uint32_t slot, void* data, uint64_t bytes) {
  return on_handle(state, [&] {
    auto object = get<StateObject>(state, "state cache");
    const StateCache& cache = state_slot(*object, slot);
    check_slot_buffer(cache, data, bytes);
    cache.read_slot(slot, static_cast<uint8_t*>(data));
  });
}

forge_status forge_state_write_slot(uint32_t state, uint32_t slot, const void* data,
                                    uint64_t bytes) {
  return on_handle(state, [&] {
    auto object = get<StateObject>(state, "state cache");
    StateCache& cache = state_slot(*object, slot);
    check_slot_buffer(cache, data, bytes);
    cache.write_slot(slot, static_cast<const uint8_t*>(data));
  });
}
