// Modules, functions and launches.

#include <elf.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <iterator>
#include <memory>
#include <vector>

#include "../access_trace.h"
#include "../sm90.h"
#include "access_guard.h"
#include "exports.h"
#include "launch_log.h"
#include "options.h"

using namespace fake_driver;

namespace {

// Images of the fake compiler (fake_nvrtc.cpp) begin with this.
constexpr char kFakeImage[] = "forge emulated kernel ";

// The bytes of an image, which is passed without its size.
std::string image_text(const void* image) {
  const char* begin = static_cast<const char*>(image);
  if (std::strncmp(begin, kFakeImage, sizeof kFakeImage - 1) == 0) return begin;
  if (std::memcmp(begin, ELFMAG, SELFMAG) == 0) {
    Elf64_Ehdr header;
    std::memcpy(&header, begin, sizeof header);
    // NVIDIA's compiler places the section headers, or the program headers, last.
    const size_t sections = header.e_shoff + size_t{header.e_shnum} * header.e_shentsize;
    const size_t segments = header.e_phoff + size_t{header.e_phnum} * header.e_phentsize;
    return std::string(begin, std::max(sections, segments));
  }
  return std::strstr(begin, ".version") ? begin : "";
}

// True if the device can run an image of the fake compiler: PTX for an older device or itself, code
// for one of its own generation, or code with instructions of the device alone (sm_90a).
bool has_code_for(const std::string& image) {
  int known = 0;
  const auto architecture = static_cast<int>(options().architecture);
  if (std::sscanf(image.c_str(), "forge emulated kernel compute_%d", &known) == 1) {
    return known <= architecture;
  }
  char feature = ' ';
  if (std::sscanf(image.c_str(), "forge emulated kernel sm_%d%c", &known, &feature) < 1) {
    return true;
  }
  if (feature == 'a') return known == architecture;
  return known / 10 == architecture / 10 && known <= architecture;
}

// The kernels that step_kernel computes: the other lines of an image of the stand-in for NVRTC.
std::vector<const emulator::Kernel*> operations_of(const std::string& image) {
  std::vector<const emulator::Kernel*> operations;
  if (!image.starts_with(kFakeImage)) return operations;
  for (size_t at = image.find('\n'); at != std::string::npos; at = image.find('\n', at + 1)) {
    const std::string name = image.substr(at + 1, image.find('\n', at + 1) - at - 1);
    operations.push_back(emulator::find_kernel(name));
    if (!operations.back()) misuse("an operation of no kernel: %s", name.c_str());
  }
  return operations;
}

// Blocks of a function that a multiprocessor of the device runs at once; two, as for products.
unsigned resident_blocks(unsigned shared_bytes) {
  const auto of_multiprocessor = static_cast<unsigned>(options().max_shared_bytes()) + 1024;
  return std::min(2u, of_multiprocessor / (shared_bytes + 1024));
}

// The result after which a lost device refuses everything, of those that the driver's manual says
// to leave a context unusable.
Result loss_of(const ContextState& context) {
  constexpr Result kLosses[] = {
      kUnknownError,       kEccUncorrectable,   kNvlinkUncorrectable, kContained,
      kIllegalAddress,     kLaunchTimeout,      kContextIsDestroyed,  kAssert,
      kHardwareStackError, kIllegalInstruction, kMisalignedAddress,   kInvalidAddressSpace,
      kInvalidPc,          kLaunchFailed};
  const auto device = static_cast<size_t>(&context - state().contexts.data());
  return kLosses[options().lost_in_turn != 0 ? device % std::size(kLosses) : 0];
}

void run_kernel(ContextState& context, const emulator::Kernel& kernel,
                const emulator::Launch& launch, bool is_early,
                const std::vector<std::string>& arguments) {
  if (context.failure != kSuccess) return;
  if (is_dry_run()) {
    const auto device = static_cast<size_t>(&context - state().contexts.data());
    return log_kernel(device, kernel, launch, is_early, arguments);
  }
  ++context.kernels_run;
  if (is_failing(context, context.kernels_run, options().illegal_address)) {
    context.failure = kIllegalAddress;
    return;
  }
  // Kernels find parameters at addresses of any alignment that their types require.
  struct alignas(TensorMap) Unit {
    char bytes[alignof(TensorMap)];
  };
  std::vector<std::vector<Unit>> aligned;
  std::vector<void*> parameters;
  for (const std::string& argument : arguments) {
    aligned.emplace_back(argument.size() / sizeof(Unit) + 1);
    std::memcpy(aligned.back().data(), argument.data(), argument.size());
    parameters.push_back(aligned.back().data());
  }
  const AccessGuard guard(context, kernel.name.c_str());
  static ContextState* traced = nullptr;
  traced = &context;
  emulator::set_traced_memory([](const void* address) {
    return traced->memory.holds(reinterpret_cast<uint64_t>(address));
  });
  kernel.launch(launch, parameters.data());
  if (is_failing(context, context.kernels_run, options().lost)) context.failure = loss_of(context);
}

}  // namespace

Result cuModuleLoadData(Module* module, const void* image) {
  return with_context([&](ContextState& context) {
    std::string text = image_text(image);
    if (text.empty()) return kInvalidImage;
    if (!has_code_for(text)) return kNoBinaryForGpu;
    for (const ModuleState* known : context.modules) {
      if (options().load_once != 0 && known->image == text) {
        misuse("loaded twice: %s", text.c_str());
      }
    }
    auto* loaded = new ModuleState{std::move(text), {}};
    context.modules.insert(loaded);
    *module = reinterpret_cast<Module>(loaded);
    return kSuccess;
  });
}

Result cuModuleUnload(Module module) {
  const std::lock_guard lock(state().mutex);
  auto* loaded = reinterpret_cast<ModuleState*>(module);
  ContextState* context = current();
  if (!context) return kInvalidContext;
  if (context->modules.erase(loaded) == 0) misuse("a module is unloaded that does not exist");
  for (FunctionState* function : loaded->functions) delete function;
  delete loaded;
  return context->failure;
}

Result cuModuleGetFunction(Function* function, Module module, const char* name) {
  return with_context([&](ContextState& context) {
    auto* loaded = reinterpret_cast<ModuleState*>(module);
    if (!context.modules.contains(loaded)) misuse("a function of no module is asked for");
    const emulator::Kernel* kernel = emulator::find_kernel(name);
    if (!kernel || loaded->image.find(name) == std::string::npos) return kNotFound;
    std::vector<const emulator::Kernel*> operations = operations_of(loaded->image);
    if (kernel->name == "step_kernel" && operations.empty()) {
      misuse("the emulator runs a step kernel of no compiler but its own");
    }
    auto* found = new FunctionState{kernel, &context, std::move(operations)};
    loaded->functions.push_back(found);
    *function = reinterpret_cast<Function>(found);
    return kSuccess;
  });
}

Result cuFuncGetAttribute(int* value, FunctionAttribute attribute, Function function) {
  return with_context([&](ContextState&) {
    const auto* state = reinterpret_cast<FunctionState*>(function);
    switch (attribute) {
      case FunctionAttribute::max_dynamic_shared_bytes:
        *value = state->max_dynamic_shared;
        return kSuccess;
      case FunctionAttribute::static_shared_bytes:
        // Unknown until a block runs; then it counts as dynamic shared memory.
        *value = 0;
        return kSuccess;
      default:
        return kInvalidValue;
    }
  });
}

Result cuFuncSetAttribute(Function function, FunctionAttribute attribute, int value) {
  return with_context([&](ContextState&) {
    auto* state = reinterpret_cast<FunctionState*>(function);
    if (attribute != FunctionAttribute::max_dynamic_shared_bytes || value < 0) {
      return kInvalidValue;
    }
    state->max_dynamic_shared = value;
    return kSuccess;
  });
}

Result cuFuncGetParamInfo(Function function, size_t index, size_t* offset, size_t* bytes) {
  const std::vector<size_t>& sizes =
      reinterpret_cast<FunctionState*>(function)->kernel->param_bytes;
  if (index >= sizes.size()) return kInvalidValue;
  *offset = 0;
  for (size_t i = 0; i <= index; ++i) {
    const size_t alignment = sizes[i] % 8 == 0 ? 8 : 4;
    *offset = (*offset + alignment - 1) / alignment * alignment;
    if (i < index) *offset += sizes[i];
  }
  *bytes = sizes[index];
  return kSuccess;
}

Result cuOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, Function, int,
                                                    size_t shared_bytes) {
  return with_context([&](ContextState&) {
    *blocks = static_cast<int>(resident_blocks(static_cast<unsigned>(shared_bytes)));
    return kSuccess;
  });
}

namespace {

bool has_attribute(const LaunchConfig& config, int id) {
  return std::any_of(config.attributes, config.attributes + config.n_attributes,
                     [&](const LaunchAttribute& each) { return each.id == id && each.value != 0; });
}

// cuLaunchKernel with a driver-style block and grid.
Result launch(const LaunchConfig& config, Function function, void** parameters, void** extra) {
  return with_context([&](ContextState& context) {
    const auto* state = reinterpret_cast<FunctionState*>(function);
    const emulator::Kernel& kernel = *state->kernel;
    const emulator::Dim3 grid = {config.grid_x, config.grid_y, config.grid_z};
    const emulator::Dim3 block = {config.block_x, config.block_y, config.block_z};
    const char* name = kernel.name.c_str();
    const uint64_t threads = uint64_t{block.x} * block.y * block.z;
    if (grid.x == 0 || grid.y == 0 || grid.z == 0 || grid.y > 65535 || grid.z > 65535 ||
        grid.x > 0x7fffffff) {
      misuse("%s: a grid of %u x %u x %u", name, grid.x, grid.y, grid.z);
    }
    if (threads == 0 || threads > 1024) {
      misuse("%s: blocks of %u x %u x %u", name, block.x, block.y, block.z);
    }
    if (config.shared_bytes > static_cast<unsigned>(state->max_dynamic_shared)) {
      misuse("%s: %u bytes of shared memory, %d are allowed", name, config.shared_bytes,
             state->max_dynamic_shared);
    }
    if (extra) misuse("%s: launched with extra options", name);
    if (state->owner != &context) misuse("%s is launched on a device that did not load it", name);
    if (is_failing(context, ++context.launches, options().fail_launch)) return kLaunchFailed;
    StreamQueue& stream = stream_of(context, config.stream);
    if (stream.capture && is_failing(context, ++context.captured, options().fail_capture)) {
      return kOutOfMemory;
    }
    std::vector<std::string> arguments;
    for (size_t i = 0; i < kernel.param_bytes.size(); ++i) {
      arguments.emplace_back(static_cast<const char*>(parameters[i]), kernel.param_bytes[i]);
    }
    require_own_memory(context, name, arguments);
    emulator::Launch shape{grid, block, config.shared_bytes, options().max_shared_bytes()};
    const bool is_early = has_attribute(config, kProgrammaticSerialization);
    const bool is_cooperative = has_attribute(config, kCooperative);
    const unsigned resident = resident_blocks(config.shared_bytes) * options().multiprocessors;
    if (is_cooperative && grid.x * grid.y * grid.z > resident) return kCooperativeLaunchTooLarge;
    if (!state->operations.empty()) {
      if (!is_cooperative) misuse("%s: its blocks wait for others that may not run", name);
      shape.operations = &state->operations;
    }
    if (is_early && !stream.ends_in_kernel) {
      misuse("%s may start early, but follows no kernel", name);
    }
    if (options().early_only && !is_early && stream.ends_in_kernel) return kInvalidValue;
    const auto run = [&context, &kernel, shape, is_early, arguments = std::move(arguments)] {
      run_kernel(context, kernel, shape, is_early, arguments);
    };
    stream.add(run, true);
    return kSuccess;
  });
}

}  // namespace

Result cuLaunchKernel(Function function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                      unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes,
                      Stream stream, void** parameters, void** extra) {
  const LaunchConfig config = {grid_x,  grid_y,       grid_z, block_x, block_y,
                               block_z, shared_bytes, stream, nullptr, 0};
  return launch(config, function, parameters, extra);
}

Result cuLaunchKernelEx(const LaunchConfig* config, Function function, void** parameters,
                        void** extra) {
  for (unsigned i = 0; i < config->n_attributes; ++i) {
    // Only these attributes are supported; early launches only from SM90 on.
    const LaunchAttribute& attribute = config->attributes[i];
    if (attribute.id != kCooperative &&
        (attribute.id != kProgrammaticSerialization || options().architecture < 90)) {
      return kInvalidValue;
    }
  }
  return launch(*config, function, parameters, extra);
}

Result cuTensorMapEncodeTiled(TensorMap* map, int type, uint32_t dimensions, void* data,
                              const uint64_t* sizes, const uint64_t* strides, const uint32_t* box,
                              const uint32_t* steps, int interleave, int swizzle, int,
                              int fill) {
  return with_context([&](ContextState&) {
    if (options().refuse_tensor_maps != 0) return kInvalidValue;
    if (reinterpret_cast<uintptr_t>(map) % alignof(TensorMap) != 0) {
      misuse("a misaligned tensor map");
    }
    if (type != kTensorBfloat16 || dimensions != 4 || interleave != 0 || fill != 0 ||
        swizzle != kSwizzle128Bytes) {
      misuse("a tensor map that the emulator lacks");
    }
    for (int i = 0; i < 4; ++i) {
      if (steps[i] != 1) misuse("a tensor map that skips elements");
    }
    emulator::sm90::TensorBox described;
    if (box[2] != 1 || box[3] != 1 ||
        !emulator::sm90::describe_box(described, data, {sizes[0], sizes[1], sizes[2], sizes[3]},
                                      {strides[0], strides[1], strides[2]},
                                      static_cast<int32_t>(box[0]), static_cast<int32_t>(box[1]))) {
      return kInvalidValue;
    }
    static_assert(sizeof described <= sizeof *map);
    std::memset(map->opaque, 0, sizeof map->opaque);
    std::memcpy(map->opaque, &described, sizeof described);
    return kSuccess;
  });
}
