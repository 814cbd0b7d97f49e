#pragma once

#include <span>

#include "launch.h"

namespace forge::metal {

// One command buffer. What is recorded runs in order, and everything in it sees what came before.
class Commands {
 public:
  explicit Commands(const Device& device);
  // Waits for what was committed; what was not is forgotten.
  ~Commands();
  Commands(const Commands&) = delete;
  Commands& operator=(const Commands&) = delete;

  // Where a launch has no buffer for an index, `filler` is bound, which no kernel reads.
  void launch(std::span<const Launch> launches, Place filler);
  // Places and sizes are multiples of 4 bytes.
  void copy(Place to, Place from, uint64_t bytes);
  void clear(Place at, uint64_t bytes);

  // Sends everything to the GPU; nothing can be recorded any more.
  void commit();
  // Waits until the GPU is done. Throws FORGE_OUT_OF_MEMORY or FORGE_DEVICE_FAILED, naming the
  // work, when it failed.
  void wait(const char* what);

 private:
  enum class Encoder { none, compute, blit };
  void use(Encoder kind);
  void end_encoder() { use(Encoder::none); }

  Object buffer_, encoder_;
  Encoder kind_ = Encoder::none;
  bool is_committed_ = false, is_done_ = false;
};

}  // namespace forge::metal
