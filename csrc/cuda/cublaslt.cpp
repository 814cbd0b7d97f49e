#include "cublaslt.h"

#include <utility>

#include "../common/error.h"

namespace forge::cuda {

namespace {

// NVIDIA's recommendation for Hopper; earlier architectures use less.
constexpr uint64_t kMostWorkspace = 32u << 20;
// Alignment of scratch memory and x.
constexpr uint32_t kScratchAlignment = 256;

}  // namespace

// cuBLASLt is column-major: row-major out[tokens, rows] is its D[rows, tokens] = A^T B, of the
// weight as A[cols, rows] and x as B[cols, tokens].
class LtProduct {
 public:
  LtProduct(const LtApi& api, LtHandle handle, const LtShape& shape) : api_(api) {
    const int type = shape.is_bf16 ? kLtBrain16 : kLtReal16;
    const auto layout = [&](LtMatrixLayout& to, int of, uint64_t rows, uint64_t cols,
                            uint64_t stride) {
      succeeded_ &= api.layout_create(&to, of, rows, cols, static_cast<int64_t>(stride)) == 0;
    };
    succeeded_ &= api.desc_create(&desc, kLtCompute32, kLtReal32) == 0;
    const int transposed = kLtTransposed;
    succeeded_ =
        succeeded_ && api.desc_set(desc, kLtDescTransA, &transposed, sizeof transposed) == 0;
    layout(weight, type, shape.cols, shape.rows, shape.weight_stride);
    layout(x, type, shape.cols, shape.tokens, shape.x_stride);
    layout(out, kLtReal32, shape.rows, shape.tokens, shape.out_stride);
    if (succeeded_) choose(handle, shape);
  }
  ~LtProduct() {
    if (out) api_.layout_destroy(out);
    if (x) api_.layout_destroy(x);
    if (weight) api_.layout_destroy(weight);
    if (desc) api_.desc_destroy(desc);
  }
  LtProduct(const LtProduct&) = delete;
  LtProduct& operator=(const LtProduct&) = delete;

  bool succeeded() const { return succeeded_; }

  LtMatmulDesc desc = nullptr;
  LtMatrixLayout weight = nullptr, x = nullptr, out = nullptr;
  LtHeuristic choice{};

 private:
  void choose(LtHandle handle, const LtShape& shape) {
    LtPreference preference = nullptr;
    if (api_.preference_create(&preference) != 0) {
      succeeded_ = false;
      return;
    }
    const auto set = [&](int attribute, auto value) {
      succeeded_ &= api_.preference_set(preference, attribute, &value, sizeof value) == 0;
    };
    set(kLtMaxWorkspaceBytes, kMostWorkspace);
    set(kLtMinAlignmentA, shape.weight_alignment);
    set(kLtMinAlignmentB, kScratchAlignment);
    set(kLtMinAlignmentC, shape.out_alignment);
    set(kLtMinAlignmentD, shape.out_alignment);
    int count = 0;
    succeeded_ = succeeded_ &&
                 api_.heuristic(handle, desc, weight, x, out, out, preference, 1, &choice,
                                &count) == 0 &&
                 count > 0 && choice.state == 0 && choice.workspace_bytes <= kMostWorkspace;
    api_.preference_destroy(preference);
  }

  const LtApi& api_;
  bool succeeded_ = true;
};

CublasLt::CublasLt(int driver_version) {
  LibrarySearch search = find_library(for_driver(kCublasLtQuery, driver_version));
  if (!search.library) {
    problem_ = std::move(search.problem);
    return;
  }
  library_ = std::move(search.library);
  // The library is optional: an unusable one is treated like a missing one.
  try {
#define FORGE_CUBLASLT_LOAD(member, symbol, result, parameters) \
  api_.member = reinterpret_cast<decltype(api_.member)>(library_->require_symbol(#symbol));
    FORGE_CUBLASLT_FUNCTIONS(FORGE_CUBLASLT_LOAD)
#undef FORGE_CUBLASLT_LOAD
  } catch (const Error& error) {
    problem_ = error.what();
    return;
  }
  if (const LtStatus status = api_.create(&handle_)) {
    handle_ = nullptr;
    problem_ = path() + ": cublasLtCreate fails with status " + std::to_string(status);
  }
}

CublasLt::~CublasLt() {
  products_.clear();
  if (handle_) api_.destroy(handle_);
}

std::string CublasLt::version() const {
  // 130100 since version 13, 120900 or 11402 before.
  const size_t version = api_.version();
  const size_t unit = version >= 100000 ? 10000 : 1000;
  return std::to_string(version / unit) + "." + std::to_string(version % unit / 100);
}

const LtProduct* CublasLt::product(const LtShape& shape) {
  if (!problem_.empty()) return nullptr;
  auto& known = products_[shape];
  if (!known) known = std::make_unique<LtProduct>(api_, handle_, shape);
  return known->succeeded() ? known.get() : nullptr;
}

uint64_t CublasLt::workspace_bytes(const LtProduct& product) {
  return product.choice.workspace_bytes;
}

void LtCall::enqueue(const Device& device) const {
  const auto [out, x, weight, residual, alpha] = operands_;
  const float beta = residual ? 1 : 0;
  const auto address = [](DevicePointer at) { return reinterpret_cast<void*>(at); };
  const LtProduct& p = *product_;
  const LtStatus status = library_->api_.matmul(
      library_->handle_, p.desc, &alpha, address(weight), p.weight, address(x), p.x, &beta,
      address(residual ? residual : out), p.out, address(out), p.out, &p.choice.algorithm,
      address(workspace_), p.choice.workspace_bytes, device.stream());
  if (status != 0) fail(FORGE_DEVICE_FAILED, "cublasLtMatmul fails with status ", status);
  if (device.is_synchronous()) device.synchronize("running " + name());
}

}  // namespace forge::cuda
