// KV caches and recurrent state: see abi/caches.h.

#include "border.h"

using namespace forge;

namespace {

constexpr uint32_t kMaxSlots = 1u << 16;

// The pages or slots of a cache.
struct Parts {
  CacheParts& cache;
  uint32_t n;
  uint64_t bytes;    // of each
  const char* name;  // of one, in errors
};

// Calls use(parts) with the parts of a cache, which lives until the call returns.
template <class Use>
forge_status on_pages(uint32_t kv, const Use& use) {
  return on_handle(kv, [&] {
    auto object = get<KvObject>(kv, "KV cache");
    use(Parts{*object->kv, object->kv->shape.n_pages, object->kv->page_bytes, "KV page"});
  });
}

template <class Use>
forge_status on_slots(uint32_t state, const Use& use) {
  return on_handle(state, [&] {
    auto object = get<StateObject>(state, "state cache");
    const StateCache& cache = *object->state;
    use(Parts{*object->state, cache.shape.n_slots, cache.slot_bytes, "state slot"});
  });
}

void check(const Parts& parts, uint32_t part) {
  require(part < parts.n, parts.name, " ", part, " of ", parts.n);
}

void check(const Parts& parts, uint32_t part, const void* data, uint64_t bytes) {
  check(parts, part);
  require(data && bytes == parts.bytes, "a ", parts.name, " has ", parts.bytes,
          " bytes, the buffer has ", bytes);
}

void copy(const Parts& parts, uint32_t from, uint32_t to) {
  check(parts, to);
  check(parts, from);
  if (from != to) parts.cache.copy(from, to);
}

void read(const Parts& parts, uint32_t part, void* data, uint64_t bytes) {
  check(parts, part, data, bytes);
  parts.cache.read(part, static_cast<uint8_t*>(data));
}

void write(const Parts& parts, uint32_t part, const void* data, uint64_t bytes) {
  check(parts, part, data, bytes);
  parts.cache.write(part, static_cast<const uint8_t*>(data));
}

}  // namespace

forge_status forge_kv_create(uint32_t device, uint32_t type, uint32_t n_pages, uint32_t page_tokens,
                             uint32_t n_kv_heads, uint32_t k_head_dim, uint32_t v_head_dim,
                             uint32_t values_in_keys, uint32_t* kv, uint64_t* page_bytes) {
  return on_handle(device, [&] {
    auto owner = get_device(device);
    not_null(kv, "kv");
    not_null(page_bytes, "page_bytes");
    require(n_pages >= 1 && n_pages <= 1u << 24, "KV cache: ", n_pages, " pages; valid is 1 to ",
            1u << 24);
    require(page_tokens >= 1 && page_tokens <= 4096, "KV cache: pages of ", page_tokens,
            " tokens; valid is 1 to 4096");
    require(n_kv_heads >= 1 && n_kv_heads <= 4096, "KV cache: ", n_kv_heads,
            " heads; valid is 1 to 4096");
    for (const uint32_t dim : {k_head_dim, v_head_dim}) {
      require(dim >= 1 && dim <= 4096, "KV cache: heads of ", dim, "; valid is 1 to 4096");
    }
    require(values_in_keys <= 1, "KV cache: values_in_keys is ", values_in_keys,
            "; valid is 0 or 1");
    require(!values_in_keys || v_head_dim <= k_head_dim, "KV cache: values of ", v_head_dim,
            " in keys of ", k_head_dim);
    // Above the memory of any machine; below it, size computations cannot overflow.
    const double elements = static_cast<double>(n_pages) * page_tokens * n_kv_heads *
                            (static_cast<double>(k_head_dim) + v_head_dim);
    if (elements > 0x1p44) {
      fail(FORGE_OUT_OF_MEMORY, "a KV cache of ", n_pages, " pages of ", page_tokens,
           " tokens is too large");
    }
    auto object = std::make_shared<KvObject>();
    object->kv = owner->backend->create_kv({static_cast<WeightType>(type), n_pages, page_tokens,
                                            n_kv_heads, k_head_dim, v_head_dim,
                                            values_in_keys != 0});
    object->device = std::move(owner);
    *page_bytes = object->kv->page_bytes;
    *kv = handles().insert(std::move(object));
  });
}

forge_status forge_kv_copy_page(uint32_t kv, uint32_t from, uint32_t to) {
  return on_pages(kv, [&](const Parts& parts) { copy(parts, from, to); });
}

forge_status forge_kv_read_page(uint32_t kv, uint32_t page, void* data, uint64_t bytes) {
  return on_pages(kv, [&](const Parts& parts) { read(parts, page, data, bytes); });
}

forge_status forge_kv_write_page(uint32_t kv, uint32_t page, const void* data,
                                    uint64_t bytes) {
  return on_pages(kv, [&](const Parts& parts) { write(parts, page, data, bytes); });
}

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
    // Above the memory of any machine; below it, size computations cannot overflow.
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
  return on_slots(state, [&](const Parts& parts) { copy(parts, from, to); });
}

forge_status forge_state_read_slot(uint32_t state, uint32_t slot, void* data, uint64_t bytes) {
  return on_slots(state, [&](const Parts& parts) { read(parts, slot, data, bytes); });
}

forge_status forge_state_write_slot(uint32_t state, uint32_t slot, const void* data,
                                    uint64_t bytes) {
  return on_slots(state, [&](const Parts& parts) { write(parts, slot, data, bytes); });
}
