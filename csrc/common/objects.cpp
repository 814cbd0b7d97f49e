#include "objects.h"

namespace forge {

const HandleTable::Slot* HandleTable::slot_of(uint32_t handle) const {
  const uint32_t index = handle & ((1u << kIndexBits) - 1);
  if (index >= slots_.size()) return nullptr;
  const Slot& slot = slots_[index];
  return slot.object && slot.generation == handle >> kIndexBits ? &slot : nullptr;
}

uint32_t HandleTable::insert(std::shared_ptr<Object> object) {
  std::lock_guard lock(mutex_);
  uint32_t index;
  if (!free_.empty()) {
    index = free_.back();
    free_.pop_back();
  } else {
    index = static_cast<uint32_t>(slots_.size());
    if (index >> kIndexBits != 0) fail(FORGE_OUT_OF_MEMORY, "too many live handles");
    slots_.emplace_back();
  }
  slots_[index].object = std::move(object);
  return slots_[index].generation << kIndexBits | index;
}

std::shared_ptr<Object> HandleTable::find(uint32_t handle) const {
  std::lock_guard lock(mutex_);
  const Slot* slot = slot_of(handle);
  return slot ? slot->object : nullptr;
}

std::shared_ptr<Object> HandleTable::remove(uint32_t handle) {
  std::lock_guard lock(mutex_);
  if (!slot_of(handle)) return nullptr;
  const uint32_t index = handle & ((1u << kIndexBits) - 1);
  Slot& slot = slots_[index];
  // Skips generation 0 when the counter wraps: handle 0 must never be valid.
  slot.generation = (slot.generation + 1) & ((1u << (32 - kIndexBits)) - 1);
  if (slot.generation == 0) slot.generation = 1;
  free_.push_back(index);
  return std::move(slot.object);
}

HandleTable& handles() {
  // Never freed: objects released while the process exits still use the table.
  static HandleTable* table = new HandleTable;
  return *table;
}

}  // namespace forge
