#pragma once

// Buffers over the pages of mapped files, so that the GPU reads weights where they are.

#include <memory>
#include <optional>
#include <vector>

#include "buffer.h"

namespace forge::metal {

// Bytes of a mapped file that `owner` keeps mapped.
struct MappedRange {
  const uint8_t* data;
  uint64_t bytes;
  std::shared_ptr<const void> owner;
};

// A place in a buffer that others share.
struct SharedPlace {
  std::shared_ptr<const Buffer> buffer;
  uint64_t offset;
};

class WeightWindows {
 public:
  explicit WeightWindows(std::shared_ptr<const Device> device) : device_(std::move(device)) {}

  // Bytes of the windows that `open` would open for the ranges.
  uint64_t missing_bytes(const std::vector<MappedRange>& ranges) const;
  // Covers the ranges with as few buffers as the device's longest allows; neighbours in a file
  // share one. Those that are covered already stay as they are. A window closes with the last who
  // holds it: the caller, until weights do.
  std::vector<std::shared_ptr<const Buffer>> open(const std::vector<MappedRange>& ranges);
  // Where an open window has the bytes at `data`. Throws FORGE_INTERNAL when none has.
  SharedPlace find(const uint8_t* data, uint64_t bytes) const;

 private:
  struct Window {
    const uint8_t* begin;
    const uint8_t* end;
    std::weak_ptr<const Buffer> buffer;
  };
  struct Span {
    const uint8_t* begin;  // of a page
    const uint8_t* end;
    std::shared_ptr<const void> owner;
  };
  std::optional<SharedPlace> covering(const uint8_t* data, uint64_t bytes) const;
  std::vector<Span> missing_spans(const std::vector<MappedRange>& ranges) const;

  std::shared_ptr<const Device> device_;
  std::vector<Window> windows_;
};

}  // namespace forge::metal
