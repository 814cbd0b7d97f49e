#include "step_kernel.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <set>
#include <string_view>

#include "../../kernels/arguments/cuda_arguments.h"
#include "../gpu/kernel_sources.h"

namespace forge::cuda {

namespace {

using StepTable = cuda_args::StepTable<DevicePointer>;
using cuda_args::kStepThreads;
using cuda_args::StepOperation;

// Blocks on a multiprocessor. With registers for two, as products have alone, 40 to 680 bytes of
// them would be spilled; one takes up to 201 registers.
constexpr uint32_t kStepResident = 1;
// Operations that are worth a kernel.
constexpr size_t kFewestOperations = 4;
// The first CUDA whose kernels take parameters of more than 4 KB.
constexpr int kLargeParameters = 12010;
// The name of the source that the library writes, which no file that it includes has: NVRTC takes
// an include of a source's own name for a mistake.
constexpr char kSourceName[] = "step_kernel.cu";

// Files of kernels whose parameters are ARGUMENTs, and which a block of few registers computes.
constexpr std::array kFiles = {
    "batched_decode_attention.cu", "convert_rows.cu", "decode_gemm.cu", "embed.cu",
    "gated_decode_gemm.cu", "gather_outputs.cu", "glu.cu", "rms_norm.cu",
    "fused_residual_rms_norm.cu", "rope_append.cu", "rope_table.cu",
};

// Returns the launch of an entry if the kernel can compute it, else null.
const Launch* operation(const PlanEntry& entry) {
  const auto* launch = std::get_if<Launch>(&entry);
  if (!launch || launch->block() > kStepThreads) return nullptr;
  const auto is_file = [&](const char* file) { return launch->kernel().file == file; };
  if (std::ranges::none_of(kFiles, is_file)) return nullptr;
  const std::string& instance = launch->name();
  // Types in file blocks, and heads of 256, take the registers of two blocks.
  const auto names = [&](const char* part) { return instance.find(part) != std::string::npos; };
  if (names("Blocks<") || names(", 256") || names("Masked") || names("merge_")) return nullptr;
  return launch;
}

// Calls visit(first, end) for each range of launches before the sampling that becomes a launch, as
// long as a table takes them, and other(i) for each of the other entries.
template <class Visit, class Other>
void for_each_range(const LaunchPlan& plan, const Visit& visit, const Other& other) {
  const auto& entries = plan.entries;
  for (size_t i = 0; i < entries.size();) {
    size_t end = i, bytes = 0;
    for (; end < plan.sampling_begin; ++end) {
      const Launch* launch = operation(entries[end]);
      if (!launch) break;
      const size_t more = sizeof(StepOperation) + launch->parameters().size() + 8;
      if (bytes + more > sizeof(StepTable::words)) break;
      bytes += more;
    }
    if (end - i >= kFewestOperations) {
      visit(i, end);
      i = end;
    } else {
      for (end = std::max(end, i + 1); i < end; ++i) other(i);
    }
  }
}

std::vector<const Kernel*> kernels_of(const LaunchPlan& plan) {
  std::vector<const Kernel*> kernels;
  for_each_range(
      plan,
      [&](size_t first, size_t end) {
        for (size_t i = first; i < end; ++i) {
          const Kernel* kernel = &operation(plan.entries[i])->kernel();
          if (std::ranges::find(kernels, kernel) == kernels.end()) kernels.push_back(kernel);
        }
      },
      [](size_t) {});
  // One source for plans that use the same kernels in another order.
  std::ranges::sort(kernels, {}, [](const Kernel* kernel) { return kernel->instance; });
  return kernels;
}

// The headers that a file includes.
std::vector<std::string> includes_of(std::string_view text) {
  constexpr std::string_view kInclude = "\n#include \"";
  std::vector<std::string> names;
  for (size_t at = 0; (at = text.find(kInclude, at)) != std::string_view::npos;) {
    at += kInclude.size();
    names.emplace_back(text.substr(at, text.find('"', at) - at));
  }
  return names;
}

// The source of the kernel. Bodies become functions of the device; each file has a namespace, since
// files have functions of the same names.
std::string source_of(const std::vector<const Kernel*>& kernels) {
  std::set<std::string> files;
  for (const Kernel* kernel : kernels) files.insert(kernel->file);
  std::string text = "#define FORGE_STEP\n#include \"step_kernel.cuh\"\n";
  std::set<std::string> headers;
  for (const std::string& file : files) {
    for (const std::string& name : includes_of(kernel_source(file.c_str()).text)) {
      if (headers.insert(name).second) text += "#include \"" + name + "\"\n";
    }
  }
  text +=
      "#undef __global__\n#define __global__ static __device__ __forceinline__\n"
      "#undef __launch_bounds__\n#define __launch_bounds__(...)\n";
  std::string cases;
  size_t n_files = 0;
  for (const std::string& file : files) {
    const std::string space = "file_" + std::to_string(n_files++);
    text += "namespace " + space + " {\n#include \"" + file + "\"\n";
    for (size_t i = 0; i < kernels.size(); ++i) {
      if (kernels[i]->file != file) continue;
      const std::string number = std::to_string(i);
      text += "DEVICE void run_" + number + "(const u64* a) {\n  Operation<&" +
              kernels[i]->instance + ">::call(a);\n}\n";
      cases += "      case " + number + ": return " + space + "::run_" + number + "(a);\n";
    }
    text += "}\n";
  }
  return text +
         "#undef __global__\n#undef __launch_bounds__\n"
         "extern \"C\" __attribute__((global)) void __attribute__((launch_bounds(" +
         std::to_string(kStepThreads) + ", " + std::to_string(kStepResident) +
         ")))\n    step_kernel(const __grid_constant__ StepTable table) {\n"
         "  run_step(table, [](u32 kernel, const u64* a) {\n    switch (kernel) {\n" +
         cases + "    }\n  });\n}\n";
}

}  // namespace

// Off by default: no GPU has run it, and blocks that wait in vain would hang a device. By the
// instructions of the machine code (a table in bench/README.md), it gains most with the smallest
// models, and less on an H100, whose launches start early without it. Steps of several tokens have
// larger blocks. Once bench/gpu_check.ts has measured it, small models can have it by default.
bool uses_step_kernel(const Device& device, const StepShape& shape) {
  return device.keeps_blocks() && shape.prefill_tokens == 0 && shape.tokens == 1;
}

const Kernel* step_kernel_of(const LaunchPlan& plan, CudaDevice& device) {
  if (!device.device().api().launch_with ||
      device.device().driver().version() < kLargeParameters ||
      !device.kernels.takes_large_parameters()) {
    return nullptr;
  }
  const std::vector<const Kernel*> kernels = kernels_of(plan);
  if (kernels.empty()) return nullptr;
  return &device.kernels.get(kSourceName, "step_kernel", source_of(kernels));
}

uint64_t step_kernel_counters(const LaunchPlan& plan) {
  uint64_t counters = 0;
  for_each_range(
      plan, [&](size_t first, size_t end) { counters += end - first + 1; }, [](size_t) {});
  return counters;
}

std::optional<LaunchPlan> with_step_kernel(const LaunchPlan& plan, const Kernel& kernel,
                                           const Device& device, DevicePointer counters) {
  uint32_t shared_bytes = 0;
  for (const PlanEntry& entry : plan.entries) {
    if (const Launch* launch = operation(entry)) {
      shared_bytes = std::max(shared_bytes, launch->shared_bytes());
    }
  }
  int resident = 0;
  device.check(device.api().occupancy(&resident, kernel.function, kStepThreads, shared_bytes),
               "cuOccupancyMaxActiveBlocksPerMultiprocessor");
  if (resident == 0) return std::nullopt;
  const Grid grid{static_cast<uint32_t>(resident) * device.properties().multiprocessors};
  const std::vector<const Kernel*> kernels = kernels_of(plan);
  LaunchPlan result;
  const auto keep = [&](size_t i) {
    if (i == plan.sampling_begin) result.sampling_begin = result.entries.size();
    result.entries.push_back(plan.entries[i]);
  };
  const auto replace = [&](size_t first, size_t end) {
    StepTable table{};
    table.arrivals = counters;
    table.n_operations = static_cast<uint32_t>(end - first);
    auto* bytes = reinterpret_cast<uint8_t*>(table.words);
    size_t at = table.n_operations * sizeof(StepOperation);
    for (size_t i = first; i < end; ++i) {
      const Launch& launch = *operation(plan.entries[i]);
      const auto number = std::ranges::find(kernels, &launch.kernel()) - kernels.begin();
      const StepOperation op = {.kernel = static_cast<uint32_t>(number),
                                .threads = launch.block(),
                                .x = launch.grid().x,
                                .y = launch.grid().y,
                                .z = launch.grid().z,
                                .arguments = static_cast<uint32_t>(at)};
      std::memcpy(bytes + (i - first) * sizeof op, &op, sizeof op);
      std::memcpy(bytes + at, launch.parameters().data(), launch.parameters().size());
      at += padded_to(launch.parameters().size(), sizeof(uint64_t));
    }
    counters += (end - first + 1) * sizeof(uint32_t);
    result.entries.emplace_back(std::in_place_type<Launch>, kernel, grid, kStepThreads,
                                shared_bytes, table);
    std::get<Launch>(result.entries.back()).keep_blocks();
  };
  for_each_range(plan, replace, keep);
  if (plan.sampling_begin == plan.entries.size()) result.sampling_begin = result.entries.size();
  return result;
}

}  // namespace forge::cuda
