#pragma once

// The part of cuBLASLt that forge uses, declared here so that no toolkit is needed to build. Names,
// values and signatures are those of NVIDIA's "cuBLAS" reference, chapter cuBLASLt, from CUDA 11.4
// to 13.

#include <cstddef>
#include <cstdint>

namespace forge::cuda {

using LtStatus = int;  // cublasStatus_t; 0: success
using LtHandle = struct LtHandleTag*;
using LtMatmulDesc = struct LtMatmulDescTag*;
using LtMatrixLayout = struct LtMatrixLayoutTag*;
using LtPreference = struct LtPreferenceTag*;

constexpr int kLtReal32 = 0;     // CUDA_R_32F, and the next two of cudaDataType_t
constexpr int kLtReal16 = 2;     // CUDA_R_16F
constexpr int kLtBrain16 = 14;   // CUDA_R_16BF
constexpr int kLtCompute32 = 68;  // CUBLAS_COMPUTE_32F
constexpr int kLtTransposed = 1;  // CUBLAS_OP_T

// cublasLtMatmulDescAttributes_t.
constexpr int kLtDescTransA = 3;
// cublasLtMatmulPreferenceAttributes_t.
constexpr int kLtMaxWorkspaceBytes = 1;  // a uint64_t
constexpr int kLtMinAlignmentA = 5;      // these are uint32_t
constexpr int kLtMinAlignmentB = 6;
constexpr int kLtMinAlignmentC = 7;
constexpr int kLtMinAlignmentD = 8;

// cublasLtMatmulAlgo_t.
struct LtAlgorithm {
  uint64_t data[8];
};

// cublasLtMatmulHeuristicResult_t.
struct LtHeuristic {
  LtAlgorithm algorithm;
  size_t workspace_bytes;
  LtStatus state;
  float waves;
  int reserved[4];
};
static_assert(sizeof(LtHeuristic) == 96);

// Each function: its member in LtApi, the symbol that cuBLASLt exports, its result and parameters.
#define FORGE_CUBLASLT_FUNCTIONS(F)                                                               \
  F(version, cublasLtGetVersion, size_t, ())                                                      \
  F(create, cublasLtCreate, LtStatus, (LtHandle * handle))                                        \
  F(destroy, cublasLtDestroy, LtStatus, (LtHandle handle))                                        \
  F(desc_create, cublasLtMatmulDescCreate, LtStatus,                                              \
    (LtMatmulDesc * desc, int compute_type, int scale_type))                                      \
  F(desc_destroy, cublasLtMatmulDescDestroy, LtStatus, (LtMatmulDesc desc))                       \
  F(desc_set, cublasLtMatmulDescSetAttribute, LtStatus,                                           \
    (LtMatmulDesc desc, int attribute, const void* value, size_t bytes))                          \
  F(layout_create, cublasLtMatrixLayoutCreate, LtStatus,                                          \
    (LtMatrixLayout * layout, int type, uint64_t rows, uint64_t cols, int64_t stride))            \
  F(layout_destroy, cublasLtMatrixLayoutDestroy, LtStatus, (LtMatrixLayout layout))               \
  F(preference_create, cublasLtMatmulPreferenceCreate, LtStatus, (LtPreference * preference))     \
  F(preference_destroy, cublasLtMatmulPreferenceDestroy, LtStatus, (LtPreference preference))     \
  F(preference_set, cublasLtMatmulPreferenceSetAttribute, LtStatus,                               \
    (LtPreference preference, int attribute, const void* value, size_t bytes))                    \
  F(heuristic, cublasLtMatmulAlgoGetHeuristic, LtStatus,                                          \
    (LtHandle handle, LtMatmulDesc desc, LtMatrixLayout a, LtMatrixLayout b, LtMatrixLayout c,    \
     LtMatrixLayout d, LtPreference preference, int wanted, LtHeuristic* results, int* count))    \
  F(matmul, cublasLtMatmul, LtStatus,                                                             \
    (LtHandle handle, LtMatmulDesc desc, const void* alpha, const void* a,                        \
     LtMatrixLayout a_layout, const void* b, LtMatrixLayout b_layout, const void* beta,           \
     const void* c, LtMatrixLayout c_layout, void* d, LtMatrixLayout d_layout,                    \
     const LtAlgorithm* algorithm, void* workspace, size_t workspace_bytes, void* stream))

struct LtApi {
#define FORGE_CUBLASLT_MEMBER(member, symbol, result, parameters) result(*member) parameters;
  FORGE_CUBLASLT_FUNCTIONS(FORGE_CUBLASLT_MEMBER)
#undef FORGE_CUBLASLT_MEMBER
};

}  // namespace forge::cuda
