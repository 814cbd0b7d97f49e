/**
 * Whole models, adapters and heads that draft tokens, with damage: each is loaded and asked for
 * tokens on a device, or refused in one line. Native code sees what parsers let through, so that
 * this is worth running with its sanitizers (`deno task fuzz --sanitize`).
 */
import { Model } from "../../src/engine/model.ts";
import type { LoadOptions } from "../../src/engine/load/options.ts";
import { openBackend } from "../../src/engine/load/open_backend.ts";
import { openCheckpoint } from "../../src/formats/checkpoint.ts";
import type { GgufField } from "../../src/formats/gguf/writer.ts";
import { isJsonObject, type JsonValue } from "../../src/formats/json.ts";
import { float32Tensor } from "../../src/formats/tensor_data.ts";
import { writeGgufHead, writeHead } from "../support/eagle_head.ts";
import { encodeGguf } from "../support/parts.ts";
import type { Random } from "../support/random.ts";
import { encodeSafetensors } from "../support/safetensors_writer.ts";
import { TempFolder } from "../support/temp_folder.ts";
import { writeRandomLlama } from "../support/tiny_llama.ts";
import { sharedAvailable, sharedPath } from "../support/shared.ts";
import { writeGenerated } from "../models/families/generated.ts";
import { fuzz } from "./harness.ts";
import { mutateBytes, mutateJson } from "./mutate.ts";

const DEVICES = ["cpu", "reference"] as const;

/** Loads a model and computes tokens of it. */
async function useModel(path: string, random: Random, options: LoadOptions = {}): Promise<void> {
  const checkpoint = openCheckpoint(path);
  const backend = openBackend(random.pick(DEVICES), 2);
  try {
    await using model = await Model.open(checkpoint, [backend], { ...options, contextLength: 32 });
    await model.complete(Int32Array.of(0, 1, 2), { maxTokens: 4, temperature: 0 });
  } finally {
    backend.close();
  }
}

const models = new TempFolder();
const original = writeRandomLlama(models.at("model"), { hidden: 32, intermediate: 32, headDim: 8 });
globalThis.addEventListener("unload", () => models[Symbol.dispose]());

fuzz("a model's folder, loaded and run", 30, async (random) => {
  using folder = new TempFolder();
  copyDamaged(original.folder, folder, random);
  await useModel(folder.path, random);
});

/** Copies a folder with damage to one of its files. */
function copyDamaged(from: string, to: TempFolder, random: Random): void {
  const names = Array.from(Deno.readDirSync(from), ({ name }) => name).sort();
  const damaged = random.pick(names);
  for (const name of names) {
    const bytes = Deno.readFileSync(`${from}/${name}`);
    to.write(name, name === damaged ? damage(name, bytes, random) : bytes);
  }
}

function damage(name: string, bytes: Uint8Array<ArrayBuffer>, random: Random): unknown {
  if (!name.endsWith(".json") || random.chance(1 / 4)) return damageHeader(bytes, random);
  const json: JsonValue = JSON.parse(new TextDecoder().decode(bytes));
  return isJsonObject(json) ? mutateJson(json, random) : bytes;
}

/** Damages the beginning of a file, where its header is, more often than its numbers. */
function damageHeader(bytes: Uint8Array<ArrayBuffer>, random: Random): Uint8Array<ArrayBuffer> {
  if (random.chance(1 / 4)) return mutateBytes(bytes, random);
  const end = Math.min(bytes.length, 8192);
  const head = mutateBytes(bytes.slice(0, end), random);
  const mutant = new Uint8Array(head.length + bytes.length - end);
  mutant.set(head);
  mutant.set(bytes.subarray(end), head.length);
  return mutant;
}

/** The matrices of a layer that the adapters change, by their names in folders and GGUF files. */
const ADAPTED = [
  ["self_attn.q_proj", "attn_q", 32, 32],
  ["self_attn.v_proj", "attn_v", 16, 32],
  ["mlp.down_proj", "ffn_down", 32, 32],
] as const;
const RANK = 3;
const ADAPTER_FIELDS: Readonly<Record<string, GgufField>> = {
  "general.type": ["string", "adapter"],
  "general.architecture": ["string", "llama"],
  "adapter.type": ["string", "lora"],
  "adapter.lora.alpha": ["f32", 6],
};

/** Returns the tensors of an adapter under names that `nameOf` makes. */
function adapterTensors(nameOf: (module: string, ggufName: string, side: "A" | "B") => string) {
  return ADAPTED.flatMap(([module, ggufName, rows, cols]) =>
    ([["A", RANK, cols], ["B", rows, RANK]] as const).map(([side, first, second]) => {
      const values = new Float32Array(first * second).fill(0.1);
      return float32Tensor(nameOf(module, ggufName, side), [first, second], values);
    })
  );
}

models.write("adapter/adapter_config.json", {
  peft_type: "LORA",
  r: RANK,
  lora_alpha: 6,
  rank_pattern: { down_proj: RANK },
  alpha_pattern: { "self_attn.q_proj": 3 },
  use_rslora: false,
  target_modules: ["q_proj", "v_proj", "down_proj"],
});
models.write(
  "adapter/adapter_model.safetensors",
  encodeSafetensors({
    tensors: adapterTensors((module, _, side) =>
      `base_model.model.model.layers.0.${module}.lora_${side}.weight`
    ),
  }),
);
const ggufAdapter = encodeGguf({
  metadata: ADAPTER_FIELDS,
  tensors: adapterTensors((_, name, side) => `blk.0.${name}.weight.lora_${side.toLowerCase()}`),
});

fuzz("adapters, loaded and applied", 30, async (random) => {
  using folder = new TempFolder();
  const isGguf = random.chance(1 / 3);
  if (isGguf) folder.write("adapter.gguf", damageHeader(ggufAdapter, random));
  else copyDamaged(models.at("adapter"), folder, random);
  const path = isGguf ? folder.at("adapter.gguf") : folder.path;
  await useModel(original.folder, random, { lora: [{ path, name: "damaged" }] });
});

const mixture = writeGenerated("olmoe");
globalThis.addEventListener("unload", () => mixture[Symbol.dispose]());

const ofExperts = (shapes: Readonly<Record<string, readonly number[]>>) =>
  Object.entries(shapes).map(([name, shape]) =>
    float32Tensor(name, shape, new Float32Array(shape.reduce((n, size) => n * size, 1)).fill(0.1))
  );
const LAYERS = "base_model.model.model.layers";
models.write("experts/adapter_config.json", {
  peft_type: "LORA",
  r: 2,
  lora_alpha: 4,
  rank_pattern: { "experts.down_proj": 1 },
  target_modules: ["up_proj"],
  target_parameters: ["mlp.experts.gate_up_proj", "mlp.experts.down_proj"],
});
models.write(
  "experts/adapter_model.safetensors",
  encodeSafetensors({
    tensors: ofExperts({
      [`${LAYERS}.0.mlp.experts.base_layer.lora_A.weight`]: [12, 32],
      [`${LAYERS}.0.mlp.experts.base_layer.lora_B.weight`]: [96, 12],
      [`${LAYERS}.0.mlp.experts.lora_A.weight`]: [6, 48],
      [`${LAYERS}.0.mlp.experts.lora_B.weight`]: [32, 6],
      [`${LAYERS}.1.mlp.experts.3.up_proj.lora_A.weight`]: [2, 32],
      [`${LAYERS}.1.mlp.experts.3.up_proj.lora_B.weight`]: [48, 2],
    }),
  }),
);
const ggufExperts = encodeGguf({
  metadata: { ...ADAPTER_FIELDS, "general.architecture": ["string", "olmoe"] },
  tensors: ofExperts({
    "blk.0.ffn_gate_exps.weight.lora_a": [6, 2, 32],
    "blk.0.ffn_gate_exps.weight.lora_b": [6, 48, 2],
    "blk.2.ffn_down_exps.weight.lora_a": [6, 1, 48],
    "blk.2.ffn_down_exps.weight.lora_b": [6, 32, 1],
  }),
});

fuzz("adapters of experts, loaded and applied", 15, async (random) => {
  using folder = new TempFolder();
  const isGguf = random.chance(1 / 3);
  if (isGguf) folder.write("adapter.gguf", damageHeader(ggufExperts, random));
  else copyDamaged(models.at("experts"), folder, random);
  const path = isGguf ? folder.at("adapter.gguf") : folder.path;
  await useModel(mixture.at("model"), random, { lora: [{ path, name: "damaged" }] });
});

const headed = writeRandomLlama(models.at("headed"));
writeHead(models.at("head"));
writeGgufHead(models.at("head.gguf"), {});
const ggufHead = Deno.readFileSync(models.at("head.gguf"));

fuzz("EAGLE-3 heads, loaded and drafting", 15, async (random) => {
  using folder = new TempFolder();
  const isGguf = random.chance(1 / 3);
  if (isGguf) folder.write("head.gguf", damageHeader(ggufHead, random));
  else copyDamaged(models.at("head"), folder, random);
  const draftModel = isGguf ? folder.at("head.gguf") : folder.path;
  await useModel(headed.folder, random, { draftModel, speculate: 2 });
});

// Every format of blocks that forge computes with, in files of a quarter of a megabyte.
const QUANTIZED = sharedAvailable("models", "quant256")
  ? Array.from(Deno.readDirSync(sharedPath("models", "quant256")), ({ name }) => name)
    .filter((name) => name.endsWith(".gguf")).sort()
  : [];
if (QUANTIZED.length === 0) console.error("skipping quantised models: ../shared is not there");
else {
  fuzz("a quantised GGUF model, loaded and run", 10, async (random) => {
    using folder = new TempFolder();
    const bytes = Deno.readFileSync(sharedPath("models", "quant256", random.pick(QUANTIZED)));
    await useModel(folder.write("model.gguf", damageHeader(bytes, random)), random);
  });
}
