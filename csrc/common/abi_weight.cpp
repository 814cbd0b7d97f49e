// Files, weights and KV caches: see abi/weights.h and abi/caches.h.

#include <cstring>

#include "border.h"
#include "quant/quantize.h"

using namespace forge;

namespace {

constexpr uint64_t kMaxCols = 1u << 28;

struct TensorExtent {
  WeightType type;
  uint64_t bytes;
};

// The size of `rows` rows of a type, or an Error when there is no such thing.
TensorExtent tensor_extent(uint32_t type, uint64_t rows, uint64_t cols) {
  const WeightTypeInfo* info = find_weight_type(type);
  if (!info) fail(FORGE_UNSUPPORTED, "weight type ", type, " is not supported");
  require(rows >= 1 && cols >= 1 && cols <= kMaxCols, "a weight of ", rows, " x ", cols,
          "; columns may be 1 to ", kMaxCols);
  const auto weight_type = static_cast<WeightType>(type);
  const std::optional<uint64_t> stride = row_bytes(weight_type, cols);
  require(stride.has_value(), cols, " columns are no multiple of the ", info->block_elements,
          " elements in a block of ", info->name);
  require(rows <= UINT64_MAX / *stride, "a weight of ", rows, " x ", cols, " is too large");
  return {weight_type, rows * *stride};
}

// Rows of a packed matrix, `offset` being that of the first as if all lay in a file.
WeightPart made_part(const RowsObject& made, const forge_weight_part& part,
                     const TensorExtent& extent, uint64_t cols) {
  const uint64_t stride = extent.bytes / part.rows;
  const uint64_t first = part.offset / stride;
  require(extent.type == made.type && cols == made.cols && part.offset % stride == 0 &&
              first <= made.rows && part.rows <= made.rows - first,
          "rows [", first, ", ", first, " + ", part.rows, ") of a packed matrix of ", made.rows,
          " x ", made.cols, ", in another type or width");
  return {extent.type, part.rows, nullptr, nullptr, false, made.source, first};
}

uint32_t insert_weight(std::shared_ptr<DeviceObject> device, WeightSource source) {
  auto object = std::make_shared<WeightObject>();
  object->weight = device->backend->create_weight(std::move(source));
  object->device = std::move(device);
  return handles().insert(std::move(object));
}

}  // namespace

forge_status forge_file_map(uint32_t device, const char* path, uint32_t* file, uint64_t* bytes) {
  return on_handle(device, [&] {
    auto owner = get_device(device);
    not_null(file, "file");
    not_null(bytes, "bytes");
    auto object = std::make_shared<FileObject>();
    object->file = std::make_shared<MappedFile>(&not_null(path, "path"));
    owner->add_file(object->file);
    *bytes = object->file->bytes();
    *file = handles().insert(std::move(object));
  });
}

forge_status forge_weight_create(uint32_t device, const forge_weight_part* parts, uint64_t n_parts,
                                 uint64_t cols, uint32_t* weight) {
  return on_handle(device, [&] {
    auto owner = get_device(device);
    not_null(weight, "weight");
    require(n_parts >= 1 && n_parts <= 1u << 20, "a weight of ", n_parts, " parts");
    not_null(parts, "parts");
    WeightSource source{{}, 0, cols};
    for (uint64_t i = 0; i < n_parts; ++i) {
      const forge_weight_part& part = parts[i];
      const TensorExtent extent = tensor_extent(part.type, part.rows, cols);
      source.rows += part.rows;
      const std::shared_ptr<Object> object = handles().find(part.file);
      if (const auto made = std::dynamic_pointer_cast<RowsObject>(object)) {
        source.parts.push_back(made_part(*made, part, extent, cols));
        continue;
      }
      auto file = get<FileObject>(part.file, "file")->file;
      require(part.offset <= file->bytes() && extent.bytes <= file->bytes() - part.offset,
              "a tensor of ", extent.bytes, " bytes at offset ", part.offset, " of ",
              file->path(), " passes the file's end at ", file->bytes());
      source.parts.push_back({extent.type, part.rows, file->data() + part.offset, file, true});
    }
    *weight = insert_weight(std::move(owner), std::move(source));
  });
}

forge_status forge_weight_upload(uint32_t device, uint32_t type, uint64_t rows, uint64_t cols,
                                 const void* data, uint64_t bytes, uint32_t* weight) {
  return on_handle(device, [&] {
    auto owner = get_device(device);
    not_null(weight, "weight");
    const TensorExtent extent = tensor_extent(type, rows, cols);
    require(data && bytes == extent.bytes, "a weight of ", rows, " x ", cols, " needs ",
            extent.bytes, " bytes, got ", bytes);
    auto copy = std::make_shared<std::vector<uint8_t>>(bytes);
    std::memcpy(copy->data(), data, bytes);
    const uint8_t* begin = copy->data();
    *weight = insert_weight(std::move(owner),
                            {{{extent.type, rows, begin, std::move(copy)}}, rows, cols});
  });
}

forge_status forge_weight_read(uint32_t weight, uint64_t first_row, uint64_t n_rows, float* out,
                               uint64_t bytes) {
  return on_handle(weight, [&] {
    auto object = get<WeightObject>(weight, "weight");
    const Weight& source = *object->weight;
    require(first_row <= source.rows && n_rows <= source.rows - first_row, "rows [", first_row,
            ", ", first_row, " + ", n_rows, ") of a weight of ", source.rows);
    if (n_rows == 0) return;  // and `out` may be null
    require(out && bytes / 4 / source.cols >= n_rows, "the buffer of ", bytes,
            " bytes is too small for ", n_rows, " rows of ", source.cols);
    object->device->backend->read_weight(source, first_row, n_rows, out);
    object->device->check_files();
  });
}

forge_status forge_quantize(uint32_t device, uint32_t type, uint64_t rows, uint64_t cols,
                            const float* data, uint64_t data_bytes, void* out,
                            uint64_t out_bytes) {
  return on_handle(device, [&] {
    get_device(device);
    const TensorExtent extent = tensor_extent(type, rows, cols);
    require(rows <= UINT64_MAX / 4 / cols && data && data_bytes == 4 * rows * cols,
            "quantize: expected ", rows, " x ", cols, " floats, got ", data_bytes, " bytes");
    require(out && out_bytes == extent.bytes, "quantize: the result needs ", extent.bytes,
            " bytes, got ", out_bytes);
    if (!quantize(extent.type, data, static_cast<uint8_t*>(out), rows * cols)) {
      fail(FORGE_UNSUPPORTED, "forge does not write weights of type ",
           find_weight_type(type)->name);
    }
  });
}

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
    // No machine holds more; below it, no backend's computation of sizes can overflow.
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

namespace {

KvCache& kv_page(const KvObject& object, uint32_t page) {
  const uint32_t n_pages = object.kv->shape.n_pages;
  require(page < n_pages, "KV page ", page, " of ", n_pages);
  return *object.kv;
}

void check_page_buffer(const KvCache& kv, const void* data, uint64_t bytes) {
  require(data && bytes == kv.page_bytes, "a KV page has ", kv.page_bytes,
          " bytes, the buffer has ", bytes);
}

}  // namespace

forge_status forge_kv_copy_page(uint32_t kv, uint32_t from, uint32_t to) {
  return on_handle(kv, [&] {
    auto object = get<KvObject>(kv, "KV cache");
    kv_page(*object, to);
    if (from != to) kv_page(*object, from).copy_page(from, to);
  });
}

forge_status forge_kv_read_page(uint32_t kv, uint32_t page, void* data, uint64_t bytes) {
  return on_handle(kv, [&] {
    auto object = get<KvObject>(kv, "KV cache");
    const KvCache& cache = kv_page(*object, page);
    check_page_buffer(cache, data, bytes);
    cache.read_page(page, static_cast<uint8_t*>(data));
  });
}

forge_status forge_kv_write_page(uint32_t kv, uint32_t page, const void* data, uint64_t bytes) {
  return on_handle(kv, [&] {
    auto object = get<KvObject>(kv, "KV cache");
    KvCache& cache = kv_page(*object, page);
    check_page_buffer(cache, data, bytes);
    cache.write_page(page, static_cast<const uint8_t*>(data));
  });
}
