// Products of prompts by the tensor cores of SM90 (kernels/cuda/wgmma_gemm.cuh), which read their
// operands through tensor maps.

#include <algorithm>
#include <optional>
#include <type_traits>

#include "plan_builder.h"

namespace forge::cuda {

namespace {

constexpr uint32_t kTileTokens = 128, kTileCols = 64, kThreads = 384;

// A tile's rows of the weight, and a block's shared memory.
struct WgmmaTile {
  uint32_t products;
  uint32_t shared_bytes;
  uint32_t cost;  // of a tile

  uint32_t rows() const { return 128 * products; }
};
struct WgmmaTiles {
  WgmmaTile narrow, wide;
};
// Of 16-bit weights (WgmmaTile::kSharedBytes): their bytes from L2 bound the wide tile.
constexpr WgmmaTiles kHalfTiles = {{1, 165952, 2}, {2, 231488, 3}};
// Of quantised ones (QuantizedTile::kSharedBytes): the tensor cores do, and L2 the narrow one.
constexpr WgmmaTiles kQuantizedTiles = {{1, 141376, 5}, {2, 149568, 9}};

// The wide tile reads fewer bytes for each product; the narrow one keeps more multiprocessors busy
// if there are few tiles.
const WgmmaTile& wgmma_tile(const WgmmaTiles& tiles, uint64_t rows, uint64_t token_tiles,
                            uint32_t multiprocessors) {
  const auto cost = [&](const WgmmaTile& tile) {
    return divide_up(divide_up(rows, tile.rows()) * token_tiles, multiprocessors) * tile.cost;
  };
  return cost(tiles.narrow) < cost(tiles.wide) ? tiles.narrow : tiles.wide;
}

// Columns of the chunks in which wgmma_quantized.cuh takes a weight; 0 for other types.
uint32_t chunk_cols(WeightType type) {
  switch (type) {
    case WeightType::Q8_0:
    case WeightType::FP8:
      return 16;
    case WeightType::Q4_0:
    case WeightType::Q4_K:
    case WeightType::Q6_K:
      return 32;
    default:
      return 0;
  }
}

// 16-bit numbers [matrices][rows][cols], rows row_bytes apart.
struct MappedTensor {
  DevicePointer data;
  uint64_t cols, rows, matrices, row_bytes;
};

// Describes boxes of 64 columns and `box_rows` rows; nothing if the driver refuses.
std::optional<TensorMap> tensor_map(const DriverApi& api, const MappedTensor& tensor,
                                    uint32_t box_rows) {
  const uint64_t matrix_bytes = tensor.rows * tensor.row_bytes;
  const uint64_t sizes[] = {tensor.cols, tensor.rows, tensor.matrices, 1};
  const uint64_t strides[] = {tensor.row_bytes, matrix_bytes, matrix_bytes * tensor.matrices};
  const uint32_t box[] = {kTileCols, box_rows, 1, 1}, steps[] = {1, 1, 1, 1};
  TensorMap map;
  // F16 is copied in the same way.
  const Result result = api.encode_tensor_map(
      &map, kTensorBfloat16, 4, reinterpret_cast<void*>(tensor.data), sizes, strides, box, steps, 0,
      kSwizzle128Bytes, kPromotion256Bytes, 0);
  if (result != kSuccess) return std::nullopt;
  return map;
}

std::string wgmma_instance(const std::string& kernel, WeightType type, const WgmmaTile& tile) {
  const std::string end = ", " + std::to_string(tile.products) + ">";
  if (chunk_cols(type) == 0) return kernel + (multiplies_as_bf16(type) ? "<bf16" : "<f16") + end;
  return kernel + "<" + weight_format(type).name + ", f16" + end;
}

// A persistent block for each multiprocessor, if there are as many tiles.
Grid wgmma_grid(uint64_t rows, uint64_t token_tiles, const WgmmaTile& tile,
                uint32_t multiprocessors) {
  const uint64_t tiles = divide_up(rows, tile.rows()) * token_tiles;
  return {static_cast<uint32_t>(std::min<uint64_t>(tiles, multiprocessors))};
}

}  // namespace

bool PlanBuilder::multiplies_by_wgmma(WeightType type) {
  const bool is_half = type == WeightType::F16 || type == WeightType::BF16;
  return (is_half || chunk_cols(type) > 0) && device_.multiplies_by_wgmma();
}

std::optional<PlanBuilder::WgmmaMaps> PlanBuilder::wgmma_maps(const ProductOperands& operands,
                                                              uint64_t x_rows, uint64_t matrices,
                                                              uint32_t tile_rows) const {
  // A plan without memory only names its kernels.
  if (memory_.workspace.scratch == 0) return WgmmaMaps{};
  const DriverApi& api = device_.device().api();
  const auto& [data, codebooks, row_stride, rows, cols] = operands.weight;
  const uint64_t x_cols = operands.x.padded_cols;
  const auto x = tensor_map(api, {operands.x.data, x_cols, x_rows, 1, 2 * x_cols}, kTileTokens);
  if (!x) return std::nullopt;
  if (tile_rows == 0) return WgmmaMaps{*x, {}};
  const auto weight = tensor_map(api, {data, cols, rows, matrices, row_stride}, tile_rows);
  if (!weight) return std::nullopt;
  return WgmmaMaps{*x, *weight};
}

template <class Output, class Before>
bool PlanBuilder::launch_wgmma(const std::string& kernel, WeightType type,
                               const ProductOperands& operands, const Output& output,
                               uint64_t x_rows, uint64_t token_tiles, uint64_t matrices,
                               Before launch_before) {
  const bool is_quantized = chunk_cols(type) > 0;
  WgmmaTiles tiles = is_quantized ? kQuantizedTiles : kHalfTiles;
  // The wide tile of such experts takes more registers than there are.
  if (std::is_same_v<Output, ExpertPairs> && type == WeightType::Q6_K) tiles.wide = tiles.narrow;
  const uint32_t rows = operands.weight.rows;
  const WgmmaTile tile = wgmma_tile(tiles, rows, token_tiles, gpu_.multiprocessors);
  const Grid grid = wgmma_grid(rows, token_tiles, tile, gpu_.multiprocessors);
  const auto maps = wgmma_maps(operands, x_rows, matrices, is_quantized ? 0 : tile.rows());
  if (!maps) return false;
  launch_before();
  const std::string name = kernel + (is_quantized ? "quantized_gemm" : "gemm");
  const std::string file = name + ".cu", instance = wgmma_instance(name, type, tile);
  if (is_quantized) {
    launch(file.c_str(), instance, grid, kThreads, tile.shared_bytes, operands, output, maps->x);
  } else {
    launch(file.c_str(), instance, grid, kThreads, tile.shared_bytes, operands, output, maps->x,
           maps->weight);
  }
  return true;
}

bool PlanBuilder::emit_wgmma_gemm(const Product& p, const RowGroup& rows) {
  if (!multiplies_by_wgmma(p.type)) return false;
  const ProductOperands operands = {
      .out = p.out,
      .x = half_rows(p, rows, chunk_cols(p.type)),
      .weight = p.weight,
      .set = rows.set};
  return launch_wgmma("wgmma_", p.type, operands, p.epilogue, rows.max_rows,
                      divide_up(rows.max_rows, kTileTokens), 1, [] {});
}

bool PlanBuilder::emit_wgmma_grouped_gemm(const GroupedProduct& p, const RowGroup& rows) {
  const WeightType type = unified(p.weight).type;
  if (!multiplies_by_wgmma(type)) return false;
  const RouteGroups& groups = groups_of(p, rows, kTileTokens);
  const auto n_cols = static_cast<uint32_t>(p.weight.cols);
  const uint32_t padded = padded_cols(n_cols, chunk_cols(type));
  begin_half_rows();
  const ProductRows x = {.data = scratch(uint64_t{groups.max_pairs} * padded * 2),
                         .scale = scratch(groups.max_pairs * sizeof(float)),
                         .norm = {},
                         .padded_cols = padded};
  const ExpertPairs pairs = expert_pairs(p, groups);
  const auto convert = [&] {
    launch("convert_rows.cu",
           std::string("convert_pairs<") + (multiplies_as_bf16(type) ? "bf16>" : "f16>"),
           {groups.max_pairs}, 256, 0,
           ConvertRows{.out = x.data,
                       .scale = x.scale,
                       .x = value(p.x),
                       .norm = {},
                       .set = rows.set,
                       .cols = n_cols,
                       .padded_cols = padded,
                       .chunk_cols = chunk_cols(type)},
           pairs);
  };
  return launch_wgmma("wgmma_grouped_", type, grouped_operands(p, rows, x), pairs,
                      groups.max_pairs, groups.max_tiles, p.n_experts, convert);
}

}  // namespace forge::cuda
