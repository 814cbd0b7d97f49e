import type { Checkpoint } from "../../formats/checkpoint.ts";
import type { PromptCacheKey } from "./prompt_cache_file.ts";
import type { Runner } from "../runner.ts";
import { createHash } from "node:crypto";
import { InputFile } from "../../formats/file.ts";
import type { GgufValue } from "../../formats/gguf/types.ts";

/**
 * All that the pages of a prompt depend on.
 *
 * @param device its kind and kernels
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

/** Bytes of each tensor that are looked at. */
const SAMPLE_BYTES = 64;

/**
 * Tells models apart by what their keys and values depend on: the configuration, the names, types and
 * shapes of the tensors, and a few bytes of each. It does not read the weights: two files that differ in
 * some numbers only are taken for the same, unless one of those is looked at.
 */
export function modelIdentity(checkpoint: Checkpoint): string {
  const hash = createHash("sha256");
  hash.update(JSON.stringify([checkpoint.modelType, checkpoint.config ?? null]));
  for (const [key, value] of checkpoint.metadata ?? []) {
    // The tokenizer decides on tokens, not on what is computed from them.
    if (!key.startsWith("tokenizer.")) hash.update(JSON.stringify([key, value], plain));
  }
  const files = new Map<string, InputFile>();
  try {
    const tensors = [...checkpoint.tensors.values()].sort((a, b) => a.name < b.name ? -1 : 1);
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
  return hash.digest("hex");
}

/** What JSON cannot express, as text. */
function plain(_key: string, value: GgufValue): unknown {
  return typeof value === "bigint" ? `${value}n` : value;
}

/** Whether the positions are rotated by factors that depend on how long a context was asked for. */
export function dependsOnContext(checkpoint: Checkpoint): boolean {
  const { config, tensors } = checkpoint;
  const scaling = JSON.stringify([config?.rope_scaling ?? null, config?.rope_parameters ?? null]);
  // "su" is LongRoPE's earlier name.
  return /"(longrope|su)"/.test(scaling) || tensors.has("rope_factors_long.weight");
}
