#pragma once

#include <string>
#include <vector>

#include "../common/program.h"
#include "../gpu/step_work.h"
#include "flash_library.h"

namespace forge::cuda {

enum class AttentionKernel { flash, tiled, naive };

// Query rows (query heads of a KV head times queries) of a block of decode attention, and of latent
// attention.
constexpr uint32_t kDecodeRows = 16;
constexpr uint32_t kLatentRows = 32;

// The kernels of the short runs of a step (mostly decoded tokens) and of the long ones.
struct AttentionKernels {
  AttentionKernel decode;
  AttentionKernel prefill;
};

// Selects the kernels of attention.
//
// By default, libflash_attn computes prompts if it can. Forge's own kernel decodes: it reads F32
// queries and one list of work for all sequences, whereas the library needs its inputs and outputs
// converted. Over a Q8_0 cache the library only decodes. The naive kernel computes the rest.
class AttentionChoice {
 public:
  // `request` is one of FORGE_ATTENTION_...
  AttentionChoice(uint32_t request, const FlashLibrary& flash, uint32_t multiprocessors)
      : request_(request), flash_(flash), multiprocessors_(multiprocessors) {}

  // Throws FORGE_UNSUPPORTED with the reason if the requested kernels cannot compute the operation.
  // `has_mask`: true if the mask of a run applies.
  AttentionKernels kernels(const AttentionOp& op, bool has_mask = false) const;
  // True if the kernel that decodes, for a step of this shape, also prepares the rows that the
  // operation before attention does.
  bool appends_rows(const RopeAppendOp& rows, const AttentionOp& op, const StepShape& shape) const;
  // The lists that all attention of a program reads.
  TilingPolicy policy(const Program& program) const;
  const FlashLibrary& flash() const { return flash_; }
  // Describes the usable kernels, with reasons for the unusable ones, for `forge doctor`.
  std::vector<std::string> describe() const;

 private:
  uint32_t request_;
  const FlashLibrary& flash_;
  uint32_t multiprocessors_;
};

}  // namespace forge::cuda
