#pragma once

// Inputs of products with experts, and their results by plain loops.

#include "gemm_check.h"

namespace kernel_test {

struct GroupedShape {
  u32 tokens, n_experts, top_k, rows, cols;
  bool shared;
};

// [tokens, 2 top_k] in the format of moe_route: different experts among the first `n_used`.
Buffer<float> random_routes(Random& random, const GroupedShape& s, u32 n_used);
// The k-th expert of a token.
u32 expert_of(const Buffer<float>& routes, u32 token, u32 k, u32 top_k);

// Memory for the lists of moe_group.
struct Groups {
  Buffer<MoeTile> tiles;
  Buffer<u32> n_tiles, pairs;

  Groups(const GroupedShape& s, u32 max_tokens, u32 tile_tokens);
  PairGroups operation(const GroupedShape& s, const Buffer<float>& routes, const u32* n_tokens,
                     u32 tile_tokens);
};

// A weight, its inputs and random routes.
struct GroupedInputs {
  GroupedShape shape;
  DeviceWeight weight;
  Buffer<float> x, bias, routes;

  GroupedInputs(Random& random, const WeightKind& kind, const GroupedShape& s, u32 n_used);
  GroupedMatvec product(Buffer<float>& out, const Groups& groups, bool has_bias) const;
};

// Compares a product by `multiply`, whose tiles have up to tile_tokens pairs, with plain loops.
void check_grouped_gemm(const WeightKind& kind, const GroupedShape& shape, u32 n_used,
                        bool has_bias, u32 tile_tokens, void (*multiply)(const GroupedGemm&));

}  // namespace kernel_test
