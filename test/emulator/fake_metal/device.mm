#include "device.h"

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <map>
#include <mutex>
#include <thread>

#include "commands.h"

namespace {

std::atomic<uint64_t> allocated = 0, allocations = 0, libraries = 0, pipelines = 0;

std::mutex device_mutex;
FakeDevice* system_device = nullptr;

bool is_due(std::atomic<uint64_t>& counter, uint64_t failing) { return ++counter == failing; }

// The kernel with a function's name: defined in a source, or a template instance that the source
// requests. Null if there is none.
const emulator::MetalKernel* kernel_in(const std::string& source, const std::string& function) {
  const std::string line = "\nINSTANTIATE(" + function + ", ";
  const size_t at = source.find(line);
  if (at != std::string::npos) {
    const size_t begin = at + line.size();
    return emulator::find_metal_kernel(source.substr(begin, source.find(")\n", begin) - begin));
  }
  if (source.find("void " + function + "(") == std::string::npos) return nullptr;
  return emulator::find_metal_kernel(function);
}

// Destroyed after the exit handlers of the backend, which must have ended all calls.
class End {
 public:
  ~End() {
    has_come_ = true;
    std::this_thread::sleep_for(std::chrono::milliseconds(fake_metal::options().slow_exit_ms));
  }
  bool has_come() const { return has_come_; }

 private:
  std::atomic<bool> has_come_ = false;
};

const End the_end;

// Prints a source's hash, FNV-1a, if the program is traced.
void note_source(const std::string& text) {
  if (fake_metal::options().trace == 0) return;
  uint64_t hash = 0xcbf29ce484222325;
  for (const char c : text) hash = (hash ^ static_cast<uint8_t>(c)) * 0x100000001b3;
  std::fprintf(stderr, "fake Metal compiles %016llx\n", static_cast<unsigned long long>(hash));
}

// Bytes of a kernel's own threadgroup memory, measured once.
NSUInteger declared_bytes(const emulator::MetalKernel* kernel) {
  static std::mutex mutex;
  static std::map<const emulator::MetalKernel*, NSUInteger> known;
  const std::lock_guard lock(mutex);
  const auto found = known.find(kernel);
  if (found != known.end()) return found->second;
  return known[kernel] = kernel->static_threadgroup_bytes();
}

}  // namespace

@implementation FakeBuffer

- (void*)contents {
  if (isPrivate_) fake_metal::misuse("the CPU asks for the contents of a private buffer");
  return bytes_;
}

- (NSUInteger)length {
  return length_;
}

- (void)dealloc {
  allocated -= length_;
  delete memory_;
  [super dealloc];
}

@end

@implementation FakeFunction
@end

@implementation FakePipeline

- (NSUInteger)maxTotalThreadsPerThreadgroup {
  return fake_metal::options().max_threads;
}

- (NSUInteger)staticThreadgroupMemoryLength {
  return declaredBytes_;
}

- (NSUInteger)threadExecutionWidth {
  return 32;
}

@end

@interface FakeCompileOptions : MTLCompileOptions {
 @public
  bool isFast_;
  NSUInteger version_;
}
@end

@implementation MTLCompileOptions

+ (instancetype)alloc {
  return self == [MTLCompileOptions class] ? [FakeCompileOptions alloc] : [super alloc];
}

- (void)setFastMathEnabled:(BOOL)enabled {
}

- (void)setLanguageVersion:(NSUInteger)version {
}

@end

@implementation FakeCompileOptions

- (instancetype)init {
  isFast_ = true;
  return self;
}

- (void)setFastMathEnabled:(BOOL)enabled {
  isFast_ = enabled;
}

- (void)setLanguageVersion:(NSUInteger)version {
  version_ = version;
}

@end

@implementation FakeLibrary

- (id<MTLFunction>)newFunctionWithName:(NSString*)name {
  const emulator::MetalKernel* kernel = kernel_in(*source_, [name UTF8String]);
  if (!kernel) return nullptr;
  FakeFunction* function = [[FakeFunction alloc] init];
  function->kernel_ = kernel;
  return function;
}

- (void)dealloc {
  delete source_;
  [super dealloc];
}

@end

@implementation MTLResidencySetDescriptor
@end

@implementation FakeResidencySet

- (instancetype)init {
  added_ = new std::set<NSObject*>;
  return self;
}

- (void)addAllocation:(id<MTLAllocation>)allocation {
  auto* object = static_cast<NSObject*>(allocation);
  if (!added_->insert(object).second) fake_metal::misuse("a buffer joins a residency set twice");
  [object retain];
  hasChanges_ = true;
}

- (void)removeAllocation:(id<MTLAllocation>)allocation {
  auto* object = static_cast<NSObject*>(allocation);
  if (added_->erase(object) == 0) fake_metal::misuse("a buffer leaves another residency set");
  [object release];
  hasChanges_ = true;
}

- (void)commit {
  hasChanges_ = false;
}

- (void)requestResidency {
  if (the_end.has_come()) fake_metal::misuse("residency is requested while the process ends");
  if (hasChanges_) fake_metal::misuse("residency is requested before changes are committed");
  if (fake_metal::options().trace == 0) return;
  std::fprintf(stderr, "fake Metal keeps %zu buffers resident\n", added_->size());
}

- (void)endResidency {
}

- (void)dealloc {
  if (!added_->empty()) {
    fake_metal::misuse("%zu buffers are left in a residency set", added_->size());
  }
  delete added_;
  [super dealloc];
}

@end

@implementation FakeDevice

- (NSString*)name {
  return [NSString stringWithUTF8String:"Emulated Apple GPU"];
}

- (unsigned long long)recommendedMaxWorkingSetSize {
  return fake_metal::options().memory_mib << 20;
}

- (NSUInteger)currentAllocatedSize {
  return allocated + (fake_metal::options().taken_mib << 20);
}

- (NSUInteger)maxBufferLength {
  return fake_metal::options().buffer_kib << 10;
}

- (NSUInteger)maxThreadgroupMemoryLength {
  return 32 << 10;
}

- (BOOL)supportsFamily:(NSInteger)family {
  return family <= static_cast<NSInteger>(fake_metal::options().family);
}

- (void)setShouldMaximizeConcurrentCompilation:(BOOL)maximize {
}

- (id<MTLCommandQueue>)newCommandQueue {
  return [[FakeQueue alloc] init];
}

- (id<MTLResidencySet>)newResidencySetWithDescriptor:(MTLResidencySetDescriptor*)descriptor
                                               error:(NSError**)error {
  if (!descriptor) fake_metal::misuse("a residency set without a descriptor");
  return fake_metal::options().residency == 0 ? nullptr : [[FakeResidencySet alloc] init];
}

- (id<MTLBuffer>)newBufferWithLength:(NSUInteger)length options:(NSUInteger)options {
  if (length == 0) fake_metal::misuse("a buffer of 0 bytes");
  if (options != MTLResourceStorageModeShared && options != MTLResourceStorageModePrivate) {
    fake_metal::misuse("a buffer with the unknown options %lu", options);
  }
  if (length > [self maxBufferLength]) return nullptr;
  if (is_due(allocations, fake_metal::options().fail_allocation)) return nullptr;
  FakeBuffer* buffer = [[FakeBuffer alloc] init];
  buffer->memory_ = new fake_metal::GuardedMemory(length);
  buffer->bytes_ = buffer->memory_->data();
  buffer->length_ = length;
  buffer->isPrivate_ = options == MTLResourceStorageModePrivate;
  allocated += length;
  return buffer;
}

- (id<MTLBuffer>)newBufferWithBytesNoCopy:(void*)bytes
                                   length:(NSUInteger)length
                                  options:(NSUInteger)options
                              deallocator:(void (^)(void*, NSUInteger))deallocator {
  const auto page = fake_metal::page_bytes();
  if (reinterpret_cast<uintptr_t>(bytes) % page != 0 || length % page != 0 || length == 0) {
    fake_metal::misuse("%lu bytes at %p are no whole pages", length, bytes);
  }
  if (options != MTLResourceStorageModeShared || deallocator) {
    fake_metal::misuse("pages of the caller's must be shared, and stay the caller's");
  }
  if (length > [self maxBufferLength]) return nullptr;
  if (is_due(allocations, fake_metal::options().fail_allocation)) return nullptr;
  FakeBuffer* buffer = [[FakeBuffer alloc] init];
  buffer->bytes_ = static_cast<char*>(bytes);
  buffer->length_ = length;
  allocated += length;
  return buffer;
}

- (id<MTLLibrary>)newLibraryWithSource:(NSString*)source
                               options:(MTLCompileOptions*)options
                                 error:(NSError**)error {
  const auto* settings = static_cast<const FakeCompileOptions*>(options);
  if (!settings || settings->isFast_ || settings->version_ != MTLLanguageVersion3_0) {
    fake_metal::misuse("kernels are compiled as Metal 3.0, without fast math");
  }
  const std::string text = [source UTF8String];
  if (text.find("#include \"") != std::string::npos) {
    fake_metal::misuse("a source includes a file, which Metal would not find");
  }
  if (is_due(libraries, fake_metal::options().fail_compile)) {
    *error = [FakeError errorWithCode:3 text:"program_source:1:1: error: injected"];
    return nullptr;
  }
  note_source(text);
  FakeLibrary* library = [[FakeLibrary alloc] init];
  library->source_ = new std::string(text);
  return library;
}

- (id<MTLComputePipelineState>)newComputePipelineStateWithFunction:(id<MTLFunction>)function
                                                             error:(NSError**)error {
  if (!function) fake_metal::misuse("a pipeline without a function");
  if (is_due(pipelines, fake_metal::options().fail_pipeline)) {
    *error = [FakeError errorWithCode:2 text:"Compiler encountered an internal error"];
    return nullptr;
  }
  FakePipeline* pipeline = [[FakePipeline alloc] init];
  pipeline->kernel_ = static_cast<FakeFunction*>(function)->kernel_;
  pipeline->declaredBytes_ = declared_bytes(pipeline->kernel_);
  return pipeline;
}

- (void)dealloc {
  system_device = nullptr;
  fake_metal::require_no_objects_except(self);
  [super dealloc];
}

@end

namespace fake_metal {

uint64_t allocated_bytes() { return allocated; }

}  // namespace fake_metal

__attribute__((visibility("default"))) id<MTLDevice> MTLCreateSystemDefaultDevice(void) {
  const std::lock_guard lock(device_mutex);
  if (fake_metal::options().devices == 0) return nullptr;
  if (system_device) return [system_device retain];
  system_device = [[FakeDevice alloc] init];
  if (fake_metal::options().matrix_places != 0) emulator::use_other_matrix_places();
  return system_device;
}
