#pragma once

#include <string>
#include <vector>

#include "../common/program.h"
#include "../gpu/step_work.h"
#include "flash_library.h"

namespace forge::cuda {

enum class AttentionKernel { flash, tiled, naive };

// What computes the short runs of a step, decoded tokens mostly, and the long ones.
struct AttentionKernels {
  AttentionKernel decode;
  AttentionKernel prefill;
};

// Which kernels compute attention.
//
// Left to choose, prompts go to libflash_attn where it can be used. Decoding goes to forge's own
// kernel, which reads F32 queries and one list of work for all sequences, where the library would
// need its inputs and outputs converted. What neither takes is left to the naive kernel.
class AttentionChoice {
 public:
  // `request` is one of FORGE_ATTENTION_...
  AttentionChoice(uint32_t request, const FlashLibrary& flash) : request_(request), flash_(flash) {}

  // Throws FORGE_UNSUPPORTED, saying why, when the request cannot be met.
  AttentionKernels kernels(const AttentionOp& op) const;
  // How all of a program's attention wants the tokens of a run dealt out.
  TilingPolicy policy(const Program& program) const;
  const FlashLibrary& flash() const { return flash_; }
  // For people: which kernels there are, and why not others.
  std::vector<std::string> describe() const;

 private:
  uint32_t request_;
  const FlashLibrary& flash_;
};

}  // namespace forge::cuda
