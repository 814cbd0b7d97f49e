// Files, packed matrices and weights: see abi/weights.h.

#include <algorithm>
#include <cmath>
#include <cstring>

#include "border.h"
#include "packed/packed_matrix.h"
#include "quant/block.h"
#include "quant/quantize.h"

using namespace forge;

namespace {

constexpr uint64_t kMaxWeightCols = 1u << 28;

struct TensorExtent {
  WeightType type;
  uint64_t bytes;
};

// Returns the size of `rows` rows of a type. Throws for an unknown type or invalid sizes.
TensorExtent tensor_extent(uint32_t type, uint64_t rows, uint64_t cols) {
  const WeightTypeInfo* info = find_weight_type(type);
  if (!info) fail(FORGE_UNSUPPORTED, "weight type ", type, " is not supported");
  require(rows >= 1 && cols >= 1 && cols <= kMaxWeightCols, "a weight of ", rows, " x ", cols,
          "; columns may be 1 to ", kMaxWeightCols);
  const auto weight_type = static_cast<WeightType>(type);
  const std::optional<uint64_t> stride = row_bytes(weight_type, cols);
  require(stride.has_value(), cols, " columns are no multiple of the ", info->block_elements,
          " elements in a block of ", info->name);
  require(rows <= UINT64_MAX / *stride, "a weight of ", rows, " x ", cols, " is too large");
  return {weight_type, rows * *stride};
}

// Returns a part with rows of a packed matrix; its `offset` counts from the first row.
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

// Returns rows of a tensor, or of a handle of rows.
WeightPart part_of(const forge_weight_part& part, uint64_t cols) {
  const TensorExtent extent = tensor_extent(part.type, part.rows, cols);
  const std::shared_ptr<Object> object = handles().find(part.file);
  if (const auto made = std::dynamic_pointer_cast<RowsObject>(object)) {
    return made_part(*made, part, extent, cols);
  }
  auto file = get<FileObject>(part.file, "file")->file;
  require(part.offset <= file->bytes() && extent.bytes <= file->bytes() - part.offset,
          "a tensor of ", extent.bytes, " bytes at offset ", part.offset, " of ", file->path(),
          " passes the file's end at ", file->bytes());
  return {extent.type, part.rows, file->data() + part.offset, file, true};
}

// Returns different names in alphabetic order, as in "Q4_K+Q6_K".
std::string joined_names(std::vector<std::string> names) {
  std::ranges::sort(names);
  names.erase(std::ranges::unique(names).begin(), names.end());
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : "+") + name;
  return text;
}

uint32_t insert_weight(std::shared_ptr<DeviceObject> device, WeightSource source) {
  uint64_t bytes = 0;
  std::vector<std::string> types;
  for (const WeightPart& part : source.parts) {
    bytes += part.rows * row_bytes(part.type, source.cols).value();
    types.push_back(find_weight_type(static_cast<uint32_t>(part.type))->name);
  }
  auto object = std::make_shared<WeightObject>();
  object->weight = device->backend->create_weight(std::move(source));
  object->weight->bytes = bytes;
  object->weight->type = joined_names(std::move(types));
  object->device = std::move(device);
  return handles().insert(std::move(object));
}

// Maximum rows and columns of a matrix; their products fit 64 bits.
constexpr uint64_t kMaxSize = 1u << 28;

uint64_t divide_up(uint64_t a, uint64_t b) { return (a + b - 1) / b; }

bool is_nvfp4(uint32_t packing) {
  return packing == FORGE_PACKED_NVFP4 || packing == FORGE_PACKED_NVFP4_DIVIDED;
}

bool is_gathered(uint32_t packing) {
  return packing == FORGE_PACKED_GPTQ || packing == FORGE_PACKED_AWQ;
}

// True if the rows of a packing can be converted to a type.
bool makes(uint32_t packing, WeightType type) {
  switch (packing) {
    case FORGE_PACKED_F8_E4M3: return type == WeightType::FP8;
    case FORGE_PACKED_INT8: return type == WeightType::Q8_0;
    case FORGE_PACKED_INT4: return type == WeightType::Q4_0;
    case FORGE_PACKED_GPTQ:
      return type == WeightType::Q4_1 || type == WeightType::Q5_0 || type == WeightType::F32;
    case FORGE_PACKED_AWQ: return type == WeightType::Q4_1 || type == WeightType::Q5_0;
    case FORGE_PACKED_FLOAT: return can_quantize(type);
    case FORGE_PACKED_NVFP4:
    case FORGE_PACKED_NVFP4_DIVIDED: return type == WeightType::FP4 || type == WeightType::F32;
    case FORGE_PACKED_NVFP4_BLOCKS: return type == WeightType::FP4;
    default: return false;
  }
}

uint64_t float_bytes(uint32_t type) {
  switch (static_cast<WeightType>(type)) {
    case WeightType::F32: return 4;
    case WeightType::F16:
    case WeightType::BF16: return 2;
    default: fail(FORGE_UNSUPPORTED, "floats of type ", type, "; F32, F16 and BF16 are known");
  }
}

PackedTensor tensor_at(const forge_tensor_place& place, uint64_t bytes, const char* what) {
  auto file = get<FileObject>(place.file, "file")->file;
  require(place.offset <= file->bytes() && bytes <= file->bytes() - place.offset, what, " of ",
          bytes, " bytes at offset ", place.offset, " of ", file->path(), " pass its end at ",
          file->bytes());
  const uint8_t* data = file->data() + place.offset;
  return {data, static_cast<WeightType>(place.type), std::move(file)};
}

// Returns a copy in memory: checked data must not change later, as a file may.
PackedTensor copy_of(const PackedTensor& tensor, uint64_t bytes) {
  auto copy = std::make_shared<std::vector<uint8_t>>(tensor.data, tensor.data + bytes);
  const uint8_t* data = copy->data();
  return {data, tensor.type, std::move(copy)};
}

void check_sizes(const forge_packed_matrix& matrix) {
  for (const uint64_t size : {matrix.rows, matrix.cols, matrix.group_rows, matrix.group_cols}) {
    require(size >= 1 && size <= kMaxSize, "a packed matrix with a size of ", size);
  }
  require(matrix.cols % kMadeBlock == 0, matrix.cols,
          " columns of a packed matrix are no multiple of ", kMadeBlock);
  require(matrix.group_cols % kMadeBlock == 0 || matrix.group_cols >= matrix.cols, "groups of ",
          matrix.group_cols, " columns are no multiple of ", kMadeBlock);
  require(matrix.group_cols >= matrix.cols ||
              !(is_nvfp4(matrix.packing) || matrix.packing == FORGE_PACKED_NVFP4_BLOCKS),
          "groups of ", matrix.group_cols, " columns of NVFP4; expected whole rows");
  if (!is_gathered(matrix.packing)) return;
  require(matrix.rows % 8 == 0 && matrix.group_rows == 1, matrix.rows,
          " rows are no multiple of 8, or share scales");
}

uint64_t n_scales(const forge_packed_matrix& matrix) {
  return divide_up(matrix.rows, matrix.group_rows) * divide_up(matrix.cols, matrix.group_cols);
}

uint64_t code_bytes(const forge_packed_matrix& matrix, uint32_t type) {
  const uint64_t elements = matrix.rows * matrix.cols;
  switch (matrix.packing) {
    case FORGE_PACKED_F8_E4M3:
    case FORGE_PACKED_INT8: return elements;
    case FORGE_PACKED_FLOAT: return elements * float_bytes(type);
    case FORGE_PACKED_NVFP4_BLOCKS: return elements / 2 + elements / kScaleCols;
    default: return elements / 2;
  }
}

// Rejects out-of-range groups, and for blocks those whose columns do not fill whole ones.
void check_groups(const PackedMatrix& matrix) {
  const uint64_t n_groups = divide_up(matrix.cols, matrix.group_cols);
  std::vector<uint64_t> sizes(n_groups);
  for (uint64_t col = 0; col < matrix.cols; ++col) {
    const uint64_t group = reinterpret_cast<const PackedU32*>(matrix.groups.data)[col].value();
    require(group < n_groups, "column ", col, " is of group ", group, " of ", n_groups);
    ++sizes[group];
  }
  if (matrix.type == WeightType::F32) return;
  for (uint64_t group = 0; group < n_groups; ++group) {
    require(sizes[group] % kMadeBlock == 0, "group ", group, " has ", sizes[group],
            " columns, no multiple of ", kMadeBlock);
  }
}

std::shared_ptr<const RowSource> source_of(uint32_t packing, PackedMatrix matrix) {
  switch (packing) {
    case FORGE_PACKED_F8_E4M3: return f8_rows(std::move(matrix));
    case FORGE_PACKED_INT8: return int8_rows(std::move(matrix));
    case FORGE_PACKED_INT4: return int4_rows(std::move(matrix));
    case FORGE_PACKED_GPTQ: return gptq_rows(std::move(matrix));
    case FORGE_PACKED_NVFP4: return nvfp4_rows(std::move(matrix), false);
    case FORGE_PACKED_NVFP4_DIVIDED: return nvfp4_rows(std::move(matrix), true);
    case FORGE_PACKED_NVFP4_BLOCKS: return nvfp4_block_rows(std::move(matrix));
    case FORGE_PACKED_AWQ: return awq_rows(std::move(matrix));
    default: return float_rows(std::move(matrix));
  }
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

forge_status forge_rows_create(uint32_t device, const forge_packed_matrix* matrix,
                               const forge_tensor_place* places, uint32_t* rows) {
  return on_handle(device, [&] {
    const auto owner = get_device(device);
    not_null(rows, "rows");
    not_null(places, "places");
    const forge_packed_matrix& from = not_null(matrix, "matrix");
    check_sizes(from);
    PackedMatrix packed{static_cast<WeightType>(from.type), from.rows,       from.cols,
                        from.group_rows,                    from.group_cols, {},
                        {},                                 {},              {},
                        {}};
    const forge_tensor_place &codes = places[0], &scales = places[1], &zeros = places[2],
                              &groups = places[3], &block_scales = places[4];
    packed.codes = tensor_at(codes, code_bytes(from, codes.type), "codes");
    const bool may_lack_scales = from.packing == FORGE_PACKED_NVFP4_BLOCKS && scales.file == 0;
    if (from.packing != FORGE_PACKED_FLOAT && !may_lack_scales) {
      packed.scales = tensor_at(scales, n_scales(from) * float_bytes(scales.type), "scales");
    }
    if (is_gathered(from.packing)) packed.zeros = tensor_at(zeros, n_scales(from) / 2, "zeros");
    if (is_nvfp4(from.packing)) {
      packed.block_scales =
          tensor_at(block_scales, from.rows * from.cols / kScaleCols, "block scales");
    }
    if (groups.file != 0) {
      packed.groups = copy_of(tensor_at(groups, from.cols * 4, "groups"), from.cols * 4);
    }
    require(row_bytes(packed.type, from.cols).has_value(), from.cols,
            " columns are no whole number of blocks of type ", from.type);
    require(makes(from.packing, packed.type), "a matrix of packing ", from.packing,
            " becomes no rows of type ", from.type);
    if (groups.file != 0) check_groups(packed);
    owner->check_files();
    auto object = std::make_shared<RowsObject>();
    object->type = packed.type;
    object->rows = from.rows;
    object->cols = from.cols;
    object->source = source_of(from.packing, std::move(packed));
    *rows = handles().insert(std::move(object));
  });
}

forge_status forge_columns_create(uint32_t device, const forge_weight_part* part, uint64_t cols,
                                  uint64_t first_col, uint64_t n_cols, uint32_t* rows) {
  return on_handle(device, [&] {
    get_device(device);
    not_null(rows, "rows");
    const forge_weight_part& from = not_null(part, "part");
    const WeightPart whole = part_of(from, cols);
    const uint64_t block = find_weight_type(from.type)->block_elements;
    require(n_cols >= 1 && first_col <= cols && n_cols <= cols - first_col &&
                first_col % block == 0 && n_cols % block == 0,
            "columns [", first_col, ", ", first_col, " + ", n_cols, ") of ", cols,
            " in blocks of ", block);
    auto object = std::make_shared<RowsObject>();
    object->type = whole.type;
    object->rows = whole.rows;
    object->cols = n_cols;
    object->source = column_rows(whole, {cols, first_col, n_cols});
    *rows = handles().insert(std::move(object));
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
      source.parts.push_back(part_of(parts[i], cols));
      source.rows += parts[i].rows;
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
                            const float* data, uint64_t data_bytes, const float* importance,
                            void* out, uint64_t out_bytes) {
  return on_handle(device, [&] {
    get_device(device);
    const TensorExtent extent = tensor_extent(type, rows, cols);
    require(rows <= UINT64_MAX / 4 / cols && data && data_bytes == 4 * rows * cols,
            "quantize: expected ", rows, " x ", cols, " floats, got ", data_bytes, " bytes");
    require(out && out_bytes == extent.bytes, "quantize: the result needs ", extent.bytes,
            " bytes, got ", out_bytes);
    const WeightTypeInfo& info = *find_weight_type(type);
    if (!can_quantize(extent.type)) {
      fail(FORGE_UNSUPPORTED, "forge does not write weights of type ", info.name);
    }
    const auto is_factor = [](float value) { return std::isfinite(value) && value >= 0.0f; };
    require(importance == nullptr || std::all_of(importance, importance + cols, is_factor),
            "quantize: an importance is negative or not finite");
    auto* to = static_cast<uint8_t*>(out);
    for (uint64_t row = 0; row < rows; ++row) {
      require(quantize(extent.type, data + row * cols, to, cols, importance),
              "quantize: a weight is not finite, or too large for ", info.name);
      to += extent.bytes / rows;
    }
  });
}
