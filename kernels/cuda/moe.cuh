#pragma once

// What moe_group.cu writes and grouped_matvec.cu reads.

#include "prelude.cuh"

// Pairs of a token and one of its experts, all of the same expert: entries first .. first + count
// of the list of pairs, where a pair is token * top_k + its place among the token's experts.
struct MoeTile {
  u32 expert;
  u32 first;
  u32 count;
};
