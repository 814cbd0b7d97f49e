/**
 * Omits, nulls or changes one setting of config.json at a time: the logits equal those of
 * transformers, or both reject the config. `config_sweep.py` generates the cases and results.
 */
import { assert, assertEquals } from "@std/assert";
import { join } from "@std/path";
import type { Backend } from "../../../src/backend.ts";
import { openBackend } from "../../../src/engine/load/open_backend.ts";
import { Runner, UNSAMPLED } from "../../../src/engine/runner.ts";
import { ForgeError } from "../../../src/errors.ts";
import { type Checkpoint, openCheckpoint } from "../../../src/formats/checkpoint.ts";
import type { JsonObject } from "../../../src/formats/json.ts";
import { float32Tensor } from "../../../src/formats/tensor_data.ts";
import { textPart } from "../../../src/formats/text_part.ts";
import { loadModel } from "../../../src/models/registry.ts";
import { writeModelFolder } from "../../support/safetensors_writer.ts";
import { TempFolder } from "../../support/temp_folder.ts";
import { generatedTensors } from "../families/generated.ts";
import { readJson } from "../reference_check.ts";

/** Keys to remove from a config, and settings to add. */
type Case = readonly [without: readonly string[], settings: JsonObject];

/** The norm of some logits, and every 16th of them. */
type Digest = readonly number[];

interface Swept {
  readonly config: JsonObject;
  readonly logits: Digest;
  /** Cases with the same logits. */
  readonly same: readonly Case[];
  /** Cases that transformers rejects, or that need weights of other shapes. */
  readonly refused: readonly Case[];
  readonly other: readonly (readonly [...Case, Digest])[];
}

const { prompt_ids, models } = readJson<{
  readonly prompt_ids: readonly number[];
  readonly models: Readonly<Record<string, Swept>>;
}>(join(import.meta.dirname ?? ".", "config_sweep.json"));

const TOLERANCE = 1e-4;

/**
 * True if transformers rejects a case because of images only: Qwen2-VL without `mrope_section`,
 * which divides the rotation into time, height and width. Text has the same position in all three.
 */
function isOfImages(name: string, [without, settings]: Case): boolean {
  return /^qwen2(_5)?_vl$/.test(name) &&
    (without.includes("rope_parameters") || "rope_parameters" in settings ||
      "rope_scaling" in settings);
}

/**
 * Applies a case to a config. In a multimodal config, changes apply to the text part, and those
 * under `whole` to the config itself.
 */
function changed(config: JsonObject, [without, settings]: Case): JsonObject {
  const inner = config.text_config;
  if (inner !== undefined) {
    const { whole, ...own } = settings;
    const text_config = changed(inner as JsonObject, [without, own]);
    return { ...config, ...(whole as JsonObject | undefined), text_config };
  }
  const kept = Object.entries(config).filter(([key]) => !without.includes(key));
  return { ...Object.fromEntries(kept), ...settings };
}

/** The tensors of a base config, shared by the checkpoints of its cases. */
class Weights implements Disposable {
  readonly #folder = new TempFolder();
  readonly #checkpoint: Checkpoint;

  constructor(name: string, config: JsonObject) {
    const tensors = generatedTensors(name, config)
      .map(({ name, shape, values }) => float32Tensor(name, shape, values));
    writeModelFolder(this.#folder.path, { "config.json": config }, tensors);
    this.#checkpoint = openCheckpoint(this.#folder.path);
  }

  checkpoint(config: JsonObject): Checkpoint {
    const { tensors } = this.#checkpoint;
    const part = textPart(String(config.model_type), config, tensors.keys());
    return { ...this.#checkpoint, modelType: part.modelType, config: part.config };
  }

  [Symbol.dispose](): void {
    this.#folder[Symbol.dispose]();
  }
}

/** Returns the digest of the logits after the prompt, or the message of the error. */
async function outcome(backend: Backend, checkpoint: Checkpoint): Promise<Digest | string> {
  try {
    const contextLength = prompt_ids.length;
    const { lm } = loadModel(backend, checkpoint, { sessionLength: contextLength });
    if (lm.contextLength < contextLength) return `a context of ${lm.contextLength}`;
    const runner = await Runner.open(backend, lm, { contextLength, kvType: "F32" });
    const table = runner.newSequence();
    table.reserve(contextLength);
    const outputs = [{ ...UNSAMPLED, row: contextLength - 1 }];
    await runner.run([{ table, tokens: prompt_ids, start: 0, outputs }]);
    const logits = runner.readLogits(0);
    const norm = Math.sqrt(logits.reduce((sum, value) => sum + value * value, 0));
    return [norm, ...logits.filter((_, i) => i % 16 === 0)];
  } catch (error) {
    if (error instanceof ForgeError) return error.message;
    throw error;
  }
}

function isClose(actual: Digest, expected: Digest): boolean {
  const [norm = NaN] = expected;
  return actual.every((value, i) => Math.abs(value - expected[i]!) <= TOLERANCE * norm);
}

for (const [name, { config, logits, same, refused, other }] of Object.entries(models)) {
  Deno.test(`${name} agrees with transformers for all settings`, async () => {
    using weights = new Weights(name, config);
    const backend = openBackend("reference", 1);
    const faults: string[] = [];
    const check = async (change: Case, expected: Digest | undefined) => {
      const actual = await outcome(backend, weights.checkpoint(changed(config, change)));
      const isRefusal = typeof actual === "string";
      const allowed = expected ?? logits;
      if (isRefusal || isClose(actual, allowed)) return;
      if (expected === undefined && isOfImages(name, change)) return;
      faults.push(`${JSON.stringify(change)}${expected === undefined ? " is refused" : ""}`);
    };
    try {
      const base = await outcome(backend, weights.checkpoint(config));
      assert(typeof base !== "string", String(base));
      assert(isClose(base, logits), `${base}, not ${logits}`);
      for (const change of same) await check(change, logits);
      for (const [without, settings, digest] of other) await check([without, settings], digest);
      for (const change of refused) await check(change, undefined);
    } finally {
      backend.close();
    }
    assertEquals(faults, []);
  });
}
