#include "attention_choice.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <initializer_list>

#include "../gpu/device_caches.h"
#include "../gpu/rounding.h"

namespace forge::cuda {

namespace {

// Blocks of decode attention that keep enough bytes in flight for the bandwidth of their
// multiprocessor: each of their warps has at least 4 KiB on the way.
constexpr uint32_t kBlocksPerMultiprocessor = 2;
// Limits of the number of splits of a sequence.
constexpr uint32_t kFewestDecodeSplits = 4;
constexpr uint32_t kMostDecodeSplits = 128;

bool is_one_of(uint32_t dim, std::initializer_list<uint32_t> dims) {
  return std::find(dims.begin(), dims.end(), dim) != dims.end();
}

std::string heads_text(const KvShape& shape) {
  const std::string keys = std::to_string(shape.k_head_dim);
  if (shape.k_head_dim == shape.v_head_dim) return "head_dim " + keys;
  return "keys of " + keys + " and values of " + std::to_string(shape.v_head_dim) + " a head";
}

// The reason why kernels cannot compute an operation; empty if they can.
std::string problem_of_tiled(const AttentionOp& op) {
  const KvShape& shape = op.kv->shape;
  if (shape.type == WeightType::F32) return "KV caches in F32; it has F16, BF16, Q8_0 and Q4_0";
  if (shape.values_in_keys && !has_latent_heads(shape)) {
    return heads_text(shape) + ", values in keys; it has 288 and 256, and 576 and 512";
  }
  if (!shape.values_in_keys && !has_tiled_heads(shape)) {
    return heads_text(shape) + "; it has 16, 32, 64, 80, 96, 128 and 256";
  }
  return "";
}

// The reason why decoding with the mask of a run is left to the naive kernel; empty if the tiled
// kernel takes it. The tiled kernel for prompts has no masks, which would double its instances:
// libflash_attn computes masked prompts.
std::string problem_of_masked_decoding(const AttentionOp& op) {
  const KvShape& shape = op.kv->shape;
  if (shape.values_in_keys || !is_one_of(shape.k_head_dim, {64, 128, 256})) {
    return heads_text(shape) + "; with a mask it has 64, 128 and 256";
  }
  return "";
}

std::string problem_of_flash(const AttentionOp& op) {
  const KvShape& shape = op.kv->shape;
  if (shape.type == WeightType::F32 || shape.type == WeightType::Q4_0) {
    return std::string("KV caches in ") + (shape.type == WeightType::F32 ? "F32" : "Q4_0") +
           "; it has F16, BF16 and Q8_0";
  }
  // Tiled kernels take the prompts.
  if (shape.type == WeightType::Q8_0) {
    const std::string problem = problem_of_tiled(op);
    if (!problem.empty()) return "prompts over KV caches in Q8_0 with " + problem;
  }
  if (shape.values_in_keys) return "values in keys";
  if (shape.k_head_dim != shape.v_head_dim ||
      !is_one_of(shape.k_head_dim, {64, 96, 128, 192, 256})) {
    return heads_text(shape) + "; it has 64, 96, 128, 192 and 256";
  }
  if (!std::has_single_bit(shape.page_tokens) || shape.page_tokens < 8) {
    return "pages of " + std::to_string(shape.page_tokens) +
           " tokens; it has powers of two from 8 on";
  }
  if (!(op.scale > 0) || !std::isfinite(op.scale)) return "a scale that is not positive";
  // Its windows count from the end of the keys, not from the position of a query.
  if (!op.causal && op.window > 0) return "windows without causality";
  if (op.chunked) return "attention within chunks";
  return "";
}

[[noreturn]] void refuse(const char* name, const std::string& problem) {
  fail(FORGE_UNSUPPORTED, "attention \"", name, "\" is not for this model: ", problem);
}

}  // namespace

AttentionKernels AttentionChoice::kernels(const AttentionOp& op, bool has_mask) const {
  constexpr auto flash = AttentionKernel::flash, tiled = AttentionKernel::tiled,
                 naive = AttentionKernel::naive;
  if (has_mask) {
    AttentionKernels chosen = kernels(op);
    // Lists of runs do not depend on the mask, so only tiled kernels, which share them, change.
    if (chosen.decode == tiled && !problem_of_masked_decoding(op).empty()) chosen.decode = naive;
    if (chosen.prefill == tiled) chosen.prefill = naive;
    return chosen;
  }
  const std::string no_tiled = problem_of_tiled(op);
  const std::string no_flash = flash_.problem().empty() ? problem_of_flash(op) : flash_.problem();
  const bool flash_prompts = no_flash.empty() && op.kv->shape.type != WeightType::Q8_0;
  switch (request_) {
    case FORGE_ATTENTION_FLASH:
      if (!no_flash.empty()) refuse("flash", no_flash);
      return {flash, flash_prompts ? flash : tiled};
    case FORGE_ATTENTION_TILED:
      if (!no_tiled.empty()) refuse("tiled", no_tiled);
      return {tiled, tiled};
    case FORGE_ATTENTION_NAIVE:
      return {naive, naive};
    default:
      break;
  }
  if (!no_tiled.empty() && !no_flash.empty()) return {naive, naive};
  return {no_tiled.empty() ? tiled : flash, flash_prompts ? flash : tiled};
}

// The cases left to rope_append:
//   - tokens that see others of the run, drafts and prompts among them: their keys must be appended
//     before attention begins
//   - norms over all heads at once: every block would read all heads
//   - masks: such tokens are mostly drafts
//   - caches in Q4_0, values in keys and other heads: instances for them would only be compiled
//   - more than 16 query heads of a KV head: several blocks would append the same row
bool AttentionChoice::appends_rows(const RopeAppendOp& rows, const AttentionOp& op,
                                   const StepShape& shape) const {
  const KvShape& kv = op.kv->shape;
  const auto is_of_head = [&](const WeightRef& norm) {
    return !norm || norm->cols == kv.k_head_dim;
  };
  const bool has_instance = is_one_of(kv.k_head_dim, {32, 64, 128, 256}) &&
                            kv.k_head_dim == kv.v_head_dim && !kv.values_in_keys &&
                            kv.type != WeightType::Q4_0;
  return shape.appends_apart && shape.decode_queries == 1 && shape.prefill_tiles == 0 &&
         shape.mask_kind == FORGE_MASK_NONE && op.causal && has_instance &&
         kernels(op).decode == AttentionKernel::tiled && is_of_head(rows.q_norm) &&
         is_of_head(rows.k_norm) && op.n_heads / kv.n_kv_heads <= kDecodeRows;
}

TilingPolicy AttentionChoice::policy(const Program& program) const {
  TilingPolicy policy{.sees_ahead = !program.is_causal, .lists_slots = program.n_slots > 0,
                      .page_tokens = program.page_tokens,
                      .n_pages = program.n_pages};
  uint32_t head_blocks = UINT32_MAX;  // of a split, in the operation that has the fewest
  for (const Op& op : program.ops) {
    const auto* attention = std::get_if<AttentionOp>(&op);
    if (!attention) continue;
    const AttentionKernels chosen = kernels(*attention);
    policy.lists_decode_runs |= chosen.decode == AttentionKernel::flash;
    policy.lists_prefill_runs |= chosen.prefill == AttentionKernel::flash;
    const KvShape& shape = attention->kv->shape;
    const uint32_t rows = shape.values_in_keys ? kLatentRows : kDecodeRows;
    head_blocks = std::min(
        head_blocks,
        shape.n_kv_heads * divide_up(attention->n_heads / shape.n_kv_heads, rows));
  }
  // The library's decode kernel divides its work by the largest number of queries of all sequences,
  // which must not affect the others.
  if (policy.lists_decode_runs) policy.decode_queries = 1;
  // One long sequence fills the device once: more splits would only be more to merge.
  policy.most_splits = std::clamp(kBlocksPerMultiprocessor * multiprocessors_ / head_blocks,
                                  kFewestDecodeSplits, kMostDecodeSplits);
  return policy;
}

std::vector<std::string> AttentionChoice::describe() const {
  switch (request_) {
    case FORGE_ATTENTION_FLASH:
      return {"attention flash, as asked: " + flash_.path()};
    case FORGE_ATTENTION_TILED:
      return {"attention tiled, as asked"};
    case FORGE_ATTENTION_NAIVE:
      return {"attention naive, as asked"};
    default:
      break;
  }
  const std::string own = "tiled for F16, BF16, Q8_0 and Q4_0 caches, naive for what is left";
  if (!flash_.problem().empty()) {
    return {"attention " + own, "attention flash is not used: " + flash_.problem()};
  }
  return {"attention flash for prompts with F16 and BF16 caches and head_dim 64, 96, 128, 192 and "
          "256, " + own,
          "flash attention from " + flash_.path()};
}

}  // namespace forge::cuda
