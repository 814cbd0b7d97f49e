#pragma once

#include <atomic>
#include <thread>
#include <vector>

#include "../common/step_inputs.h"
#include "packed_weight.h"

namespace forge::cpu {

// Packs the weights of a step while others wait for a tokenizer, a prompt or its first token. It
// uses the threads of the device for some milliseconds at a time, when no run wants them.
class Packing {
 public:
  // In this order; null pointers are passed over. Weights whose rows are made are packed before this
  // returns: whoever runs should not make them twice. The caller holds the device's mutex; device
  // and weights live longer.
  Packing(std::vector<PackedWeight*> weights, CpuDevice& device);
  ~Packing();
  Packing(const Packing&) = delete;
  Packing& operator=(const Packing&) = delete;

  // Packs what a run needs; the caller holds the device's mutex. The first one takes rows as they lie
  // in the file, all others wait for what is left. Throws FORGE_CANCELLED when the flag is raised
  // meanwhile.
  void prepare_run(const StopFlag& stop);

 private:
  void pack_all();

  std::vector<PackedWeight*> weights_;
  CpuDevice& device_;
  bool has_run_ = false;
  std::atomic<bool> stopping_{false};
  std::thread thread_;
};

}  // namespace forge::cpu
