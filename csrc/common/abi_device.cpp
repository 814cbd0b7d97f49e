// Library, devices, errors and handles: see abi/device.h.

#include <algorithm>
#include <cstring>

#include "border.h"
#include "json_text.h"
#include "library_end.h"
#include "process_memory.h"

namespace forge {

void DeviceObject::add_file(const std::shared_ptr<MappedFile>& file) {
  const std::lock_guard lock(files_mutex_);
  std::erase_if(files_, [](const auto& other) { return other.expired(); });
  files_.push_back(file);
}

void DeviceObject::check_files() const {
  const std::lock_guard lock(files_mutex_);
  for (const auto& known : files_) {
    if (const auto file = known.lock()) file->check();
  }
}

void copy_text(const std::string& text, char* buffer, uint64_t capacity) {
  require(buffer != nullptr && capacity > 0, "a text buffer is null or empty");
  const uint64_t length = text.size() < capacity ? text.size() : capacity - 1;
  std::memcpy(buffer, text.data(), length);
  buffer[length] = '\0';
}

void keep_error(uint32_t handle, const std::string& text) {
  if (auto object = handles().find(handle)) object->set_error(text);
}

WeightRef get_weight(const DeviceObject& device, uint32_t handle, bool optional) {
  if (handle == 0 && optional) return nullptr;
  auto object = get<WeightObject>(handle, "weight");
  require(object->device.get() == &device, "weight ", handle, " belongs to another device");
  return object->weight;
}

KvRef get_kv(const DeviceObject& device, uint32_t handle) {
  auto object = get<KvObject>(handle, "KV cache");
  require(object->device.get() == &device, "KV cache ", handle, " belongs to another device");
  return object->kv;
}

StateRef get_state(const DeviceObject& device, uint32_t handle) {
  auto object = get<StateObject>(handle, "state cache");
  require(object->device.get() == &device, "state cache ", handle, " belongs to another device");
  return object->state;
}

DeviceMemory Backend::memory() const {
  const uint64_t bytes = host_memory_bytes();
  return {bytes, bytes};
}

void Backend::set_attention(uint32_t attention) {
  if (attention == FORGE_ATTENTION_AUTO) return;
  fail(FORGE_UNSUPPORTED, "the ", backend_name(),
       " device has one kind of attention; a choice is for cuda");
}

void Backend::set_products(uint32_t products) {
  if (products == FORGE_PRODUCTS_AUTO) return;
  fail(FORGE_UNSUPPORTED, "the ", backend_name(),
       " device has one kind of products; a choice is for cpu");
}

void Backend::set_nodes(uint32_t) {
  fail(FORGE_UNSUPPORTED, "the ", backend_name(), " device has no NUMA nodes; --numa is for cpu");
}

void Backend::join(std::span<Backend* const>, const GroupPart& part) {
  if (!part.keys.empty()) make_keys({});
  fail(FORGE_UNSUPPORTED, "the ", backend_name(),
       " device cannot divide a model; several devices of one model are for cuda, cpu and "
       "reference");
}

void Backend::make_keys(std::span<uint8_t>) {
  fail(FORGE_UNSUPPORTED, "the ", backend_name(),
       " device cannot divide a model with other processes; that is for cuda");
}

uint64_t Backend::set_memory(uint64_t) {
  fail(FORGE_UNSUPPORTED, "the ", backend_name(),
       " device has no bound of memory; --memory is for cpu");
}

}  // namespace forge

using namespace forge;

uint32_t forge_abi_version(void) { return FORGE_ABI_VERSION; }

forge_status forge_library_info(char* text, uint64_t capacity) {
  return guarded(
      [&] {
        JsonObject info;
        info.add("backend", backend_name());
        info.add("version", FORGE_VERSION);
        info.add("compiler", __VERSION__);
        info.add_raw("types", weight_type_names_json());
        copy_text(info.str(), text, capacity);
      },
      [](const std::string&) {});
}

forge_status forge_list_devices(char* text, uint64_t capacity) {
  return guarded([&] { copy_text(list_devices(), text, capacity); }, [](const std::string&) {});
}

forge_status forge_device_open(const char* selector, uint32_t n_threads, uint32_t* device,
                               char* message, uint64_t capacity) {
  return guarded(
      [&] {
        not_null(device, "device");
        require(n_threads <= 1024, "n_threads is ", n_threads, "; valid is 0 to 1024");
        keep_library_loaded();
        auto object = std::make_shared<DeviceObject>();
        object->backend = open_backend(&not_null(selector, "selector"), n_threads);
        stop_calls_at_exit();
        *device = handles().insert(std::move(object));
      },
      [&](const std::string& error) {
        if (message && capacity > 0) copy_text(error, message, capacity);
      });
}

forge_status forge_device_info(uint32_t device, char* text, uint64_t capacity) {
  return on_handle(device,
                   [&] { copy_text(get_device(device)->backend->info(), text, capacity); });
}

forge_status forge_set_attention(uint32_t device, uint32_t attention) {
  return on_handle(device, [&] {
    require(attention <= FORGE_ATTENTION_NAIVE, "attention is ", attention, "; valid is 0 to ",
            static_cast<uint32_t>(FORGE_ATTENTION_NAIVE));
    get_device(device)->backend->set_attention(attention);
  });
}

forge_status forge_set_products(uint32_t device, uint32_t products) {
  return on_handle(device, [&] {
    require(products <= FORGE_PRODUCTS_BF16, "products is ", products, "; valid is 0 to ",
            static_cast<uint32_t>(FORGE_PRODUCTS_BF16));
    get_device(device)->backend->set_products(products);
  });
}

forge_status forge_set_nodes(uint32_t device, uint32_t nodes) {
  return on_handle(device, [&] {
    require(nodes <= 64, "nodes is ", nodes, "; valid is 0 to 64");
    get_device(device)->backend->set_nodes(nodes);
  });
}

forge_status forge_devices_join(const uint32_t* devices, uint32_t n_devices,
                                const forge_group* group, const void* keys, uint64_t key_bytes) {
  return on_handle(devices && n_devices > 0 ? devices[0] : 0, [&] {
    const auto [n_all, n_stages, first] = not_null(group, "group");
    require(n_all >= 2 && n_all <= kMostDevices, n_all, " devices; valid is 2 to ", kMostDevices);
    require(n_stages >= 1 && n_all % n_stages == 0, n_all, " devices cannot be ", n_stages,
            " stages of as many ranks");
    require(n_devices >= 1 && n_devices <= n_all && first <= n_all - n_devices, "devices ", first,
            " to ", uint64_t{first} + n_devices, " of ", n_all);
    const bool is_whole = keys == nullptr;
    require(is_whole ? n_devices == n_all
                     : key_bytes == (uint64_t{n_stages} + 1) * FORGE_GROUP_KEY_BYTES,
            n_devices, " of ", n_all, " devices with ", key_bytes, " bytes of keys");
    not_null(devices, "devices");
    const CallInProgress call;
    std::vector<std::shared_ptr<DeviceObject>> kept;
    std::vector<Backend*> own;
    for (uint32_t i = 0; i < n_devices; ++i) {
      own.push_back(kept.emplace_back(get_device(devices[i]))->backend.get());
      require(std::ranges::count(own, own.back()) == 1, "device ", devices[i], " is given twice");
    }
    const auto* bytes = static_cast<const uint8_t*>(keys);
    own[0]->join(own, {n_all, n_stages, first, {bytes, is_whole ? 0 : key_bytes}});
  });
}

forge_status forge_group_keys(uint32_t device, void* keys, uint64_t bytes) {
  return on_handle(device, [&] {
    const auto owner = get_device(device);
    require(bytes > 0 && bytes % FORGE_GROUP_KEY_BYTES == 0 &&
                bytes / FORGE_GROUP_KEY_BYTES <= kMostDevices + 1,
            bytes, " bytes of keys");
    auto* begin = static_cast<uint8_t*>(keys);
    not_null(begin, "keys");
    owner->backend->make_keys({begin, bytes});
  });
}

forge_status forge_group_abort(uint32_t device, const char* reason) {
  return on_handle(device, [&] {
    const auto owner = get_device(device);
    owner->backend->abort_group(&not_null(reason, "reason"));
  });
}

forge_status forge_device_memory(uint32_t device, uint64_t* total, uint64_t* free) {
  return on_handle(device, [&] {
    not_null(total, "total");
    not_null(free, "free");
    const DeviceMemory memory = get_device(device)->backend->memory();
    *total = memory.total;
    *free = memory.free;
  });
}

forge_status forge_set_memory(uint32_t device, uint64_t bytes, uint64_t* bound) {
  return on_handle(device, [&] {
    not_null(bound, "bound");
    *bound = get_device(device)->backend->set_memory(bytes);
  });
}

forge_status forge_streamed_bytes(uint32_t device, uint64_t* all, uint64_t* per_token) {
  return on_handle(device, [&] {
    not_null(all, "all");
    not_null(per_token, "per_token");
    const StreamedBytes bytes = get_device(device)->backend->streamed_bytes();
    *all = bytes.all;
    *per_token = bytes.per_token;
  });
}

forge_status forge_read_bandwidth(uint32_t device, uint64_t* bytes_per_second) {
  return on_handle(device, [&] {
    not_null(bytes_per_second, "bytes_per_second");
    *bytes_per_second = get_device(device)->backend->read_bandwidth();
  });
}

forge_status forge_matrix_rate(uint32_t device, uint64_t* operations_per_second) {
  return on_handle(device, [&] {
    not_null(operations_per_second, "operations_per_second");
    *operations_per_second = get_device(device)->backend->matrix_rate();
  });
}

forge_status forge_peak_memory(uint64_t* bytes) {
  return guarded(
      [&] {
        not_null(bytes, "bytes");
        *bytes = peak_resident_bytes();
      },
      [](const std::string&) {});
}

forge_status forge_error_text(uint32_t handle, char* text, uint64_t capacity) {
  return guarded(
      [&] {
        auto object = handles().find(handle);
        if (!object) fail(FORGE_BAD_HANDLE, "handle ", handle, " is not alive");
        copy_text(object->error_text(), text, capacity);
      },
      [](const std::string&) {});
}

forge_status forge_release(uint32_t handle) {
  return guarded(
      [&] {
        if (!handles().remove(handle)) fail(FORGE_BAD_HANDLE, "handle ", handle, " is not alive");
      },
      [](const std::string&) {});
}
