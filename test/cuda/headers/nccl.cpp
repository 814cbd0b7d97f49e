// Compares csrc/cuda/nccl_api.h with NVIDIA's own header.

#include <nccl.h>

#include "nccl_api.h"
#include "same_shape.h"

namespace cuda = forge::cuda;

#define SAME_FUNCTION(member, symbol, result, parameters)                          \
  static_assert(header_test::same_shape<decltype(cuda::NcclApi::member),           \
                                        decltype(&::symbol)>(),                    \
                #symbol " has other parameters");
FORGE_NCCL_FUNCTIONS(SAME_FUNCTION)
static_assert(ncclSuccess == 0);
static_assert(cuda::kNcclFloat32 == static_cast<int>(ncclFloat32));
static_assert(cuda::kNcclSum == static_cast<int>(ncclSum));
