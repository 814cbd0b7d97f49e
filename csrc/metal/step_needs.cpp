#include "step_needs.h"

#include <algorithm>

#include "../common/step_inputs.h"
#include "metal_kv.h"

namespace forge::metal {

namespace {

class WeightForms {
 public:
  explicit WeightForms(WeightStore& store) : store_(store) {}

  void add(const EmbedOp& op) {
    store_.add_unified(op.weight);
    note_types(op.weight);
  }
  void add(const RmsNormOp& op) { store_.add_floats(op.weight); }
  void add(const LayerNormOp& op) {
    store_.add_floats(op.weight);
    store_.add_floats(op.bias);
  }
  void add(const MatmulOp& op) {
    store_.add_matrix(op.weight);
    store_.add_floats(op.bias);
    note_types(op.weight);
  }
  void add(const RopeTableOp& op) { store_.add_floats(op.inv_freq); }
  void add(const RopeAppendOp& op) {
    store_.add_floats(op.q_norm);
    store_.add_floats(op.k_norm);
  }
  void add(const AttentionOp& op) { store_.add_floats(op.sinks); }
  void add(const MoeMatmulOp& op) {
    store_.add_unified(op.weight);
    store_.add_floats(op.bias);
    note_types(op.weight);
  }
  template <class OpWithoutWeights>
  void add(const OpWithoutWeights&) {}

  bool needs_codebooks() const { return needs_codebooks_; }

 private:
  void note_types(const WeightRef& weight) {
    for (const WeightPart& part : metal_weight(*weight).parts) {
      needs_codebooks_ |= weight_format(part.type).needs_codebooks;
    }
  }

  WeightStore& store_;
  bool needs_codebooks_ = false;
};

void note_cache(const KvRef& kv, std::set<const KvCache*>& caches) {
  if (!static_cast<const MetalKv&>(*kv).is_allocated()) caches.insert(kv.get());
}

bool is_plain(const forge_sampling& s) {
  return s.temperature == 0 && s.forced_token < 0 && s.repeat_penalty == 1 &&
         s.presence_penalty == 0 && s.frequency_penalty == 0 && s.bias_begin == s.bias_end &&
         s.mask < 0 && s.n_top == 0;
}

}  // namespace

bool request_weights(const Program& program, WeightStore& store) {
  WeightForms forms(store);
  for (const Op& op : program.ops) std::visit([&](const auto& typed) { forms.add(typed); }, op);
  store.lay_out();
  return forms.needs_codebooks();
}

std::set<const KvCache*> missing_caches(const Program& program) {
  std::set<const KvCache*> caches;
  for (const Op& op : program.ops) {
    if (const auto* append = std::get_if<RopeAppendOp>(&op)) note_cache(append->kv, caches);
    if (const auto* attention = std::get_if<AttentionOp>(&op)) note_cache(attention->kv, caches);
  }
  return caches;
}

bool is_greedy(const StepInputs& inputs) { return std::ranges::all_of(inputs.sampling, is_plain); }

}  // namespace forge::metal
