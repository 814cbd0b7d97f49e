#pragma once

#include <cstdint>
#include <vector>

#include "program.h"

namespace forge {

// Where each value of a program lives in one arena, values that are never alive together sharing
// space.
struct ScratchPlan {
  std::vector<uint64_t> offsets;  // of value v: offsets[v - 1], in elements
  uint64_t elements = 0;          // size of the arena
};

// Plans by first fit over the operations in order; offsets are multiples of `alignment` elements. A
// kept value lives to the end. A result never shares space with what its operation reads.
ScratchPlan plan_scratch(const Program& program, uint64_t alignment);

// Whether two values share no memory.
bool are_apart(const Program& program, const ScratchPlan& plan, ValueId a, ValueId b);

// Whether a kernel that reads a row before it writes it may write one value over another of its
// size.
bool is_safe_over(const Program& program, const ScratchPlan& plan, ValueId out, ValueId in);

}  // namespace forge
