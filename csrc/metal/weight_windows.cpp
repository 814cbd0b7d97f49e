#include "weight_windows.h"

#include <unistd.h>

#include <algorithm>

#include "../common/error.h"

namespace forge::metal {

namespace {

// Wider gaps between weights split windows, since a whole buffer becomes resident.
constexpr uint64_t kWidestGap = 1u << 20;

uintptr_t page_bytes() {
  static const auto bytes = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  return bytes;
}

const uint8_t* page_begin(const uint8_t* data) {
  return data - reinterpret_cast<uintptr_t>(data) % page_bytes();
}

// A mapping goes to the end of its last page, whatever the length of the file.
const uint8_t* page_end(const uint8_t* data) { return page_begin(data + page_bytes() - 1); }

}  // namespace

std::optional<SharedPlace> WeightWindows::covering(const uint8_t* data, uint64_t bytes) const {
  for (const Window& window : windows_) {
    if (data < window.begin || data + bytes > window.end) continue;
    if (auto buffer = window.buffer.lock()) {
      return SharedPlace{std::move(buffer), static_cast<uint64_t>(data - window.begin)};
    }
  }
  return std::nullopt;
}

std::vector<WeightWindows::Span> WeightWindows::missing_spans(
    const std::vector<MappedRange>& ranges) const {
  std::vector<MappedRange> missing;
  for (const MappedRange& range : ranges) {
    if (!covering(range.data, range.bytes)) missing.push_back(range);
  }
  std::ranges::sort(missing, {}, &MappedRange::data);
  const uint64_t longest = device_->properties().max_buffer_bytes;
  std::vector<Span> spans;
  for (const MappedRange& range : missing) {
    const uint8_t* begin = page_begin(range.data);
    const uint8_t* end = page_end(range.data + range.bytes);
    if (!spans.empty() && spans.back().owner == range.owner) {
      Span& last = spans.back();
      end = std::max(end, last.end);
      const bool is_near =
          begin <= last.end || static_cast<uint64_t>(begin - last.end) <= kWidestGap;
      if (is_near && static_cast<uint64_t>(end - last.begin) <= longest) {
        last.end = end;
        continue;
      }
    }
    spans.push_back({begin, end, range.owner});
  }
  return spans;
}

uint64_t WeightWindows::missing_bytes(const std::vector<MappedRange>& ranges) const {
  uint64_t bytes = 0;
  for (const Span& span : missing_spans(ranges)) {
    bytes += static_cast<uint64_t>(span.end - span.begin);
  }
  return bytes;
}

std::vector<std::shared_ptr<const Buffer>> WeightWindows::open(
    const std::vector<MappedRange>& ranges) {
  std::erase_if(windows_, [](const Window& window) { return window.buffer.expired(); });
  std::vector<std::shared_ptr<const Buffer>> opened;
  for (const Span& span : missing_spans(ranges)) {
    const auto bytes = static_cast<uint64_t>(span.end - span.begin);
    opened.push_back(std::make_shared<const Buffer>(device_, span.begin, bytes, span.owner));
    windows_.push_back({span.begin, span.end, opened.back()});
  }
  return opened;
}

SharedPlace WeightWindows::find(const uint8_t* data, uint64_t bytes) const {
  if (std::optional<SharedPlace> place = covering(data, bytes)) return *std::move(place);
  fail(FORGE_INTERNAL, "no buffer has the ", bytes, " bytes of a weight");
}

}  // namespace forge::metal
