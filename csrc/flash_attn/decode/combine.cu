#include "decode/combine.cuh"

#include "host/kernels.h"

namespace flash_attn {

template <class T>
flash_attn_status launch_combine(const DecodeLaunch &decode) {
  const DecodeArgs &args = decode.args;
  const LaunchShape shape = {static_cast<uint32_t>(args.query.seqlen * args.n_heads.value),
                             static_cast<uint32_t>(args.batch),
                             1,
                             kCombineThreads,
                             kCombineSharedBytes,
                             decode.dependent};
  return launch(combine_sm80<T>, shape, decode.stream, args);
}

template flash_attn_status launch_combine<f16>(const DecodeLaunch &);
template flash_attn_status launch_combine<bf16>(const DecodeLaunch &);

}  // namespace flash_attn
