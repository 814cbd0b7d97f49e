#pragma once

// Turns a program into the launches that run it for one shape. The operations are those of forge.h;
// plan_*.cpp hold them by kind.

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "../gpu/shared_operations.h"
#include "attention_choice.h"
#include "cuda_device.h"
#include "caches.h"
#include "cuda_weight.h"
#include "plan_entry.h"

namespace forge::cuda {

using RunAddresses = forge::RunAddresses<DevicePointer>;
using PlanRequest = forge::PlanRequest<DevicePointer>;
using LaunchPlan = forge::LaunchPlan<PlanEntry>;
using WeightRows = cuda_args::WeightRows<DevicePointer>;
using InputNorm = cuda_args::InputNorm<DevicePointer>;
using ProductRows = cuda_args::ProductRows<DevicePointer>;
using ProductOperands = cuda_args::ProductOperands<DevicePointer>;
using Epilogue = cuda_args::Epilogue<DevicePointer>;
using ExpertPairs = cuda_args::ExpertPairs<DevicePointer>;
using Tiling = cuda_args::Tiling<DevicePointer>;
using ConvertRows = cuda_args::ConvertRows<DevicePointer>;
using SharedConversion = cuda_args::SharedConversion<DevicePointer>;
using AttentionArgs = cuda_args::AttentionArgs<DevicePointer>;
using AttentionOperands = cuda_args::AttentionOperands<DevicePointer>;
using AttentionSplits = cuda_args::AttentionSplits<DevicePointer>;

// The tile of a block of decode_gemm and its variants (kernels/cuda/decode_gemm.cuh).
struct ProductTile {
  uint32_t token_tiles;  // of eight tokens; 0: a single token
  uint32_t tokens, rows;
  uint32_t parts;         // of the columns
  uint32_t shared_bytes;  // dynamic
  uint32_t threads = 256;
  // The place of weights on their way to the tensor cores: registers, a block for each tile and
  // part; rings of shared memory, one for each warp, which has all parts of the columns
  // (weight_ring.cuh), or one for the block (tile_ring.cuh). Blocks with rings share the tiles;
  // a grid has at most `blocks` of them for each group of tokens.
  enum class Place { registers, warp_rings, block_ring } place = Place::registers;
  uint32_t blocks = 0;
  // Of a block's ring: slices of the columns that are computed at once, and stages.
  uint32_t slices = 1, stages = 0;

  uint64_t pieces(uint64_t n_rows) const {
    return divide_up(n_rows, rows) * (place == Place::warp_rings ? 1 : parts);
  }
  Grid grid(uint64_t n_tokens, uint64_t n_rows) const {
    const uint32_t groups = divide_up(n_tokens, tokens);
    if (place == Place::registers) return {groups, divide_up(n_rows, rows), parts};
    return {groups, static_cast<uint32_t>(std::min<uint64_t>(pieces(n_rows), blocks))};
  }
};

class PlanBuilder final : public SharedOperations<DevicePointer, PlanEntry> {
 public:
  PlanBuilder(const PlanRequest& request, CudaDevice& device, const AttentionChoice& attention)
      : SharedOperations(request),
        device_(device),
        gpu_(device.device().properties()),
        attention_(attention) {}

  LaunchPlan build() {
    return plan_with([this](const auto& op) { emit(op); });
  }

 private:
  using SharedOperations::emit;
  void emit(const RmsNormOp& op);
  void emit(const GluOp& op);
  void emit(const MatmulOp& op);
  void emit(const HeadMatmulOp& op);
  void emit(const RopeAppendOp& op);
  void emit(const AttentionOp& op);
  void emit(const GatedDeltaRuleOp& op);
  void emit(const MoeMatmulOp& op);
  void emit(const SampleOp& op);
  void emit(const AllReduceOp& op);
  void emit(const SendOp& op);
  void emit(const ReceiveOp& op);

  // Adds an exchange of the rows of `shape`, which is the value that is sent or received.
  void add_exchange(NcclExchange kind, ValueId in, ValueId out, ValueId shape);
  void add_launch(const char* kernel, const std::string& instance, const Geometry& geometry,
                  std::span<const DevicePointer> buffers,
                  std::span<const uint8_t> scalars) override;
  DevicePointer numbers(const KvRef& kv) const override { return CudaKv::of(kv).memory(); }
  DevicePointer numbers(const StateRef& state) const override {
    return CudaStateCache::of(state).memory();
  }
  DevicePointer floats(const WeightRef& weight) const override { return floats_of(weight); }
  UniformRows<DevicePointer> uniform_rows(const WeightRef& weight) const override;
  uint64_t kept_row_bytes(uint32_t cols) const override { return cols * sizeof(float); }

  // The product with the rows of a weight that have one type, from `first_row` on.
  struct Product {
    DevicePointer out;
    ProductRows x;      // in F32
    const GluOp* unit;  // if x are rows before a gated unit, else null
    WeightType type;
    uint64_t first_row;
    WeightRows weight;
    Epilogue epilogue;
  };
  using RowGroup = forge::RowGroup<DevicePointer>;
  // Emits a product of x, or, of the norm or the gated unit before it, of its x.
  void emit_product(const MatmulOp& op, const RmsNormOp* norm, const GluOp* unit = nullptr);
  // Emits a norm and the product that follows it, whose kernels compute the norm; returns false if
  // they cannot.
  bool emit_norm_with_product(const RmsNormOp& op);
  // Emits a gated unit of prompts and the product that follows it, for which its rows are converted
  // as they are computed; returns false if they cannot be fused.
  bool emit_unit_with_product(const GluOp& op);
  ProductRows product_rows(const MatmulOp& op, const RmsNormOp* norm) const;
  std::vector<Product> products_of(const MatmulOp& op, const RmsNormOp* norm,
                                   const GluOp* unit) const;
  WeightRows weight_rows(DevicePointer data, uint64_t row_bytes, uint64_t rows,
                         uint64_t cols) const;
  // Emits one launch for a product of decoded tokens and the gated unit after it; returns false if
  // they cannot be fused.
  bool emit_gated_product(const MatmulOp& op, const RmsNormOp* norm, const RowGroup& rows);
  void emit_matvec(const Product& product, const RowGroup& rows);
  void emit_decode_gemm(const Product& product, const RowGroup& rows);
  // Tile for a weight, or for experts, whose columns are not divided.
  ProductTile weight_tile(uint32_t tokens, uint64_t rows, uint64_t cols, WeightType type) const;
  ProductTile expert_tile(uint32_t tokens, uint64_t cols, const WeightFormat& format) const;
  // Tile with a ring for each warp; nothing for several tokens, file blocks, and a row of x without
  // room. With one for the block: not for file blocks.
  std::optional<ProductTile> ring_tile(uint32_t tokens, uint64_t cols, uint32_t parts,
                                       const WeightFormat& format) const;
  ProductTile block_ring_tile(uint32_t tokens, uint64_t rows, uint32_t parts,
                              WeightType type) const;
  bool fits(uint64_t shared_bytes, uint32_t blocks = 1) const;
  Tiling tiling(const ProductTile& tile, const Grid& grid, uint64_t n_rows);
  // x as a decode product with this tile reads it: as it is for one token, else as half_rows,
  // converted before it or by the product itself.
  struct DecodeRows {
    ProductRows x;
    SharedConversion conversion;
  };
  DecodeRows decode_rows(WeightType type, const ProductRows& x, uint32_t cols,
                         const RowGroup& rows, const ProductTile& tile);
  void emit_gemm(const Product& product, const RowGroup& rows);
  // Emits a product by cuBLASLt; returns false if it is missing or slower.
  bool emit_library_product(const Product& product, const RowGroup& rows);
  // The whole product in terms of the library.
  LtShape library_shape(const Product& product, const RowGroup& rows) const;
  // True if the tensor cores of SM90 multiply weights of a type without a library.
  bool multiplies_by_wgmma(WeightType type);
  // The rows of x and the matrices of a weight as these tensor cores read them; nothing if the
  // driver refuses.
  struct WgmmaMaps {
    TensorMap x, weight;
  };
  // tile_rows: 0 for quantised weights, which have no map.
  std::optional<WgmmaMaps> wgmma_maps(const ProductOperands& operands, uint64_t x_rows,
                                      uint64_t matrices, uint32_t tile_rows) const;
  // Calls launch_before() and launches the kernel for a weight of `matrices` matrices, or returns
  // false if the driver refuses.
  template <class Output, class Before>
  bool launch_wgmma(const std::string& kernel, WeightType type, const ProductOperands& operands,
                    const Output& output, uint64_t x_rows, uint64_t token_tiles,
                    uint64_t matrices, Before launch_before);
  // Emits such a product; returns false for other weights and devices.
  bool emit_wgmma_gemm(const Product& product, const RowGroup& rows);
  // Converts rows once for all parts of a weight, that is, until the next call of begin_half_rows.
  // A row of x may be several rows of the product, its `pieces`. chunk_cols: 0, or the columns of
  // the chunks in whose order columns are written (wgmma_quantized.cuh).
  void begin_half_rows();
  // Finds a place for converted rows; returns what converts them, or nothing if that was planned.
  std::optional<ConvertRows> place_half_rows(WeightType type, const ProductRows& x, uint32_t cols,
                                             const RowGroup& rows, uint32_t pieces = 1,
                                             uint32_t chunk_cols = 0);
  ProductRows half_rows(WeightType type, const ProductRows& x, uint32_t cols,
                        const RowGroup& rows, uint32_t pieces = 1, uint32_t chunk_cols = 0,
                        const GluOp* unit = nullptr);
  ProductRows half_rows(const Product& product, const RowGroup& rows, uint32_t chunk_cols = 0);
  uint32_t matvec_split(uint64_t rows, uint64_t cols) const;

  // A product of each row with `top_k` of the equal blocks of a weight's rows: those that a
  // routing chose, or, without a routing, all of them in order.
  struct GroupedProduct {
    const char* name;  // of the operation, for errors
    ValueId out, x, route;
    const CudaWeight& weight;
    DevicePointer bias;
    uint32_t n_experts, top_k;
  };
  void emit(const GroupedProduct& product);
  // Rows that x has for each token: one that its experts share, or one for each of them.
  uint32_t pieces_of(const GroupedProduct& p) const {
    return cols(p.x) == p.weight.cols ? 1 : p.top_k;
  }
  using RouteGroups = forge::RouteGroups<DevicePointer>;
  // The product's pairs of row and expert, sorted by expert; valid until the next call.
  const RouteGroups& groups_of(const GroupedProduct& p, const RowGroup& rows,
                               uint32_t tile_tokens);
  ProductOperands grouped_operands(const GroupedProduct& p, const RowGroup& rows,
                                   const ProductRows& x) const;
  // Without groups, for kernels that compute one pair a block.
  ExpertPairs expert_pairs(const GroupedProduct& p, const RouteGroups& groups) const;
  void emit_grouped_matvec(const GroupedProduct& p, const RowGroup& rows);
  void emit_grouped_decode_gemm(const GroupedProduct& p, const RowGroup& rows);
  // Emits one launch for the product of one token with its experts and the gated unit after it;
  // returns false if they cannot be fused.
  bool emit_gated_grouped_product(const MoeMatmulOp& op, const GroupedProduct& p);
  void emit_grouped_gemm(const GroupedProduct& p, const RowGroup& rows);
  bool emit_wgmma_grouped_gemm(const GroupedProduct& p, const RowGroup& rows);

  AttentionArgs attention_args(const AttentionOp& op) const;
  AttentionOperands attention_operands(const AttentionOp& op) const;
  // True if the mask of the run applies.
  bool is_masked(const AttentionOp& op) const { return op.masked && shape_.mask_kind != 0; }
  void emit_naive_attention(const AttentionOp& op, const RowGroup& rows);
  // Emits calls of libflash_attn for the short runs of the step, the long ones, or both.
  void emit_flash_attention(const AttentionOp& op, const AttentionKernels& kernels);
  flash_attn_params flash_params(const AttentionOp& op, const RunAddresses& runs) const;
  // `rows`: the operation before, if the kernel also computes it.
  void emit_decode_attention(const AttentionOp& op, const RopeAppendOp* rows = nullptr);
  AttentionSplits decode_splits(const AttentionOp& op);
  void merge_splits(const AttentionOp& op, const AttentionSplits& splits);
  // For values in keys: decoded queries if `splits` is given, else prompts.
  void emit_latent_attention(const AttentionOp& op, const AttentionSplits* splits);
  void emit_prefill_attention(const AttentionOp& op);

  using SharedOperations::launch;
  // Appends the launch of a kernel that takes several parameters.
  template <class... Parameters>
  void launch(const char* file, const std::string& instance, Grid grid, uint32_t block,
              uint32_t shared_bytes, const Parameters&... parameters) {
    plan_.entries.emplace_back(std::in_place_type<Launch>, device_.kernels.get(file, instance),
                               grid, block, shared_bytes, parameters...);
  }

  CudaDevice& device_;
  const DeviceProperties& gpu_;
  const AttentionChoice& attention_;
  // By their type and the order of columns.
  std::map<std::pair<std::string, uint32_t>, ProductRows> half_rows_;
};

// Rows of x in F32.
inline ProductRows float_rows(DevicePointer x) {
  return {.data = x, .scale = 0, .norm = {}, .padded_cols = 0};
}
// True if tensor cores multiply a weight of this type in BF16, false if in F16.
bool multiplies_as_bf16(WeightType type);
// Number of tokens that matvec and grouped_matvec compute together, for `rows` tokens in all.
uint32_t matvec_tokens(uint32_t rows);
// Number of rows that a warp of matvec or grouped_matvec computes together.
constexpr uint32_t kWarpRows = 2;
// As in "decode_gemm<FormatQ8_0, f16, 1>".
std::string decode_instance(const char* kernel, WeightType type, const ProductTile& tile);
// As in "gemm<FormatQ8_0, f16>".
std::string half_instance(const char* kernel, WeightType type);

// Tile of a block of gemm and grouped_gemm, and its dynamic shared memory in bytes.
constexpr uint32_t kGemmRows = 128;
constexpr uint32_t kGemmTokens = 64;
constexpr uint32_t kGemmShared = 55296;
// Columns of x, padded for tensor cores; in the order of chunks, for whole steps of 128.
constexpr uint32_t padded_cols(uint64_t cols, uint32_t chunk_cols = 0) {
  const uint32_t unit = chunk_cols == 0 ? 64 : 128;
  return divide_up(cols, unit) * unit;
}

}  // namespace forge::cuda
