#pragma once

// What a step asks of the device before it can run.

#include <set>

#include "../common/program.h"
#include "weight_store.h"

namespace forge::metal {

// Asks the store for the weights of every operation in the form that its kernels read, and has it lay
// them out. Returns whether the tables of the IQ types are needed.
bool request_weights(const Program& program, WeightStore& store);

// The caches of a program that have no memory yet.
std::set<const KvCache*> missing_caches(const Program& program);

// Whether every output of a run takes its largest logit, with nothing that adjusts logits before or
// wants to know more of them.
bool is_greedy(const StepInputs& inputs);

}  // namespace forge::metal
