#pragma once

#include <span>

#include "launch.h"

namespace forge::metal {

// One command buffer. Its commands run in order, and each sees the results of the previous ones.
class Commands {
 public:
  explicit Commands(const Device& device);
  // Waits for committed commands; discards others.
  ~Commands();
  Commands(const Commands&) = delete;
  Commands& operator=(const Commands&) = delete;

  // Binds `filler`, which no kernel reads, for the missing buffers of a launch.
  void launch(std::span<const Launch> launches, Place filler);
  // Places and sizes are multiples of 4 bytes.
  void copy(Place to, Place from, uint64_t bytes);
  void clear(Place at, uint64_t bytes);

  // Sends all commands to the GPU; ends recording.
  void commit();
  // Waits until the GPU has finished. Throws FORGE_OUT_OF_MEMORY or FORGE_DEVICE_FAILED, naming the
  // work, if it failed.
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
