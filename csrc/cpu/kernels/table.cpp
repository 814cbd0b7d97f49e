#include "kernels.h"

#define FORGE_JOIN(a, b) a##b
#define FORGE_TABLE_OF(target) FORGE_JOIN(kernels_, target)
#define FORGE_QUOTE(text) #text
#define FORGE_NAME_OF(target) FORGE_QUOTE(target)

namespace forge::cpu {

const KernelTable& FORGE_TABLE_OF(FORGE_TARGET)() {
  namespace target = FORGE_TARGET;
  static constexpr KernelTable table = {
      .name = FORGE_NAME_OF(FORGE_TARGET),
      .matmul = target::matmul,
      .quantize = target::quantize,
      .pack = target::pack,
      .rms_norm = target::rms_norm,
      .layer_norm = target::layer_norm,
      .glu = target::glu,
      .sigmoid_gate = target::sigmoid_gate,
      .gated_rms_norm = target::gated_rms_norm,
      .softcap = target::softcap,
      .clamp = target::clamp,
      .scale = target::scale,
      .add_scaled = target::add_scaled,
      .rotate = target::rotate,
      .to_f16 = target::to_f16,
      .to_q8 = target::to_q8,
      .attention_split = target::attention_split,
      .attention_merge = target::attention_merge,
      .attention_finish = target::attention_finish,
      .conv1d_row = target::conv1d_row,
      .l2_normalize = target::l2_normalize,
      .delta_rule = target::delta_rule,
      .scan = target::scan,
      .sum_exp = target::sum_exp,
      .find_above = target::find_above,
  };
  return table;
}

}  // namespace forge::cpu
