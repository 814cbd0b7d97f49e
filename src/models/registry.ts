import { type Backend, DeviceGroup } from "../backend.ts";
import { ForgeError } from "../errors.ts";
import type { Checkpoint } from "../formats/checkpoint.ts";
import { quote } from "../formats/quote.ts";
import { type Family, type ModelOptions, ModelSource } from "./causal_lm.ts";
import type { ConfigReader } from "./config/config_reader.ts";
import { loadDivided, type LoadedParts } from "./divided_model.ts";
import { apertus } from "./families/apertus.ts";
import { cohere } from "./families/cohere.ts";
import { deepseek } from "./families/deepseek.ts";
import { bert, jinaBertV3, modernBert, nomicBert, roberta } from "./families/encoders.ts";
import { ernie4_5 } from "./families/ernie4_5.ts";
import { exaone4 } from "./families/exaone4.ts";
import { gemma, gemma2, gemma3 } from "./families/gemma.ts";
import { gemma4 } from "./families/gemma4.ts";
import { glm4, glm4Moe } from "./families/glm4.ts";
import { gptOss } from "./families/gpt_oss.ts";
import { granite } from "./families/granite.ts";
import { hunyuan } from "./families/hunyuan.ts";
import { lfm2 } from "./families/lfm2.ts";
import { arcee, llama, phi3, seedOss } from "./families/llama.ts";
import { llama4 } from "./families/llama4.ts";
import { bamba, falconH1 } from "./families/mamba2_hybrids.ts";
import { mistral, mixtral } from "./families/mistral.ts";
import { mamba2, nemotronH } from "./families/nemotron_h.ts";
import { nemotron, starcoder2 } from "./families/nemotron_starcoder2.ts";
import { olmo2, olmoe } from "./families/olmo.ts";
import { phimoe } from "./families/phimoe.ts";
import { qwen2, qwen2Moe, qwen3, qwen3Moe } from "./families/qwen.ts";
import { qwen3_5, qwen3_5Moe, qwen3Next } from "./families/qwen3_5.ts";
import { smollm3 } from "./families/smollm3.ts";
import type { GgufRules } from "./gguf_rules.ts";
import type { WeightLoader } from "./weights/weight_loader.ts";

const FAMILIES: readonly Family[] = [
  apertus,
  arcee,
  bamba,
  bert,
  cohere,
  deepseek,
  ernie4_5,
  exaone4,
  falconH1,
  gemma,
  gemma2,
  gemma3,
  gemma4,
  glm4,
  glm4Moe,
  gptOss,
  granite,
  hunyuan,
  jinaBertV3,
  lfm2,
  llama,
  llama4,
  mamba2,
  mistral,
  mixtral,
  modernBert,
  nemotron,
  nemotronH,
  nomicBert,
  olmo2,
  olmoe,
  phi3,
  phimoe,
  qwen2,
  qwen2Moe,
  qwen3,
  qwen3_5,
  qwen3_5Moe,
  qwen3Moe,
  qwen3Next,
  roberta,
  seedOss,
  smollm3,
  starcoder2,
];

/**
 * Returns the architectures that forge runs, by their names in config.json (`safetensors`) or GGUF.
 */
export function knownArchitectures(kind: Checkpoint["kind"]): string[] {
  return FAMILIES.flatMap((family) => kind === "gguf" ? family.gguf : family.huggingFace);
}

/**
 * Returns the family of a checkpoint.
 *
 * @throws {ForgeError} `unsupported`, listing the known ones
 */
export function findFamily(checkpoint: Checkpoint): Family {
  const { kind, modelType } = checkpoint;
  // GGUF stores Mixtral as "llama".
  if (kind === "gguf" && modelType === "llama" && hasExperts(checkpoint)) return mixtral;
  const family = FAMILIES.find((candidate) =>
    (kind === "gguf" ? candidate.gguf : candidate.huggingFace).includes(modelType)
  );
  if (family !== undefined) return family;
  throw new ForgeError(
    "unsupported",
    `${quote(checkpoint.path)} has the architecture ${
      quote(modelType)
    }, which forge does not support; ` +
      `it supports ${knownArchitectures(kind).join(", ")}`,
  );
}

/**
 * Returns the rules for writing a folder as a GGUF file.
 *
 * @throws {ForgeError} `unsupported` for an architecture that forge does not write
 */
export function ggufRules(checkpoint: Checkpoint): GgufRules {
  const { modelType, path } = checkpoint;
  const rules = findFamily(checkpoint).writes?.[modelType];
  if (rules !== undefined) return rules;
  const written = FAMILIES.flatMap(({ writes = {} }) => Object.keys(writes));
  throw new ForgeError(
    "unsupported",
    `${quote(path)} has the architecture ${
      quote(modelType)
    }, which forge does not write as GGUF; ` +
      `it writes ${written.join(", ")}`,
  );
}

/** A loaded model. */
interface LoadedModel extends LoadedParts {
  /** Loader of the device, or of the first one. */
  readonly weights: WeightLoader;
}

/**
 * Loads a checkpoint's weights onto a device, or divides them among the devices of a group.
 *
 * @throws {ForgeError} `unsupported` for an architecture or a part that forge does not support;
 * `bad_model` if the files lack what the configuration implies
 */
export function loadModel(
  device: Backend | DeviceGroup,
  checkpoint: Checkpoint,
  options: ModelOptions = {},
): LoadedModel {
  const family = findFamily(checkpoint);
  const loadPart = (backend: Backend, options: ModelOptions): LoadedParts => {
    const source = new ModelSource(backend, checkpoint, options);
    const lm = family.load(source);
    if (lm.isBidirectional) source.weights.assertUndivided("attention to later tokens");
    else assertCausal(source.config);
    const adapters = source.adapters === undefined ? [] : [source.adapters];
    return { lm, loaders: [source.weights], adapters };
  };
  const loaded = device instanceof DeviceGroup
    ? loadDivided(device, options, loadPart)
    : loadPart(device, options);
  const { loaders, adapters } = loaded;
  const weights = loaders[0]!;
  // Of a part alone, the rest may be in the parts of other processes.
  if (options.part === undefined) {
    weights.assertLayersUsed(loaders);
    adapters[0]?.assertUsed(adapters, loaders);
  }
  return { ...loaded, weights };
}

function hasExperts(checkpoint: Checkpoint): boolean {
  const count = checkpoint.metadata?.get("llama.expert_count");
  return typeof count === "number" && count > 0;
}

/**
 * Rejects decoders with bidirectional attention, which some embedding models have. Forge would
 * compute causal attention and return wrong results without any sign of it.
 *
 * @throws {ForgeError} `unsupported`
 */
export function assertCausal(config: ConfigReader): void {
  const isCausal = config.raw(["is_causal", "attention.causal"]) ?? true;
  if (isCausal !== true) {
    const key = config.isGguf ? "attention.causal" : "is_causal";
    throw notCausal(config.path, `${key} ${isCausal}`);
  }
  const bidirectional = config.raw(["use_bidirectional_attention", undefined]) ?? false;
  // "vision" concerns image tokens alone, and forge takes no images.
  if (bidirectional !== false && bidirectional !== "vision") {
    throw notCausal(config.path, `use_bidirectional_attention ${bidirectional}`);
  }
}

/** Returns the error for a model that is not causal. @param reason the setting that says so */
function notCausal(path: string, reason: string): ForgeError {
  return new ForgeError(
    "unsupported",
    `${quote(path)} has ${reason}: in this architecture forge computes causal attention only`,
  );
}
