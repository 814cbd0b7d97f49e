#include "commands.h"

#include <atomic>
#include <cstdio>
#include <cstring>
#include <mutex>
#include <set>
#include <string_view>

using fake_metal::misuse;

namespace {

constexpr NSUInteger kMostThreadgroupBytes = 32 << 10;
// The buffer that stands for missing arguments has this size at most.
constexpr NSUInteger kFillerBytes = 16;

std::atomic<uint64_t> command_buffers = 0;

// True if a kernel may write an argument in place over another one.
bool may_share(const std::string& kernel, size_t written, size_t other) {
  struct Pair {
    std::string_view kernel;
    size_t written, other;
  };
  static constexpr Pair kPairs[] = {
      // The sum and the norm of a row over the row, which a threadgroup has read before.
      {"fused_residual_rms_norm", 1, 4},
      {"fused_residual_rms_norm", 0, 2},
      {"fused_residual_rms_norm", 0, 4},
  };
  for (const Pair& pair : kPairs) {
    if (kernel == pair.kernel && written == pair.written && other == pair.other) return true;
  }
  return false;
}

// The error of work that is not run because earlier work failed.
constexpr uint64_t kIgnored = 4;

const char* text_of(uint64_t code) {
  switch (code) {
    case kIgnored:
      return "Ignored (for causing prior/excessive GPU errors) "
             "(00000004:kIOGPUCommandBufferCallbackErrorSubmissionsIgnored)";
    case 14:
      return "Impacting Interactivity "
             "(0000000e:kIOGPUCommandBufferCallbackErrorImpactingInteractivity)";
    case 8:
      return "Insufficient Memory (00000008:kIOGPUCommandBufferCallbackErrorOutOfMemory)";
    case 3:
      return "Caused GPU Address Fault Error (0000000b:kIOGPUCommandBufferCallbackErrorPageFault)";
    default:
      return "Internal Error (00000001:Internal Error)";
  }
}

void note_run(const std::string& kernel, const emulator::MetalLaunch& shape) {
  static std::mutex mutex;
  static std::set<std::string> known;
  if (fake_metal::options().trace == 0) return;
  if (fake_metal::options().trace == 2) {
    std::fprintf(stderr, "fake Metal launches %u threadgroups of %u: %s\n",
                 shape.grid.x * shape.grid.y * shape.grid.z, shape.threads.x, kernel.c_str());
    return;
  }
  const std::lock_guard lock(mutex);
  if (known.insert(kernel).second) std::fprintf(stderr, "fake Metal runs %s\n", kernel.c_str());
}

}  // namespace

@implementation FakeQueue

- (instancetype)init {
  pending_ = new std::vector<FakeCommandBuffer*>;
  return self;
}

- (id<MTLCommandBuffer>)commandBuffer {
  FakeCommandBuffer* commands = [[FakeCommandBuffer alloc] init];
  commands->queue_ = self;
  return [commands autorelease];
}

- (void)addResidencySet:(id<MTLResidencySet>)set {
  if (!set) misuse("no residency set");
  set_ = [static_cast<FakeResidencySet*>(set) retain];
}

- (void)runThrough:(FakeCommandBuffer*)last {
  while (!pending_->empty()) {
    FakeCommandBuffer* commands = pending_->front();
    pending_->erase(pending_->begin());
    [commands run];
    const bool isLast = commands == last;
    [commands release];
    if (isLast) return;
  }
}

- (void)dealloc {
  if (!pending_->empty()) misuse("a queue goes before its work is done");
  delete pending_;
  [set_ release];
  [super dealloc];
}

@end

@implementation FakeCommandBuffer

- (instancetype)init {
  work_ = new std::vector<std::function<void()>>;
  held_ = new std::vector<NSObject*>;
  return self;
}

- (void)open:(FakeEncoder*)encoder {
  if (isCommitted_) misuse("an encoder for a command buffer that was committed");
  if (hasOpenEncoder_) misuse("an encoder while another is open");
  hasOpenEncoder_ = true;
  encoder->commands_ = [self retain];
}

- (id<MTLComputeCommandEncoder>)computeCommandEncoder {
  FakeComputeEncoder* encoder = [[FakeComputeEncoder alloc] init];
  [self open:encoder];
  hasKernels_ = true;
  return [encoder autorelease];
}

- (id<MTLBlitCommandEncoder>)blitCommandEncoder {
  FakeBlitEncoder* encoder = [[FakeBlitEncoder alloc] init];
  [self open:encoder];
  return [encoder autorelease];
}

- (void)commit {
  if (isCommitted_) misuse("a command buffer is committed twice");
  if (hasOpenEncoder_) misuse("a command buffer is committed before endEncoding");
  isCommitted_ = true;
  queue_->pending_->push_back([self retain]);
}

- (void)run {
  if (hasKernels_ && ++command_buffers == fake_metal::options().fail_commands) {
    status_ = MTLCommandBufferStatusError;
    code_ = fake_metal::options().fail_code;
    // Metal does not run what was committed before the failure was known.
    for (FakeCommandBuffer* later : *queue_->pending_) later->isIgnored_ = true;
    return;
  }
  if (isIgnored_) {
    status_ = MTLCommandBufferStatusError;
    code_ = kIgnored;
    return;
  }
  if (fake_metal::options().trace == 2) std::fprintf(stderr, "fake Metal runs a command buffer\n");
  for (const std::function<void()>& each : *work_) each();
  status_ = MTLCommandBufferStatusCompleted;
}

- (void)waitUntilCompleted {
  if (!isCommitted_) misuse("waiting for a command buffer that was never committed");
  if (status_ == 0) [queue_ runThrough:self];
}

// Each command buffer counts as a microsecond.
- (double)GPUStartTime {
  return status_ == MTLCommandBufferStatusCompleted ? 1e-6 : 0;
}

- (double)GPUEndTime {
  return status_ == MTLCommandBufferStatusCompleted ? 2e-6 : 0;
}

- (NSUInteger)status {
  return status_;
}

- (NSError*)error {
  if (status_ != MTLCommandBufferStatusError) return nullptr;
  return [FakeError errorWithCode:static_cast<NSInteger>(code_) text:text_of(code_)];
}

- (void)dealloc {
  if (hasOpenEncoder_) misuse("a command buffer is released before endEncoding");
  for (NSObject* object : *held_) [object release];
  delete held_;
  delete work_;
  [super dealloc];
}

@end

@implementation FakeEncoder

- (void)requireOpen {
  if (isEnded_) misuse("encoding after endEncoding");
}

- (void)addWork:(std::function<void()>)work using:(NSObject*)object {
  commands_->held_->push_back([object retain]);
  if (work) commands_->work_->push_back(std::move(work));
}

- (void)endEncoding {
  [self requireOpen];
  isEnded_ = true;
  commands_->hasOpenEncoder_ = false;
}

- (void)dealloc {
  if (!isEnded_) misuse("an encoder is released before endEncoding");
  [commands_ release];
  [super dealloc];
}

@end

@implementation FakeComputeEncoder

- (instancetype)init {
  bindings_ = new std::array<fake_metal::Binding, fake_metal::kBufferIndices>;
  return self;
}

- (void)setComputePipelineState:(id<MTLComputePipelineState>)state {
  [self requireOpen];
  if (!state) misuse("no pipeline");
  pipeline_ = static_cast<FakePipeline*>(state);
  [self addWork:nullptr using:pipeline_];
  // Metal keeps bindings and the length of threadgroup memory. A launch that reads what was set for
  // an earlier one counts as a mistake.
  for (fake_metal::Binding& each : *bindings_) each.is_own = false;
  hasOwnThreadgroupBytes_ = false;
}

- (void)setBuffer:(id<MTLBuffer>)object offset:(NSUInteger)offset atIndex:(NSUInteger)index {
  [self requireOpen];
  auto* buffer = static_cast<FakeBuffer*>(object);
  if (index >= bindings_->size()) misuse("a buffer at index %lu", index);
  if (!buffer) misuse("no buffer at index %lu", index);
  if (offset >= buffer->length_) {
    misuse("offset %lu of a buffer of %lu bytes", offset, buffer->length_);
  }
  [self addWork:nullptr using:buffer];
  (*bindings_)[index] = {buffer, offset, {}, true};
}

- (void)setBytes:(const void*)bytes length:(NSUInteger)length atIndex:(NSUInteger)index {
  [self requireOpen];
  if (index >= bindings_->size()) misuse("bytes at index %lu", index);
  if (length == 0 || length > fake_metal::kMostBytes) misuse("setBytes of %lu bytes", length);
  const auto* begin = static_cast<const char*>(bytes);
  (*bindings_)[index] = {nullptr, 0, {begin, begin + length}, true};
}

- (void)setThreadgroupMemoryLength:(NSUInteger)length atIndex:(NSUInteger)index {
  [self requireOpen];
  if (index != 0 || length == 0 || length % 16 != 0 || length > kMostThreadgroupBytes) {
    misuse("%lu bytes of threadgroup memory at index %lu", length, index);
  }
  threadgroupBytes_ = length;
  hasOwnThreadgroupBytes_ = true;
}

// Checks the bindings of a launch against the kernel's declaration.
- (void)checkBindings:(const emulator::MetalKernel*)kernel {
  const char* name = kernel->name.c_str();
  for (size_t i = 0; i < bindings_->size(); ++i) {
    const fake_metal::Binding& binding = (*bindings_)[i];
    if (i >= kernel->arguments.size()) {
      if (binding.is_own) misuse("%s takes no argument %zu", name, i);
      continue;
    }
    const emulator::MetalArgument& argument = kernel->arguments[i];
    if (!binding.is_own) misuse("%s gets no argument %zu", name, i);
    if (argument.bytes != binding.bytes.size()) {
      misuse("%s takes %zu bytes as argument %zu, and gets %zu (0: a buffer)", name,
             argument.bytes, i, binding.bytes.size());
    }
    if (binding.buffer) {
      const auto address = reinterpret_cast<uintptr_t>(binding.buffer->bytes_) + binding.offset;
      if (address % argument.alignment != 0) {
        misuse("%s reads argument %zu at multiples of %zu, which offset %lu is not", name, i,
               argument.alignment, binding.offset);
      }
      if (argument.writable) [self checkApart:kernel argument:i];
    }
  }
}

// A kernel may write one argument only where no other argument begins, since its threadgroups run
// in any order, except for the pairs that kernels are written for.
- (void)checkApart:(const emulator::MetalKernel*)kernel argument:(size_t)written {
  const fake_metal::Binding& to = (*bindings_)[written];
  for (size_t i = 0; i < kernel->arguments.size(); ++i) {
    const fake_metal::Binding& other = (*bindings_)[i];
    if (i == written || other.buffer != to.buffer || other.offset != to.offset) continue;
    const bool is_filler = to.buffer->length_ <= kFillerBytes;
    if (is_filler || may_share(kernel->name, written, i)) continue;
    misuse("%s writes argument %zu, which is also its argument %zu", kernel->name.c_str(), written,
           i);
  }
}

- (void)dispatchThreadgroups:(MTLSize)threadgroups threadsPerThreadgroup:(MTLSize)threads {
  [self requireOpen];
  if (!pipeline_) misuse("a dispatch without a pipeline");
  const emulator::MetalKernel* kernel = pipeline_->kernel_;
  const char* name = kernel->name.c_str();
  [self checkBindings:kernel];
  if (threadgroups.width == 0 || threadgroups.height == 0 || threadgroups.depth == 0) {
    misuse("%s is dispatched with no threadgroups", name);
  }
  const NSUInteger n_threads = threads.width * threads.height * threads.depth;
  if (n_threads == 0 || n_threads > fake_metal::options().max_threads) {
    misuse("%s is dispatched with %lu threads a threadgroup", name, n_threads);
  }
  if (kernel->takes_threadgroup_memory && !hasOwnThreadgroupBytes_) {
    misuse("%s gets no threadgroup memory", name);
  }
  const NSUInteger declared = [pipeline_ staticThreadgroupMemoryLength];
  if (declared + threadgroupBytes_ > kMostThreadgroupBytes) {
    misuse("%s declares %lu bytes of threadgroup memory, and %lu more are set", name, declared,
           threadgroupBytes_);
  }
  const auto dim = [](MTLSize size) {
    return emulator::Dim3{static_cast<unsigned>(size.width), static_cast<unsigned>(size.height),
                          static_cast<unsigned>(size.depth)};
  };
  const NSUInteger memory = kernel->takes_threadgroup_memory ? threadgroupBytes_ : 0;
  const emulator::MetalLaunch shape{dim(threadgroups), dim(threads), memory};
  [self addWork:[kernel, shape, bindings = *bindings_] {
    std::vector<void*> buffers;
    for (const fake_metal::Binding& each : bindings) {
      buffers.push_back(each.buffer ? each.buffer->bytes_ + each.offset
                                    : const_cast<char*>(each.bytes.data()));
    }
    note_run(kernel->name, shape);
    kernel->launch(shape, buffers.data());
  } using:pipeline_];
}

- (void)dealloc {
  delete bindings_;
  [super dealloc];
}

@end

@implementation FakeBlitEncoder

- (void)checkRange:(FakeBuffer*)buffer offset:(NSUInteger)offset size:(NSUInteger)size {
  [self requireOpen];
  if (!buffer) misuse("no buffer to copy");
  if (size == 0 || size % 4 != 0 || offset % 4 != 0) {
    misuse("%lu bytes from %lu are no whole words", size, offset);
  }
  if (offset > buffer->length_ || size > buffer->length_ - offset) {
    misuse("%lu bytes from %lu of a buffer of %lu", size, offset, buffer->length_);
  }
}

- (void)copyFromBuffer:(id<MTLBuffer>)source
          sourceOffset:(NSUInteger)sourceOffset
              toBuffer:(id<MTLBuffer>)destination
     destinationOffset:(NSUInteger)destinationOffset
                  size:(NSUInteger)size {
  auto* from = static_cast<FakeBuffer*>(source);
  auto* to = static_cast<FakeBuffer*>(destination);
  [self checkRange:from offset:sourceOffset size:size];
  [self checkRange:to offset:destinationOffset size:size];
  const bool isApart =
      sourceOffset + size <= destinationOffset || destinationOffset + size <= sourceOffset;
  if (from == to && !isApart) misuse("a copy onto itself");
  [self addWork:nullptr using:from];
  [self addWork:[=] {
    std::memcpy(to->bytes_ + destinationOffset, from->bytes_ + sourceOffset, size);
  } using:to];
}

- (void)fillBuffer:(id<MTLBuffer>)object range:(NSRange)range value:(unsigned char)value {
  auto* buffer = static_cast<FakeBuffer*>(object);
  [self checkRange:buffer offset:range.location size:range.length];
  [self addWork:[=] { std::memset(buffer->bytes_ + range.location, value, range.length); }
          using:buffer];
}

@end
