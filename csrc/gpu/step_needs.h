#pragma once

// What a program needs on a device before it can run: weights in the forms that kernels read, and
// memory for its caches.

#include <set>

#include "../common/program.h"
#include "device_kv.h"
#include "device_slots.h"

namespace forge {

// Collects weights for a device. What the device has already, and no weight at all, is passed over.
class WeightRequests {
 public:
  virtual ~WeightRequests() = default;
  // As products read it: every row in its own type.
  virtual void add_matrix(const WeightRef& weight) = 0;
  // As kernels read it that cannot tell rows apart: all in one type, F32 where the parts differ.
  virtual void add_unified(const WeightRef& weight) = 0;
  // As floats without padding: norms, biases, frequencies.
  virtual void add_floats(const WeightRef& weight) = 0;
};

// Asks for the weights of each operation in the form that its kernels read.
void request_weights(const Program& program, WeightRequests& requests);

// Whether a weight that kernels dequantise is of a type that looks its values up (codebooks.h).
bool needs_codebooks(const Program& program);

// The caches and recurrent states of a program that have no memory yet.
std::set<const DeviceKv*> missing_caches(const Program& program);
std::set<const DeviceSlots*> missing_states(const Program& program);

}  // namespace forge
