// Compares csrc/cuda/cublaslt_api.h with NVIDIA's own header.

#include <cublasLt.h>

#include <cstddef>

#include "cublaslt_api.h"
#include "same_shape.h"

namespace cuda = forge::cuda;

#define SAME_FUNCTION(member, symbol, result, parameters)                          \
  static_assert(header_test::same_shape<decltype(cuda::LtApi::member),             \
                                        decltype(&::symbol)>(),                    \
                #symbol " has other parameters");
FORGE_CUBLASLT_FUNCTIONS(SAME_FUNCTION)

#define SAME_VALUE(ours, theirs) \
  static_assert(static_cast<long long>(cuda::ours) == static_cast<long long>(theirs), #theirs)
SAME_VALUE(kLtReal32, CUDA_R_32F);
SAME_VALUE(kLtReal16, CUDA_R_16F);
SAME_VALUE(kLtBrain16, CUDA_R_16BF);
SAME_VALUE(kLtCompute32, CUBLAS_COMPUTE_32F);
SAME_VALUE(kLtTransposed, CUBLAS_OP_T);
SAME_VALUE(kLtDescTransA, CUBLASLT_MATMUL_DESC_TRANSA);
SAME_VALUE(kLtMaxWorkspaceBytes, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES);
SAME_VALUE(kLtMinAlignmentA, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES);
SAME_VALUE(kLtMinAlignmentB, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES);
SAME_VALUE(kLtMinAlignmentC, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES);
SAME_VALUE(kLtMinAlignmentD, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES);

#define SAME_MEMBER(ours, theirs)                                                       \
  static_assert(offsetof(cuda::LtHeuristic, ours) ==                                    \
                        offsetof(cublasLtMatmulHeuristicResult_t, theirs) &&            \
                    sizeof(cuda::LtHeuristic::ours) ==                                  \
                        sizeof(cublasLtMatmulHeuristicResult_t::theirs),                \
                "cublasLtMatmulHeuristicResult_t::" #theirs)
SAME_MEMBER(algorithm, algo);
SAME_MEMBER(workspace_bytes, workspaceSize);
SAME_MEMBER(state, state);
SAME_MEMBER(waves, wavesCount);
SAME_MEMBER(reserved, reserved);
static_assert(sizeof(cuda::LtHeuristic) == sizeof(cublasLtMatmulHeuristicResult_t));
