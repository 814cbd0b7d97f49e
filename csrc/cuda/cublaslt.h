#pragma once

// Products of many rows by cuBLASLt, if it is installed.

#include <compare>
#include <map>
#include <memory>
#include <string>

#include "cublaslt_api.h"
#include "device.h"
#include "shared_library.h"

namespace forge::cuda {

// out[tokens, rows] = x[tokens, cols] weight[rows, cols]^T in F32, of operands of 16 bits. Strides
// are from row to row, in elements.
struct LtShape {
  bool is_bf16;
  uint32_t tokens;
  uint32_t rows;
  uint32_t cols;
  uint64_t x_stride;
  uint64_t weight_stride;
  uint64_t out_stride;
  uint32_t weight_alignment;  // bytes
  uint32_t out_alignment;

  auto operator<=>(const LtShape&) const = default;
};

// The algorithm that cuBLASLt chose for products of one shape.
class LtProduct;

class CublasLt {
 public:
  // Looks for the library. The device's context must be current, here and in every other call.
  explicit CublasLt(int driver_version);
  ~CublasLt();
  CublasLt(const CublasLt&) = delete;
  CublasLt& operator=(const CublasLt&) = delete;

  // The reason why it is not used; empty if it is.
  const std::string& problem() const { return problem_; }
  const std::string& path() const { return library_->path(); }
  std::string version() const;

  // Returns the algorithm for a shape, which is cached; null if the library has none.
  const LtProduct* product(const LtShape& shape);
  static uint64_t workspace_bytes(const LtProduct& product);

 private:
  friend class LtCall;
  std::shared_ptr<const SharedLibrary> library_;
  std::string problem_;
  LtApi api_{};
  LtHandle handle_ = nullptr;
  std::map<LtShape, std::unique_ptr<LtProduct>> products_;
};

// out = residual + alpha * x weight^T, where the residual may be null.
struct LtOperands {
  DevicePointer out, x, weight, residual;
  float alpha;
};

// One product in a plan.
class LtCall {
 public:
  LtCall(const CublasLt& library, const LtProduct& product, const LtOperands& operands,
         DevicePointer workspace)
      : library_(&library), product_(&product), operands_(operands), workspace_(workspace) {}

  void enqueue(const Device& device) const;
  std::string name() const { return "cublasLtMatmul"; }

 private:
  const CublasLt* library_;
  const LtProduct* product_;
  LtOperands operands_;
  DevicePointer workspace_;
};

}  // namespace forge::cuda
