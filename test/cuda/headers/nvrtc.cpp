// Compares csrc/cuda/nvrtc_api.h with NVIDIA's own header.

#include <nvrtc.h>

#include "nvrtc_api.h"
#include "same_shape.h"

#define SAME_FUNCTION(member, symbol, result, parameters)                              \
  static_assert(header_test::same_shape<decltype(forge::cuda::NvrtcApi::member),       \
                                        decltype(&::symbol)>(),                        \
                #symbol " has other parameters");
FORGE_NVRTC_FUNCTIONS(SAME_FUNCTION)
static_assert(NVRTC_SUCCESS == 0);
