#pragma once

#include <array>
#include <functional>

#include "device.h"

namespace fake_metal {

// The maximum number of buffers of a kernel, and the maximum length of setBytes.
constexpr NSUInteger kBufferIndices = 31;
constexpr NSUInteger kMostBytes = 4096;

// The binding at an index.
struct Binding {
  FakeBuffer* buffer = nullptr;  // retained
  NSUInteger offset = 0;
  std::vector<char> bytes;  // of setBytes, if there is no buffer
  bool is_own = false;      // true if set for the current pipeline, false if left by another
};

}  // namespace fake_metal

// A command buffer; its work runs when it is waited for.
@interface FakeCommandBuffer : NSObject <MTLCommandBuffer> {
 @public
  FakeQueue* queue_;
  std::vector<std::function<void()>>* work_;
  std::vector<NSObject*>* held_;  // objects used by the work
  bool hasOpenEncoder_, isCommitted_, hasKernels_, isIgnored_;
  NSUInteger status_;
  uint64_t code_;  // of the error
}
- (void)run;
@end

@interface FakeEncoder : NSObject <MTLCommandEncoder> {
 @public
  FakeCommandBuffer* commands_;
  bool isEnded_;
}
- (void)requireOpen;
- (void)addWork:(std::function<void()>)work using:(NSObject*)object;
@end

@interface FakeComputeEncoder : FakeEncoder <MTLComputeCommandEncoder> {
 @public
  FakePipeline* pipeline_;
  std::array<fake_metal::Binding, fake_metal::kBufferIndices>* bindings_;
  NSUInteger threadgroupBytes_;  // stays set when the pipeline changes
  bool hasOwnThreadgroupBytes_;  // true if set for the current pipeline
}
@end

@interface FakeBlitEncoder : FakeEncoder <MTLBlitCommandEncoder>
@end
