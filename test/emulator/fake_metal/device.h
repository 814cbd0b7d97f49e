#pragma once

// The stand-in's device and the objects that it creates. Methods are those of apple.h; these
// classes add what the stand-in's files share.

#include <set>
#include <vector>

#include "../metal_registry.h"
#include "memory.h"
#include "objects.h"

@interface FakeBuffer : NSObject <MTLBuffer> {
 @public
  fake_metal::GuardedMemory* memory_;  // null if the bytes are owned elsewhere
  char* bytes_;
  NSUInteger length_;
  bool isPrivate_;
}
@end

@interface FakeFunction : NSObject <MTLFunction> {
 @public
  const emulator::MetalKernel* kernel_;
}
@end

@interface FakePipeline : NSObject <MTLComputePipelineState> {
 @public
  const emulator::MetalKernel* kernel_;
  NSUInteger declaredBytes_;  // of threadgroup memory
}
@end

@interface FakeLibrary : NSObject <MTLLibrary> {
 @public
  std::string* source_;
}
@end

@class FakeCommandBuffer;
@class FakeResidencySet;

@interface FakeQueue : NSObject <MTLCommandQueue> {
 @public
  // Committed command buffers that have not run, in order.
  std::vector<FakeCommandBuffer*>* pending_;
  FakeResidencySet* set_;
}
// Runs what was committed up to a command buffer.
- (void)runThrough:(FakeCommandBuffer*)last;
@end

@interface FakeResidencySet : NSObject <MTLResidencySet> {
 @public
  std::set<NSObject*>* added_;  // retained
  bool hasChanges_;
}
@end

@interface FakeDevice : NSObject <MTLDevice>
@end

namespace fake_metal {

// The bytes of all live buffers.
uint64_t allocated_bytes();

}  // namespace fake_metal
