// Products of prompts by the tensor cores of SM90 (kernels/cuda/wgmma_gemm.cuh), which read their
// operands through tensor maps.

#include <algorithm>
#include <optional>

#include "plan_builder.h"

namespace forge::cuda {

namespace {

constexpr uint32_t kTileTokens = 128, kTileCols = 64, kThreads = 384;

// A tile's rows of the weight, and a block's shared memory (WgmmaTile::kSharedBytes).
struct WgmmaTile {
  uint32_t products;
  uint32_t shared_bytes;
  uint32_t cost;  // of a tile: its bytes from L2, which bound the larger one

  uint32_t rows() const { return 128 * products; }
};
constexpr WgmmaTile kNarrow = {1, 165952, 2}, kWide = {2, 231488, 3};

// The wide tile reads fewer bytes for each product; the narrow one keeps more multiprocessors busy
// if there are few tiles.
const WgmmaTile& wgmma_tile(uint64_t rows, uint64_t token_tiles, uint32_t multiprocessors) {
  const auto cost = [&](const WgmmaTile& tile) {
    return divide_up(divide_up(rows, tile.rows()) * token_tiles, multiprocessors) * tile.cost;
  };
  return cost(kNarrow) < cost(kWide) ? kNarrow : kWide;
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

std::string wgmma_instance(const char* kernel, WeightType type, const WgmmaTile& tile) {
  return std::string(kernel) + (multiplies_as_bf16(type) ? "<bf16, " : "<f16, ") +
         std::to_string(tile.products) + ">";
}

// A persistent block for each multiprocessor, if there are as many tiles.
Grid wgmma_grid(uint64_t rows, uint64_t token_tiles, const WgmmaTile& tile,
                uint32_t multiprocessors) {
  const uint64_t tiles = divide_up(rows, tile.rows()) * token_tiles;
  return {static_cast<uint32_t>(std::min<uint64_t>(tiles, multiprocessors))};
}

}  // namespace

bool PlanBuilder::multiplies_by_wgmma(WeightType type) {
  return (type == WeightType::F16 || type == WeightType::BF16) && device_.multiplies_by_wgmma();
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
  const auto weight = tensor_map(api, {data, cols, rows, matrices, row_stride}, tile_rows);
  if (!x || !weight) return std::nullopt;
  return WgmmaMaps{*x, *weight};
}

bool PlanBuilder::emit_wgmma_gemm(const Product& p, const RowGroup& rows) {
  if (!multiplies_by_wgmma(p.type)) return false;
  const uint64_t token_tiles = divide_up(rows.max_rows, kTileTokens);
  const WgmmaTile& tile = wgmma_tile(p.weight.rows, token_tiles, gpu_.multiprocessors);
  const ProductOperands operands = {.out = p.out,
                                    .x = half_rows(p.type, p.x, p.weight.cols, rows),
                                    .weight = p.weight,
                                    .set = rows.set};
  const auto maps = wgmma_maps(operands, rows.max_rows, 1, tile.rows());
  if (!maps) return false;
  launch("wgmma_gemm.cu", wgmma_instance("wgmma_gemm", p.type, tile),
         wgmma_grid(p.weight.rows, token_tiles, tile, gpu_.multiprocessors), kThreads,
         tile.shared_bytes, operands, p.epilogue, maps->x, maps->weight);
  return true;
}

bool PlanBuilder::emit_wgmma_grouped_gemm(const GroupedProduct& p, const RowGroup& rows) {
  const WeightType type = unified(p.weight).type;
  if (!multiplies_by_wgmma(type)) return false;
  const RouteGroups& groups = groups_of(p, rows, kTileTokens);
  const auto n_cols = static_cast<uint32_t>(p.weight.cols);
  const uint32_t padded = padded_cols(n_cols);
  begin_half_rows();
  const ProductRows x = {.data = scratch(uint64_t{groups.max_pairs} * padded * 2),
                         .scale = scratch(groups.max_pairs * sizeof(float)),
                         .norm = {},
                         .padded_cols = padded};
  const ProductOperands operands = grouped_operands(p, rows, x);
  const uint32_t expert_rows = operands.weight.rows;
  const WgmmaTile& tile = wgmma_tile(expert_rows, groups.max_tiles, gpu_.multiprocessors);
  const auto maps = wgmma_maps(operands, groups.max_pairs, p.n_experts, tile.rows());
  if (!maps) return false;
  const ExpertPairs pairs = expert_pairs(p, groups);
  launch("convert_rows.cu",
         std::string("convert_pairs<") + (multiplies_as_bf16(type) ? "bf16>" : "f16>"),
         {groups.max_pairs}, 256, 0,
         cuda_args::ConvertRows<DevicePointer>{.out = x.data,
                                               .scale = x.scale,
                                               .x = value(p.x),
                                               .norm = {},
                                               .set = rows.set,
                                               .cols = n_cols,
                                               .padded_cols = padded},
         pairs);
  launch("wgmma_grouped_gemm.cu", wgmma_instance("wgmma_grouped_gemm", type, tile),
         wgmma_grid(expert_rows, groups.max_tiles, tile, gpu_.multiprocessors), kThreads,
         tile.shared_bytes, operands, pairs, maps->x, maps->weight);
  return true;
}

}  // namespace forge::cuda
