#pragma once

#include <cstdint>
#include <vector>

#include "program.h"

namespace forge {

// The offset of each value of a program in one arena. Values whose lifetimes do not overlap may
// share memory.
struct ScratchPlan {
  std::vector<uint64_t> offsets;  // of value v: offsets[v - 1], in elements
  uint64_t elements = 0;          // size of the arena
};

// Plans by first fit over the operations in order; offsets are multiples of `alignment` elements. A
// kept value lives to the end. A result never shares memory with the inputs of its operation, nor
// with those of the operations before it that a GPU may compute in the same kernel: a norm before a
// product, a product before a gated unit, and appended rows before attention.
ScratchPlan plan_scratch(const Program& program, uint64_t alignment);

// True if two values share no memory.
bool are_apart(const Program& program, const ScratchPlan& plan, ValueId a, ValueId b);

// True if a kernel that reads a row before writing it may write `out` over `in`, a value of the
// same size.
bool is_safe_over(const Program& program, const ScratchPlan& plan, ValueId out, ValueId in);

}  // namespace forge
