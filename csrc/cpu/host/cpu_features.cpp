#include "processor.h"

#include <algorithm>

#include "../../common/error.h"

#if defined(__x86_64__)
#include <cpuid.h>
#if defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif
#elif defined(__aarch64__) && defined(__linux__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#elif defined(__aarch64__) && defined(__APPLE__)
#include <sys/sysctl.h>
#endif

namespace forge::cpu {

namespace {

#if defined(__x86_64__)

// Some compilers cannot detect F16C.
bool has_f16c() {
  unsigned eax, ebx, ecx, edx;
  return __get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0 && (ecx & bit_F16C) != 0;
}

// A bit of leaf 7.1, which some compilers cannot detect.
bool has_extension(unsigned bit) {
  unsigned eax, ebx, ecx, edx;
  return __get_cpuid_count(7, 1, &eax, &ebx, &ecx, &edx) != 0 && (eax & 1u << bit) != 0;
}

// Asks the system for the tiles of AMX. Linux saves their state only for processes that ask, and
// refuses if a signal stack is too small for it.
bool may_use_tiles() {
#if defined(__linux__)
  constexpr int kRequestPermission = 0x1023;  // ARCH_REQ_XCOMP_PERM
  constexpr int kTileData = 18;               // XFEATURE_XTILE_DATA
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
#else
  return false;
#endif
}

// AMX, in leaf 7.
void detect_tiles(std::vector<std::string>& found) {
  unsigned eax, ebx, ecx, edx;
  if (__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) == 0 || (edx & 1u << 24) == 0) return;
  if (!may_use_tiles()) return;
  found.emplace_back("amx-tile");
  if ((edx & 1u << 25) != 0) found.emplace_back("amx-int8");
  if ((edx & 1u << 22) != 0) found.emplace_back("amx-bf16");
}

std::vector<std::string> detect() {
  std::vector<std::string> found;
  // The detection of the compiler also checks that the system saves the wide registers.
#define FORGE_DETECT(feature) \
  if (__builtin_cpu_supports(feature)) found.emplace_back(feature)
  FORGE_DETECT("avx2");
  FORGE_DETECT("fma");
  if (has_f16c()) found.emplace_back("f16c");
  FORGE_DETECT("bmi2");
  if (has_extension(4)) found.emplace_back("avxvnni");
  FORGE_DETECT("avx512f");
  FORGE_DETECT("avx512bw");
  FORGE_DETECT("avx512dq");
  FORGE_DETECT("avx512vl");
  FORGE_DETECT("avx512vnni");
#undef FORGE_DETECT
  if (has_extension(5)) found.emplace_back("avx512bf16");
  detect_tiles(found);
  return found;
}

#elif defined(__aarch64__)

#if defined(__APPLE__)
bool has_apple_feature(const char* name) {
  int value = 0;
  size_t size = sizeof value;
  return sysctlbyname(name, &value, &size, nullptr, 0) == 0 && value != 0;
}
#endif

std::vector<std::string> detect() {
  std::vector<std::string> found = {"neon"};
#if defined(__linux__)
  const unsigned long capabilities = getauxval(AT_HWCAP);
  if ((capabilities & HWCAP_ASIMDDP) != 0) found.emplace_back("dotprod");
  if ((capabilities & HWCAP_ASIMDHP) != 0) found.emplace_back("fp16");
  const unsigned long more = getauxval(AT_HWCAP2);
  if ((more & HWCAP2_I8MM) != 0) found.emplace_back("i8mm");
  if ((more & HWCAP2_BF16) != 0) found.emplace_back("bf16");
#elif defined(__APPLE__)
  // Every Apple processor that runs macOS has both.
  found.insert(found.end(), {"dotprod", "fp16"});
  if (has_apple_feature("hw.optional.arm.FEAT_I8MM")) found.emplace_back("i8mm");
  if (has_apple_feature("hw.optional.arm.FEAT_BF16")) found.emplace_back("bf16");
#endif
  return found;
}

#else

std::vector<std::string> detect() { return {}; }

#endif

bool has_all(std::initializer_list<const char*> needed) {
  const std::vector<std::string>& features = cpu_features();
  return std::all_of(needed.begin(), needed.end(), [&](const char* feature) {
    return std::find(features.begin(), features.end(), feature) != features.end();
  });
}

}  // namespace

const std::vector<std::string>& cpu_features() {
  static const std::vector<std::string> features = detect();
  return features;
}

std::vector<const KernelTable*> available_kernels() {
  std::vector<const KernelTable*> tables;
#if defined(__x86_64__)
  const bool avx2 = has_all({"avx2", "fma", "f16c", "bmi2"});
  const bool avx512 = avx2 && has_all({"avx512f", "avx512bw", "avx512dq", "avx512vl"});
  if (avx512 && has_all({"avx512vnni"})) {
#if defined(__linux__)
    if (has_all({"avx512bf16", "amx-tile", "amx-int8", "amx-bf16"})) {
      tables.push_back(&kernels_avx512_amx());
    }
#endif
    if (has_all({"avx512bf16"})) tables.push_back(&kernels_avx512_bf16());
    tables.push_back(&kernels_avx512());
  }
  if (avx512) tables.push_back(&kernels_avx512_bw());
  if (avx2 && has_all({"avxvnni"})) tables.push_back(&kernels_avx2_vnni());
  if (avx2) tables.push_back(&kernels_avx2());
#elif defined(__aarch64__)
  if (has_all({"dotprod", "fp16"})) {
    if (has_all({"i8mm", "bf16"})) tables.push_back(&kernels_neon_bf16());
    if (has_all({"i8mm"})) tables.push_back(&kernels_neon_i8mm());
    tables.push_back(&kernels_neon_dot());
  }
#endif
  tables.push_back(&kernels_portable());
  return tables;
}

const KernelTable& with_products(const KernelTable& kernels, uint32_t products) {
  using Kernels = const KernelTable& (*)();
  struct Choice {
    Kernels automatic, f32, bf16;
  };
  static constexpr Choice kChoices[] = {
#if defined(__x86_64__)
#if defined(__linux__)
      {kernels_avx512_amx, kernels_avx512_amx_f32, kernels_avx512_amx_f16},
#endif
      {kernels_avx512_bf16, kernels_avx512, kernels_avx512_bf16_f16},
#elif defined(__aarch64__)
      {kernels_neon_bf16, kernels_neon_i8mm, kernels_neon_bf16_f16},
#else
      {kernels_portable, kernels_portable, nullptr},
#endif
  };
  for (const Choice& choice : kChoices) {
    // Other processors' tables are not even made, as that takes their instructions.
    if (!kernels.rounds || &choice.automatic() != &kernels) continue;
    if (products == FORGE_PRODUCTS_F32) return choice.f32();
    if (products == FORGE_PRODUCTS_BF16 && choice.bf16) return choice.bf16();
  }
  if (products != FORGE_PRODUCTS_BF16) return kernels;
  fail(FORGE_UNSUPPORTED, "the CPU's kernels \"", kernels.name,
       "\" have no products of BF16; those of AVX512-BF16, AMX and Arm's FEAT_BF16 have");
}

const KernelTable& choose_kernels(std::string_view name) {
  const std::vector<const KernelTable*> tables = available_kernels();
  std::string valid;
  for (const KernelTable* table : tables) {
    if (name.empty() || name == table->name) return *table;
    valid += std::string(valid.empty() ? "\"" : ", \"") + table->name + "\"";
  }
  fail(FORGE_INVALID_ARGUMENT, "the CPU device has no kernels \"", name,
       "\" on this machine; valid are ", valid);
}

}  // namespace forge::cpu
