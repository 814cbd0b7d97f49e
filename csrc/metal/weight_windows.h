#pragma once

// Buffers over the pages of mapped files, from which the GPU reads weights without a copy.

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

// An offset in a shared buffer.
struct SharedPlace {
  std::shared_ptr<const Buffer> buffer;
  uint64_t offset;
};

class WeightWindows {
 public:
  explicit WeightWindows(std::shared_ptr<const Device> device) : device_(std::move(device)) {}

  // Bytes of the new windows that `open` needs for the ranges.
  uint64_t missing_bytes(const std::vector<MappedRange>& ranges) const;
  // Covers the ranges with as few buffers as the device's longest allows; neighbours in a file
  // share one. Reuses open windows. A window closes when its last reference is dropped.
  std::vector<std::shared_ptr<const Buffer>> open(const std::vector<MappedRange>& ranges);
  // Finds the bytes at `data` in an open window. Throws FORGE_INTERNAL if no window has them.
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
