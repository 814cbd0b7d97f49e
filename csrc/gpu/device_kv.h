#pragma once

#include <string>

#include "../common/backend.h"
#include "kv_layout.h"
#include "memory_ledger.h"

namespace forge {

// The pages of one layer in device memory, which is taken when the first step that uses them is
// compiled: by then all that the model needs is known.
class DeviceKv : public KvCache {
 public:
  virtual bool is_allocated() const = 0;
  // Takes the memory, filled with zeros, unless it is there already.
  virtual void allocate() const = 0;

  uint64_t bytes() const { return page_bytes * shape.n_pages; }
  // The kernels' name of the element type: "float", "f16", "bf16" or "q8".
  const char* element() const;

 protected:
  // Throws FORGE_UNSUPPORTED for a type of element that GPUs do not store, FORGE_OUT_OF_MEMORY for
  // more pages than the device would hold if it held nothing else.
  DeviceKv(const KvShape& cache_shape, const DeviceRoom& room);

  const KvLayout layout_;
};

inline const DeviceKv& device_kv(const KvCache& cache) {
  return static_cast<const DeviceKv&>(cache);
}

// Whether the kernels of attention that multiply tiles have instances for heads of a cache: those
// of 16, 32, 64, 80, 96, 128 and 256 numbers, keys and values alike, each with a place of its own.
bool has_tiled_heads(const KvShape& shape);

// The same of heads whose values are in their keys: of 288 and 256 numbers, or 576 and 512.
bool has_latent_heads(const KvShape& shape);

// Instances of kernels for a cache, as in "rope_append<f16>" and "prefill_attention<f16, 64>".
std::string element_instance(const char* kernel, const DeviceKv& kv);
std::string head_instance(const char* kernel, const DeviceKv& kv);

}  // namespace forge
