#pragma once

#include <vector>

#include "../common/step_inputs.h"
#include "top_logits.h"

namespace forge::cpu {

// Whether penalties, bias or a mask change the logits at all.
bool adjusts(const forge_sampling& s);

// The tokens whose logit penalties and bias change, by id, with the changed logits. `history` is
// scratch.
void find_overrides(const StepInputs& inputs, const forge_sampling& s, const float* logits,
                    std::vector<int32_t>& history, std::vector<Candidate>& overrides);

// Sets the logits that the mask forbids to -infinity.
void apply_mask(const uint32_t* mask, uint64_t n, float* logits);

inline bool is_allowed(const uint32_t* mask, int32_t id) {
  return !mask || (mask[id / 32] >> (id % 32) & 1) != 0;
}

// The mask a sampling asks for, or null.
const uint32_t* mask_of(const StepInputs& inputs, const forge_sampling& s);

}  // namespace forge::cpu
