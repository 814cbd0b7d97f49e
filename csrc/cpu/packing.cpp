#include "packing.h"

namespace forge::cpu {

Packing::Packing(std::vector<PackedWeight*> weights, CpuDevice& device)
    : weights_(std::move(weights)), device_(device) {
  std::erase(weights_, nullptr);
  for (PackedWeight* weight : weights_) {
    while (weight->is_made() && !weight->is_packed()) weight->pack_more(device_);
  }
  thread_ = std::thread([this] { pack_all(); });
}

Packing::~Packing() {
  stopping_ = true;
  thread_.join();
}

void Packing::prepare_run(const StopFlag& stop) {
  if (!has_run_) {
    has_run_ = true;
    return;
  }
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
    // Memory that is wanting here is wanting in prepare_run() too, which says so.
  }
}

}  // namespace forge::cpu
