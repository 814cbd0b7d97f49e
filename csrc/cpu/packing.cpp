#include "packing.h"

namespace forge::cpu {

Packing::Packing(std::vector<PackedWeight*> weights, CpuDevice& device)
    : weights_(std::move(weights)), device_(device) {
  std::erase(weights_, nullptr);
  thread_ = std::thread([this] { pack_all(); });
}

Packing::~Packing() {
  stopping_ = true;
  thread_.join();
}

void Packing::finish(const StopFlag& stop) {
  for (PackedWeight* weight : weights_) {
    while (!weight->is_packed()) {
      stop.check();
      weight->pack_more(device_);
    }
  }
}

void Packing::pack_all() {
  try {
    for (PackedWeight* weight : weights_) {
      for (;;) {
        const auto lock = device_.lock_after_others();
        if (stopping_) return;
        if (weight->is_packed()) break;
        weight->pack_more(device_);
      }
    }
  } catch (...) {
    // Memory that is wanting here is wanting in finish() too, which says so.
  }
}

}  // namespace forge::cpu
