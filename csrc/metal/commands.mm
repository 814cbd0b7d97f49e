#include "commands.h"

#include <algorithm>

#include "../common/error.h"
#include "apple.h"

namespace forge::metal {

namespace {

id<MTLBuffer> buffer_at(Place place) { return static_cast<id<MTLBuffer>>(place.buffer); }

// Retains an object that a method returned without ownership.
Object share(id<NSObject> object) { return Object([object retain]); }

}  // namespace

Commands::Commands(const Device& device) : device_(device) {
  const AutoreleasePool pool;
  buffer_ = share([static_cast<id<MTLCommandQueue>>(device.queue()) commandBuffer]);
  if (!buffer_) fail(FORGE_DEVICE_FAILED, device.properties().name, " gives no command buffer");
}

Commands::~Commands() {
  const AutoreleasePool pool;
  // Metal ends the process if an encoder is left open.
  end_encoder();
  if (is_committed_ && !is_done_) {
    [static_cast<id<MTLCommandBuffer>>(buffer_.get()) waitUntilCompleted];
  }
}

void Commands::use(Encoder kind) {
  if (kind == kind_) return;
  if (kind_ != Encoder::none) {
    [static_cast<id<MTLCommandEncoder>>(encoder_.get()) endEncoding];
    encoder_ = Object();
  }
  kind_ = kind;
  id<MTLCommandBuffer> buffer = static_cast<id<MTLCommandBuffer>>(buffer_.get());
  if (kind == Encoder::compute) encoder_ = share([buffer computeCommandEncoder]);
  if (kind == Encoder::blit) encoder_ = share([buffer blitCommandEncoder]);
}

void Commands::launch(std::span<const Launch> launches, Place filler) {
  if (launches.empty()) return;
  const AutoreleasePool pool;
  use(Encoder::compute);
  id<MTLComputeCommandEncoder> encoder =
      static_cast<id<MTLComputeCommandEncoder>>(encoder_.get());
  for (const Launch& launch : launches) {
    [encoder setComputePipelineState:static_cast<id<MTLComputePipelineState>>(
                                         launch.kernel().pipeline.get())];
    NSUInteger index = 0;
    for (const Place& place : launch.buffers()) {
      const Place bound = place ? place : filler;
      [encoder setBuffer:buffer_at(bound) offset:bound.offset atIndex:index++];
    }
    const std::vector<uint8_t>& scalars = launch.scalars();
    [encoder setBytes:scalars.data() length:scalars.size() atIndex:index];
    const Group group = launch.group();
    // Set for every pipeline: the encoder would keep the length of an earlier one.
    [encoder setThreadgroupMemoryLength:launch.set_threadgroup_bytes() atIndex:0];
    const Grid grid = launch.grid();
    [encoder dispatchThreadgroups:MTLSize{grid.x, grid.y, grid.z}
            threadsPerThreadgroup:MTLSize{group.threads, 1, 1}];
  }
}

void Commands::copy(Place to, Place from, uint64_t bytes) {
  const AutoreleasePool pool;
  use(Encoder::blit);
  [static_cast<id<MTLBlitCommandEncoder>>(encoder_.get()) copyFromBuffer:buffer_at(from)
                                                            sourceOffset:from.offset
                                                                toBuffer:buffer_at(to)
                                                       destinationOffset:to.offset
                                                                    size:bytes];
}

void Commands::clear(Place at, uint64_t bytes) {
  const AutoreleasePool pool;
  use(Encoder::blit);
  [static_cast<id<MTLBlitCommandEncoder>>(encoder_.get()) fillBuffer:buffer_at(at)
                                                               range:NSRange{at.offset, bytes}
                                                               value:0];
}

void Commands::commit() {
  const AutoreleasePool pool;
  end_encoder();
  device_.residency().note_use();
  [static_cast<id<MTLCommandBuffer>>(buffer_.get()) commit];
  is_committed_ = true;
}

void Commands::wait(const char* what) {
  const AutoreleasePool pool;
  id<MTLCommandBuffer> buffer = static_cast<id<MTLCommandBuffer>>(buffer_.get());
  [buffer waitUntilCompleted];
  is_done_ = true;
  if ([buffer status] != MTLCommandBufferStatusError) return;
  NSError* error = [buffer error];
  const std::string reason =
      error ? [[error localizedDescription] UTF8String] : "Metal gives no reason";
  const bool is_out_of_memory = [error code] == MTLCommandBufferErrorOutOfMemory;
  fail(is_out_of_memory ? FORGE_OUT_OF_MEMORY : FORGE_DEVICE_FAILED, what, " on the GPU failed: ",
       reason);
}

double Commands::gpu_seconds() const {
  id<MTLCommandBuffer> buffer = static_cast<id<MTLCommandBuffer>>(buffer_.get());
  return [buffer GPUEndTime] - [buffer GPUStartTime];
}

size_t CommandSeries::room() const {
  constexpr size_t kFirstLaunches = 24;
  return buffers_.size() <= 1 ? std::min(kFirstLaunches, launches_) : launches_;
}

void CommandSeries::launch(std::span<const Launch> launches, Place filler) {
  while (!launches.empty()) {
    if (recorded_ == 0) buffers_.emplace_back(device_);
    const size_t taken = std::min(launches.size(), room() - recorded_);
    buffers_.back().launch(launches.first(taken), filler);
    launches = launches.subspan(taken);
    recorded_ += taken;
    if (recorded_ == room()) commit();
  }
}

void CommandSeries::commit() {
  if (recorded_ == 0) return;
  buffers_.back().commit();
  recorded_ = 0;
}

void CommandSeries::wait(const char* what) {
  for (Commands& each : buffers_) each.wait(what);
}

}  // namespace forge::metal
