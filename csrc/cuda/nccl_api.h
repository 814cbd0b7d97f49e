#pragma once

// The part of NCCL that forge uses, declared here so that it is not needed to build. Names, values
// and signatures are those of nccl.h, from NCCL 2.7 on.

#include <cstddef>

namespace forge::cuda {

using NcclResult = int;  // ncclResult_t; 0: success
using NcclComm = struct NcclCommTag*;
struct NcclUniqueId {  // ncclUniqueId
  char internal[128];
};

constexpr int kNcclFloat32 = 7;  // ncclFloat32
constexpr int kNcclSum = 0;      // ncclSum

// Each function: its member in NcclApi, the symbol that NCCL exports, its result and parameters.
#define FORGE_NCCL_FUNCTIONS(F)                                                             \
  F(version, ncclGetVersion, NcclResult, (int* version))                                    \
  F(error_text, ncclGetErrorString, const char*, (NcclResult result))                       \
  F(init_all, ncclCommInitAll, NcclResult,                                                  \
    (NcclComm * comms, int n_devices, const int* devices))                                  \
  F(unique_id, ncclGetUniqueId, NcclResult, (NcclUniqueId * id))                            \
  F(init_rank, ncclCommInitRank, NcclResult,                                                \
    (NcclComm * comm, int n_ranks, NcclUniqueId id, int rank))                              \
  F(group_start, ncclGroupStart, NcclResult, ())                                            \
  F(group_end, ncclGroupEnd, NcclResult, ())                                                \
  F(destroy, ncclCommDestroy, NcclResult, (NcclComm comm))                                  \
  F(abort, ncclCommAbort, NcclResult, (NcclComm comm))                                      \
  F(all_reduce, ncclAllReduce, NcclResult,                                                  \
    (const void* in, void* out, size_t count, int type, int operation, NcclComm comm,       \
     void* stream))                                                                         \
  F(send, ncclSend, NcclResult,                                                             \
    (const void* in, size_t count, int type, int peer, NcclComm comm, void* stream))        \
  F(receive, ncclRecv, NcclResult,                                                          \
    (void* out, size_t count, int type, int peer, NcclComm comm, void* stream))

struct NcclApi {
#define FORGE_NCCL_MEMBER(member, symbol, result, parameters) result(*member) parameters;
  FORGE_NCCL_FUNCTIONS(FORGE_NCCL_MEMBER)
#undef FORGE_NCCL_MEMBER
};

}  // namespace forge::cuda
