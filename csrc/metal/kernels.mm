#include "kernels.h"

#include "../common/error.h"
#include "apple.h"

namespace forge::metal {

namespace {

NSString* string_of(const std::string& text) {
  return [NSString stringWithUTF8String:text.c_str()];
}

std::string text_of(NSError* error) {
  return error ? [[error localizedDescription] UTF8String] : "Metal gives no reason";
}

// Templates need a line for each instance; other kernels need none.
std::string with_instances(std::string text, const std::vector<Kernel*>& kernels) {
  for (const Kernel* kernel : kernels) {
    if (!kernel->name.ends_with('>')) continue;
    text += "INSTANTIATE(" + kernel->function + ", " + kernel->name + ")\n";
  }
  return text;
}

Object compile(id<MTLDevice> device, const std::string& file, const std::string& text) {
  const Object options([[MTLCompileOptions alloc] init]);
  const auto settings = static_cast<MTLCompileOptions*>(options.get());
  // Fast math would change NaN and the order of sums.
  [settings setFastMathEnabled:NO];
  [settings setLanguageVersion:MTLLanguageVersion3_0];
  NSError* error = nullptr;
  Object library([device newLibraryWithSource:string_of(text) options:settings error:&error]);
  // Metal may return a library together with an error that holds only warnings.
  if (!library) fail(FORGE_INTERNAL, "kernels/metal/", file, ".metal: ", text_of(error));
  return library;
}

}  // namespace

void Kernels::load_file(const std::string& file, const std::vector<Kernel*>& kernels) {
  const AutoreleasePool pool;
  id<MTLDevice> device = static_cast<id<MTLDevice>>(device_->handle());
  const Object compiled = compile(device, file, with_instances(source_text(file), kernels));
  id<MTLLibrary> library = static_cast<id<MTLLibrary>>(compiled.get());
  for (Kernel* kernel : kernels) {
    const Object function([library newFunctionWithName:string_of(kernel->function)]);
    if (!function) fail(FORGE_INTERNAL, "kernels/metal/", file, ".metal has no ", kernel->name);
    NSError* error = nullptr;
    Object pipeline([device
        newComputePipelineStateWithFunction:static_cast<id<MTLFunction>>(function.get())
                                      error:&error]);
    if (!pipeline) fail(FORGE_DEVICE_FAILED, "compiling ", kernel->name, ": ", text_of(error));
    id<MTLComputePipelineState> state = static_cast<id<MTLComputePipelineState>>(pipeline.get());
    kernel->max_threads = static_cast<uint32_t>([state maxTotalThreadsPerThreadgroup]);
    kernel->static_threadgroup_bytes = [state staticThreadgroupMemoryLength];
    kernel->pipeline = std::move(pipeline);
  }
}

}  // namespace forge::metal
