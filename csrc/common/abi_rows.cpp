// The rows of packed matrices: see forge.h.

#include "border.h"
#include "packed/packed_matrix.h"
#include "quant/quantize.h"
#include "quant/block.h"

using namespace forge;

namespace {

// Rows and columns of any matrix that there is; keeps products of them within 64 bits.
constexpr uint64_t kMaxSize = 1u << 28;

uint64_t divide_up(uint64_t a, uint64_t b) { return (a + b - 1) / b; }

bool is_gathered(uint32_t packing) {
  return packing == FORGE_PACKED_GPTQ || packing == FORGE_PACKED_AWQ;
}

// What may become of a packing's rows.
bool makes(uint32_t packing, WeightType type) {
  switch (packing) {
    case FORGE_PACKED_F8_E4M3: return type == WeightType::FP8;
    case FORGE_PACKED_INT8: return type == WeightType::Q8_0;
    case FORGE_PACKED_INT4: return type == WeightType::Q4_0;
    case FORGE_PACKED_GPTQ:
      return type == WeightType::Q4_1 || type == WeightType::Q5_0 || type == WeightType::F32;
    case FORGE_PACKED_AWQ: return type == WeightType::Q4_1 || type == WeightType::Q5_0;
    case FORGE_PACKED_FLOAT: return can_quantize(type);
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

// A copy in memory: what is checked here cannot change later, as a file can.
PackedTensor copy_of(const PackedTensor& tensor, uint64_t bytes) {
  auto copy = std::make_shared<std::vector<uint8_t>>(tensor.data, tensor.data + bytes);
  const uint8_t* data = copy->data();
  return {data, tensor.type, std::move(copy)};
}

void check_sizes(const forge_packed_matrix& matrix) {
  for (const uint64_t size : {matrix.rows, matrix.cols, matrix.group_rows, matrix.group_cols}) {
    require(size >= 1 && size <= kMaxSize, "a packed matrix with a size of ", size);
  }
  require(matrix.cols % kMadeBlock == 0, matrix.cols, " columns of a packed matrix are no multiple of ",
          kMadeBlock);
  require(matrix.group_cols % kMadeBlock == 0 || matrix.group_cols >= matrix.cols, "groups of ",
          matrix.group_cols, " columns are no multiple of ", kMadeBlock);
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
    case FORGE_PACKED_AWQ: return awq_rows(std::move(matrix));
    default: return float_rows(std::move(matrix));
  }
}

}  // namespace

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
                        {},                                 {},              {}};
    const forge_tensor_place &codes = places[0], &scales = places[1], &zeros = places[2],
                              &groups = places[3];
    packed.codes = tensor_at(codes, code_bytes(from, codes.type), "codes");
    if (from.packing != FORGE_PACKED_FLOAT) {
      packed.scales = tensor_at(scales, n_scales(from) * float_bytes(scales.type), "scales");
    }
    if (is_gathered(from.packing)) packed.zeros = tensor_at(zeros, n_scales(from) / 2, "zeros");
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
