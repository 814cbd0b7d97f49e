#pragma once

// The part of NVRTC that forge uses, declared here so that no toolkit is needed to build. Names and
// signatures are those of NVIDIA's "NVRTC" reference, CUDA 11.2.

#include <cstddef>

namespace forge::cuda {

using NvrtcResult = int;
using NvrtcProgram = struct NvrtcProgramTag*;

// Each function: its member in NvrtcApi, the symbol that NVRTC exports, its result and parameters.
#define FORGE_NVRTC_FUNCTIONS(F)                                                                   \
  F(version, nvrtcVersion, NvrtcResult, (int* major, int* minor))                                  \
  F(error_string, nvrtcGetErrorString, const char*, (NvrtcResult result))                          \
  F(count_architectures, nvrtcGetNumSupportedArchs, NvrtcResult, (int* count))                     \
  F(architectures, nvrtcGetSupportedArchs, NvrtcResult, (int* list))                               \
  F(create, nvrtcCreateProgram, NvrtcResult,                                                       \
    (NvrtcProgram * program, const char* source, const char* name, int n_headers,                  \
     const char* const* headers, const char* const* header_names))                                 \
  F(destroy, nvrtcDestroyProgram, NvrtcResult, (NvrtcProgram * program))                           \
  F(add_name, nvrtcAddNameExpression, NvrtcResult, (NvrtcProgram program, const char* expression)) \
  F(lowered_name, nvrtcGetLoweredName, NvrtcResult,                                                \
    (NvrtcProgram program, const char* expression, const char** symbol))                           \
  F(compile, nvrtcCompileProgram, NvrtcResult,                                                     \
    (NvrtcProgram program, int n_options, const char* const* options))                             \
  F(log_size, nvrtcGetProgramLogSize, NvrtcResult, (NvrtcProgram program, size_t* bytes))          \
  F(log, nvrtcGetProgramLog, NvrtcResult, (NvrtcProgram program, char* text))                      \
  F(cubin_size, nvrtcGetCUBINSize, NvrtcResult, (NvrtcProgram program, size_t* bytes))             \
  F(cubin, nvrtcGetCUBIN, NvrtcResult, (NvrtcProgram program, char* image))                        \
  F(ptx_size, nvrtcGetPTXSize, NvrtcResult, (NvrtcProgram program, size_t* bytes))                 \
  F(ptx, nvrtcGetPTX, NvrtcResult, (NvrtcProgram program, char* image))

struct NvrtcApi {
#define FORGE_NVRTC_MEMBER(member, symbol, result, parameters) result(*member) parameters;
  FORGE_NVRTC_FUNCTIONS(FORGE_NVRTC_MEMBER)
#undef FORGE_NVRTC_MEMBER
};

}  // namespace forge::cuda
