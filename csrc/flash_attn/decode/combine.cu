#include "decode/combine.cuh"

#include "host/kernels.h"

namespace flash_attn {

template <class T>
flash_attn_status launch_combine(const DecodeArgs &args, void *stream) {
  const int64_t columns = int64_t{args.query.seqlen} * args.n_heads * (args.head_dim / 8);
  const LaunchShape shape = {
      static_cast<uint32_t>((columns + kCombineThreads - 1) / kCombineThreads),
      static_cast<uint32_t>(args.batch), 1, kCombineThreads, 0};
  return launch(combine_sm80<T>, shape, stream, args);
}

template flash_attn_status launch_combine<f16>(const DecodeArgs &, void *);
template flash_attn_status launch_combine<bf16>(const DecodeArgs &, void *);

}  // namespace flash_attn
