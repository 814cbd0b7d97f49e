/**
 * Whole models with damage: each is loaded and asked for a token on a device, or refused in one
 * line. Native code sees what parsers let through, so that this is worth running with its
 * sanitizers (`deno task fuzz --sanitize`).
 */
import { Model } from "../../src/engine/model.ts";
import { openBackend } from "../../src/engine/load/open_backend.ts";
import { openCheckpoint } from "../../src/formats/checkpoint.ts";
import { isJsonObject, type JsonValue } from "../../src/formats/json.ts";
import type { Random } from "../support/random.ts";
import { TempFolder } from "../support/temp_folder.ts";
import { writeRandomLlama } from "../support/tiny_llama.ts";
import { sharedAvailable, sharedPath } from "../support/shared.ts";
import { fuzz } from "./harness.ts";
import { mutateBytes, mutateJson } from "./mutate.ts";

const DEVICES = ["cpu", "reference"] as const;

/** Loads a model and computes a token of it. */
async function useModel(path: string, random: Random): Promise<void> {
  const checkpoint = openCheckpoint(path);
  const backend = openBackend(random.pick(DEVICES), 2);
  try {
    await using model = await Model.open(checkpoint, [backend], { contextLength: 32 });
    await model.complete(Int32Array.of(0, 1, 2), { maxTokens: 2, temperature: 0 });
  } finally {
    backend.close();
  }
}

const models = new TempFolder();
const original = writeRandomLlama(models.at("model"), { hidden: 32, intermediate: 32, headDim: 8 });
const FILES = Array.from(Deno.readDirSync(original.folder), ({ name }) => name).sort();
globalThis.addEventListener("unload", () => models[Symbol.dispose]());

fuzz("a model's folder, loaded and run", 30, async (random) => {
  using folder = new TempFolder();
  const damaged = random.pick(FILES);
  for (const name of FILES) {
    const bytes = Deno.readFileSync(`${original.folder}/${name}`);
    folder.write(name, name === damaged ? damage(name, bytes, random) : bytes);
  }
  await useModel(folder.path, random);
});

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
