// A stand-in for cuBLASLt: computes with plain loops in stream order, and ends the program for
// calls that the library would reject or not survive.

#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <vector>

#include "../../../csrc/common/float16.h"
#include "../../../csrc/cuda/cublaslt_api.h"

using namespace forge::cuda;

#define FORGE_FAKE_DECLARE(member, symbol, result, parameters) \
  extern "C" __attribute__((visibility("default"))) result symbol parameters;
FORGE_CUBLASLT_FUNCTIONS(FORGE_FAKE_DECLARE)
#undef FORGE_FAKE_DECLARE

namespace {

constexpr LtStatus kOk = 0, kInvalid = 7, kNotSupported = 15;
constexpr size_t kWorkspaceBytes = 1024;

struct Desc {
  int transposed_a = 0;
};
struct Layout {
  int type;
  uint64_t rows, cols;
  int64_t stride;
};
struct Preference {
  uint64_t workspace = 0;
  std::map<int, uint32_t> alignments;
};

[[noreturn]] void misuse(const char* what) {
  std::fprintf(stderr, "fake cuBLASLt: %s\n", what);
  std::abort();
}

template <class T, class Handle>
T& the(Handle handle) {
  if (!handle) misuse("a null handle");
  return *reinterpret_cast<T*>(handle);
}

// The numbers of a column of a matrix.
void read_column(const void* data, const Layout& layout, uint64_t column, float* to) {
  const uint16_t* from =
      static_cast<const uint16_t*>(data) + column * static_cast<uint64_t>(layout.stride);
  for (uint64_t i = 0; i < layout.rows; ++i) {
    to[i] = layout.type == kLtBrain16 ? forge::bf16_to_f32(from[i]) : forge::f16_to_f32(from[i]);
  }
}

// The problem that an algorithm was chosen for; it must not be used for another one.
struct Chosen {
  uint64_t m, n, k, workspace;
  uint64_t alignment_a, alignment_d;
};
static_assert(sizeof(Chosen) <= sizeof(LtAlgorithm));

void run_on_stream(void* stream, std::function<void()> work) {
  using Launch = int (*)(void* stream, void (*function)(void*), void* data);
  static const Launch launch = [] {
    const char* path = std::getenv("FORGE_CUDA_DRIVER");
    void* library = path ? dlopen(path, RTLD_NOW | RTLD_NOLOAD) : nullptr;
    return library ? reinterpret_cast<Launch>(dlsym(library, "cuLaunchHostFunc")) : nullptr;
  }();
  if (!launch) misuse("there is no driver");
  // Never freed, since a graph may replay it until the process ends.
  static std::mutex mutex;
  static std::deque<std::function<void()>> kept;
  const std::lock_guard lock(mutex);
  kept.push_back(std::move(work));
  launch(stream, [](void* data) { (*static_cast<std::function<void()>*>(data))(); }, &kept.back());
}

}  // namespace

size_t cublasLtGetVersion() { return 130000; }

LtStatus cublasLtCreate(LtHandle* handle) {
  *handle = reinterpret_cast<LtHandle>(new int);
  return kOk;
}

LtStatus cublasLtDestroy(LtHandle handle) {
  delete &the<int>(handle);
  return kOk;
}

LtStatus cublasLtMatmulDescCreate(LtMatmulDesc* desc, int compute_type, int scale_type) {
  if (compute_type != kLtCompute32 || scale_type != kLtReal32) return kNotSupported;
  *desc = reinterpret_cast<LtMatmulDesc>(new Desc);
  return kOk;
}

LtStatus cublasLtMatmulDescDestroy(LtMatmulDesc desc) {
  delete &the<Desc>(desc);
  return kOk;
}

LtStatus cublasLtMatmulDescSetAttribute(LtMatmulDesc desc, int attribute, const void* value,
                                        size_t bytes) {
  if (attribute != kLtDescTransA || bytes != sizeof(int)) return kInvalid;
  std::memcpy(&the<Desc>(desc).transposed_a, value, bytes);
  return kOk;
}

LtStatus cublasLtMatrixLayoutCreate(LtMatrixLayout* layout, int type, uint64_t rows, uint64_t cols,
                                    int64_t stride) {
  if (stride < static_cast<int64_t>(rows)) return kInvalid;
  *layout = reinterpret_cast<LtMatrixLayout>(new Layout{type, rows, cols, stride});
  return kOk;
}

LtStatus cublasLtMatrixLayoutDestroy(LtMatrixLayout layout) {
  delete &the<Layout>(layout);
  return kOk;
}

LtStatus cublasLtMatmulPreferenceCreate(LtPreference* preference) {
  *preference = reinterpret_cast<LtPreference>(new Preference);
  return kOk;
}

LtStatus cublasLtMatmulPreferenceDestroy(LtPreference preference) {
  delete &the<Preference>(preference);
  return kOk;
}

LtStatus cublasLtMatmulPreferenceSetAttribute(LtPreference preference, int attribute,
                                              const void* value, size_t bytes) {
  Preference& own = the<Preference>(preference);
  if (attribute == kLtMaxWorkspaceBytes && bytes == sizeof own.workspace) {
    std::memcpy(&own.workspace, value, bytes);
    return kOk;
  }
  if (attribute < kLtMinAlignmentA || attribute > kLtMinAlignmentD || bytes != sizeof(uint32_t)) {
    return kInvalid;
  }
  std::memcpy(&own.alignments[attribute], value, bytes);
  return kOk;
}

LtStatus cublasLtMatmulAlgoGetHeuristic(LtHandle, LtMatmulDesc desc, LtMatrixLayout a,
                                        LtMatrixLayout b, LtMatrixLayout c, LtMatrixLayout d,
                                        LtPreference preference, int wanted, LtHeuristic* results,
                                        int* count) {
  const Layout &la = the<Layout>(a), &lb = the<Layout>(b), &lc = the<Layout>(c),
               &ld = the<Layout>(d);
  Preference& own = the<Preference>(preference);
  *count = 0;
  const bool fits = the<Desc>(desc).transposed_a == kLtTransposed && la.rows == lb.rows &&
                    la.cols == ld.rows && lb.cols == ld.cols && lc.rows == ld.rows &&
                    lc.cols == ld.cols && la.type == lb.type && ld.type == kLtReal32;
  if (!fits || wanted < 1) return kInvalid;
  if (own.workspace < kWorkspaceBytes || la.stride % 8 != 0) return kNotSupported;
  const Chosen chosen = {la.cols, lb.cols, la.rows, kWorkspaceBytes,
                         own.alignments[kLtMinAlignmentA], own.alignments[kLtMinAlignmentD]};
  results[0] = {};
  std::memcpy(&results[0].algorithm, &chosen, sizeof chosen);
  results[0].workspace_bytes = kWorkspaceBytes;
  *count = 1;
  return kOk;
}

LtStatus cublasLtMatmul(LtHandle, LtMatmulDesc, const void* alpha, const void* a,
                        LtMatrixLayout a_layout, const void* b, LtMatrixLayout b_layout,
                        const void* beta, const void* c, LtMatrixLayout, void* d,
                        LtMatrixLayout d_layout, const LtAlgorithm* algorithm, void* workspace,
                        size_t workspace_bytes, void* stream) {
  const Layout la = the<Layout>(a_layout), lb = the<Layout>(b_layout), ld = the<Layout>(d_layout);
  Chosen chosen;
  std::memcpy(&chosen, algorithm, sizeof chosen);
  if (chosen.m != la.cols || chosen.n != lb.cols || chosen.k != la.rows) {
    misuse("an algorithm chosen for another shape");
  }
  if (reinterpret_cast<uintptr_t>(a) % chosen.alignment_a != 0 ||
      reinterpret_cast<uintptr_t>(d) % chosen.alignment_d != 0) {
    misuse("a matrix is less aligned than was promised");
  }
  if (workspace_bytes < chosen.workspace) return kInvalid;
  float scale = 0, kept = 1;
  std::memcpy(&scale, alpha, sizeof scale);
  std::memcpy(&kept, beta, sizeof kept);
  if (c != d && reinterpret_cast<uintptr_t>(c) % chosen.alignment_d != 0) {
    misuse("a matrix is less aligned than was promised");
  }
  run_on_stream(stream, [=] {
    std::memset(workspace, 0xff, workspace_bytes);
    std::vector<float> left(la.rows * la.cols), right(lb.rows), sums(ld.rows);
    for (uint64_t m = 0; m < la.cols; ++m) {
      read_column(a, la, m, right.data());
      for (uint64_t k = 0; k < la.rows; ++k) left[k * la.cols + m] = right[k];
    }
    for (uint64_t n = 0; n < ld.cols; ++n) {
      read_column(b, lb, n, right.data());
      sums.assign(ld.rows, 0);
      for (uint64_t k = 0; k < la.rows; ++k) {
        for (uint64_t m = 0; m < ld.rows; ++m) sums[m] += left[k * la.cols + m] * right[k];
      }
      const uint64_t at = n * static_cast<uint64_t>(ld.stride);
      for (uint64_t m = 0; m < ld.rows; ++m) {
        const float own = kept != 0 ? kept * static_cast<const float*>(c)[at + m] : 0;
        static_cast<float*>(d)[at + m] = own + scale * sums[m];
      }
    }
  });
  return kOk;
}
