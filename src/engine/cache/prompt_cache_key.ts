import type { Checkpoint } from "../../formats/checkpoint.ts";
import type { PromptCacheKey } from "./prompt_cache_file.ts";
import type { Runner } from "../runner.ts";
import { createHash, type Hash } from "node:crypto";
import { InputFile } from "../../formats/file.ts";
import type { GgufValue } from "../../formats/gguf/types.ts";
import type { TensorInfo } from "../../formats/tensor_info.ts";

/**
 * Returns everything but the tokens that the pages of a prompt depend on.
 *
 * @param device kind and kernels of the device
 */
export function promptCacheKey(
  checkpoint: Checkpoint,
  runner: Pick<Runner, "pageBytes" | "slotBytes" | "pages" | "kvType" | "contextLength">,
  device: string,
): PromptCacheKey {
  const { pageBytes, slotBytes, pages, kvType, contextLength } = runner;
  return {
    model: modelIdentity(checkpoint),
    device,
    kv_type: kvType,
    page_tokens: pages.pageTokens,
    page_bytes: pageBytes,
    state_bytes: slotBytes,
    context_length: dependsOnContext(checkpoint) ? contextLength : null,
  };
}

/** Bytes of each tensor that are hashed. */
const SAMPLE_BYTES = 64;

/**
 * Returns a hash of the configuration, of the names, types and shapes of the tensors, and of a few
 * bytes of each. It does not read all weights: files that differ only in other bytes have the same
 * hash.
 */
export function modelIdentity(checkpoint: Checkpoint): string {
  const hash = createHash("sha256");
  hash.update(JSON.stringify([checkpoint.modelType, checkpoint.config ?? null]));
  for (const [key, value] of checkpoint.metadata ?? []) {
    // The tokenizer decides which tokens are computed, not their keys and values.
    if (!key.startsWith("tokenizer.")) hash.update(JSON.stringify([key, value], plain));
  }
  const tensors = [...checkpoint.tensors.values()].sort((a, b) => a.name < b.name ? -1 : 1);
  sampleTensors(tensors, hash);
  return hash.digest("hex");
}

/** Adds the names, types and shapes of tensors to a hash, and a few bytes of each. */
export function sampleTensors(tensors: readonly TensorInfo[], hash: Hash): void {
  const files = new Map<string, InputFile>();
  try {
    for (const tensor of tensors) {
      hash.update(JSON.stringify([tensor.name, tensor.type, tensor.shape]));
      const { file, offset, bytes } = tensor.packed?.codes ?? tensor;
      let input = files.get(file);
      if (input === undefined) files.set(file, input = InputFile.open(file));
      const sample = new Uint8Array(Math.min(bytes, SAMPLE_BYTES));
      input.readAt(offset + Math.floor((bytes - sample.length) / 2), sample);
      hash.update(sample);
    }
  } finally {
    for (const input of files.values()) input[Symbol.dispose]();
  }
}

/** Converts values that JSON cannot express to text. */
function plain(_key: string, value: GgufValue): unknown {
  return typeof value === "bigint" ? `${value}n` : value;
}

/** True if the rotation of positions depends on the context length. */
function dependsOnContext(checkpoint: Checkpoint): boolean {
  const { config, tensors } = checkpoint;
  const scaling = JSON.stringify([config?.rope_scaling, config?.rope_parameters]);
  // "su" is LongRoPE's earlier name.
  return /"(longrope|su)"/.test(scaling) || tensors.has("rope_factors_long.weight");
}
