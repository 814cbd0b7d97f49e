#pragma once

#include <deque>
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
  // Returns the time that the GPU took. The commands have ended.
  double gpu_seconds() const;

 private:
  enum class Encoder { none, compute, blit };
  void use(Encoder kind);
  void end_encoder() { use(Encoder::none); }

  const Device& device_;
  Object buffer_, encoder_;
  Encoder kind_ = Encoder::none;
  bool is_committed_ = false, is_done_ = false;
};

// The command buffers of one run. Each is committed when it is full, so that the GPU computes while
// the CPU records the next. Short ones also end long before macOS would stop work that keeps the
// display waiting.
class CommandSeries {
 public:
  // The first command buffer is short, so that the GPU begins early; the next ones take `launches`.
  CommandSeries(const Device& device, size_t launches) : device_(device), launches_(launches) {}

  void launch(std::span<const Launch> launches, Place filler);
  // Commits what was recorded since the last commit.
  void commit();
  // Waits for all of them. Throws the first error: later command buffers only report that they were
  // not run.
  void wait(const char* what);

 private:
  size_t room() const;

  const Device& device_;
  const size_t launches_;
  std::deque<Commands> buffers_;
  size_t recorded_ = 0;  // launches in the last buffer; 0: it was committed
};

}  // namespace forge::metal
