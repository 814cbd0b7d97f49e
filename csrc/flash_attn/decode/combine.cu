#include "decode/combine.cuh"

#include "host/kernels.h"

namespace flash_attn {

template <class T>
flash_attn_status launch_combine(const DecodeArgs &args, bool dependent, void *stream) {
  const LaunchShape shape = {static_cast<uint32_t>(args.query.seqlen * args.n_heads.value),
                             static_cast<uint32_t>(args.batch),
                             1,
                             kCombineThreads,
                             kCombineSharedBytes,
                             dependent};
  return launch(combine_sm80<T>, shape, stream, args);
}

template flash_attn_status launch_combine<f16>(const DecodeArgs &, bool, void *);
template flash_attn_status launch_combine<bf16>(const DecodeArgs &, bool, void *);

}  // namespace flash_attn
