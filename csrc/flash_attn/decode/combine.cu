#include "decode/combine.cuh"

#include "host/kernels.h"

namespace flash_attn {

namespace {

template <class T, int kMostParts>
flash_attn_status launch_parts(const DecodeLaunch &decode) {
  const DecodeArgs &args = decode.args;
  const LaunchShape shape = {static_cast<uint32_t>(args.query.seqlen * args.n_heads.value),
                             static_cast<uint32_t>(args.batch),
                             CombineShape<kMostParts>::kBlocks,
                             args.head_dim,
                             0,
                             decode.dependent};
  return launch(combine_sm80<T, kMostParts>, shape, decode.stream, args);
}

}  // namespace

template <class T>
flash_attn_status launch_combine(const DecodeLaunch &decode) {
  const int parts = decode.args.n_splits;
  return parts <= 16   ? launch_parts<T, 16>(decode)
         : parts <= 32 ? launch_parts<T, 32>(decode)
         : parts <= 64 ? launch_parts<T, 64>(decode)
                       : launch_parts<T, kMaxSplits>(decode);
}

template flash_attn_status launch_combine<f16>(const DecodeLaunch &);
template flash_attn_status launch_combine<bf16>(const DecodeLaunch &);

}  // namespace flash_attn
