#include "residency.h"

#include "../common/library_end.h"
#include "apple.h"

namespace forge::metal {

#if FORGE_HAS_RESIDENCY_SETS

namespace {

// Several requests within the second after which macOS reclaims pages.
constexpr auto kInterval = std::chrono::milliseconds(500);
// Idle programs give their memory back after this time.
constexpr auto kKeepTime = std::chrono::minutes(3);

}  // namespace

Residency::Residency(void* device, void* queue) {
  if (@available(macOS 15.0, *)) {
    const Object settings([[MTLResidencySetDescriptor alloc] init]);
    NSError* error = nullptr;
    set_ = Object([static_cast<id<MTLDevice>>(device)
        newResidencySetWithDescriptor:static_cast<MTLResidencySetDescriptor*>(settings.get())
                                error:&error]);
    if (!set_) return;
    [static_cast<id<MTLCommandQueue>>(queue)
        addResidencySet:static_cast<id<MTLResidencySet>>(set_.get())];
    thread_ = std::thread([this] { repeat_requests(); });
  }
}

Residency::~Residency() {
  if (!set_) return;
  {
    const std::lock_guard lock(mutex_);
    is_ending_ = true;
  }
  wake_.notify_one();
  thread_.join();
  if (@available(macOS 15.0, *)) {
    const AutoreleasePool pool;
    [static_cast<id<MTLResidencySet>>(set_.get()) endResidency];
  }
}

void Residency::add(void* buffer) {
  if (!set_) return;
  const std::lock_guard lock(mutex_);
  if (@available(macOS 15.0, *)) {
    [static_cast<id<MTLResidencySet>>(set_.get()) addAllocation:static_cast<id<MTLBuffer>>(buffer)];
  }
  has_changes_ = true;
}

void Residency::remove(void* buffer) {
  if (!set_) return;
  const std::lock_guard lock(mutex_);
  if (@available(macOS 15.0, *)) {
    id<MTLResidencySet> set = static_cast<id<MTLResidencySet>>(set_.get());
    [set removeAllocation:static_cast<id<MTLBuffer>>(buffer)];
    [set commit];
  }
}

void Residency::note_use() {
  if (!set_) return;
  const std::lock_guard lock(mutex_);
  if (@available(macOS 15.0, *)) {
    id<MTLResidencySet> set = static_cast<id<MTLResidencySet>>(set_.get());
    if (has_changes_) {
      [set commit];
      [set requestResidency];
    }
  }
  has_changes_ = false;
  const bool was_idle = Clock::now() - last_use_ > kKeepTime;
  last_use_ = Clock::now();
  if (was_idle) wake_.notify_one();
}

void Residency::repeat_requests() {
  std::unique_lock lock(mutex_);
  const auto is_idle = [&] { return Clock::now() - last_use_ > kKeepTime; };
  for (;;) {
    wake_.wait(lock, [&] { return is_ending_ || !is_idle(); });
    wake_.wait_for(lock, kInterval, [&] { return is_ending_; });
    if (is_ending_) return;
    if (has_changes_) continue;
    const CallInProgress call(std::nothrow);
    if (!call.is_allowed()) return;
    if (@available(macOS 15.0, *)) {
      const AutoreleasePool pool;
      [static_cast<id<MTLResidencySet>>(set_.get()) requestResidency];
    }
  }
}

#else

Residency::Residency(void*, void*) {}
Residency::~Residency() {}
void Residency::add(void*) {}
void Residency::remove(void*) {}
void Residency::note_use() {}
void Residency::repeat_requests() {}

#endif

}  // namespace forge::metal
