/**
 * Multimodal models hold a text model beside what sees and hears: its settings in a part of config.json, its
 * tensors under a prefix. Seen through this file, it is a model of text like any other.
 */
import { isJsonObject, type JsonObject } from "./json.ts";
import type { TensorInfo } from "./tensor_info.ts";
import { TEXT_PART_DEFAULTS } from "./text_part_defaults.ts";

/** Where config.json keeps the settings of the text model. */
const PARTS = ["text_config", "llm_config"] as const;

/** What transformers takes from the whole model's settings where the text model's say nothing. */
const INHERITED = ["bos_token_id", "eos_token_id", "pad_token_id", "quantization_config"];

/** What stands before `embed_tokens.weight`: the decoder's prefix, the most telling first. */
const DECODER_PREFIXES = [
  "model.language_model.",
  "language_model.model.",
  "model.text_model.",
  "language_model.",
  "model.",
  "",
] as const;

/** What may stand before `lm_head.weight`. */
const HEAD_PREFIXES = ["", "language_model.", "model.language_model."] as const;

/** Parts of a multimodal model that share a decoder's plain prefix `model.`. */
const OTHER_SENSES =
  /^model\.(visual|vision|audio|image|speech|multi_modal|mm_|embed_(vision|audio))/;

/** A model of text as a checkpoint shows it. */
export interface TextPart {
  readonly modelType: string;
  readonly config: JsonObject;
  readonly tensors: ReadonlyMap<string, TensorInfo>;
  /** The architecture of the multimodal model that this is a part of. */
  readonly multimodal: string | undefined;
}

/**
 * The model of text in a folder.
 *
 * @param modelType the `model_type` of config.json
 * @param config config.json
 * @param files the tensors by their names in the files
 * @returns tensors under the names they have in a model of text alone: `model.` before those of the decoder,
 * `lm_head.weight`; those of other parts of a multimodal model are left out
 */
export function textPart(
  modelType: string,
  config: JsonObject,
  files: ReadonlyMap<string, TensorInfo>,
): TextPart {
  for (const name of PARTS) {
    const inner = config[name];
    if (!isJsonObject(inner) || typeof inner.model_type !== "string") continue;
    const tensors = renamed(files, true);
    const inherited = INHERITED.map((key) => [key, inner[key] ?? config[key]] as const)
      .filter(([, value]) => value !== undefined);
    return {
      modelType: inner.model_type,
      config: {
        ...TEXT_PART_DEFAULTS[inner.model_type],
        ...inner,
        ...Object.fromEntries(inherited),
        // Neither part of the settings can be relied upon: an output matrix that is there is meant.
        tie_word_embeddings: !tensors.has("lm_head.weight") &&
          (inner.tie_word_embeddings ?? config.tie_word_embeddings ?? true),
      },
      tensors,
      multimodal: modelType,
    };
  }
  // Some have their text model's settings beside those of what sees.
  const isWhole = isJsonObject(config.vision_config);
  return {
    modelType,
    config,
    tensors: renamed(files, isWhole),
    multimodal: isWhole ? modelType : undefined,
  };
}

function renamed(
  files: ReadonlyMap<string, TensorInfo>,
  isPart: boolean,
): ReadonlyMap<string, TensorInfo> {
  const prefix = DECODER_PREFIXES.find((start) => files.has(`${start}embed_tokens.weight`));
  const head = HEAD_PREFIXES.map((start) => `${start}lm_head`)
    .find((name) => files.has(`${name}.weight`));
  if (prefix === undefined || (prefix === "model." && !isPart)) return files;
  const tensors = new Map<string, TensorInfo>();
  for (const [name, tensor] of files) {
    if (head !== undefined && name.startsWith(`${head}.`)) {
      tensors.set(`lm_head${name.slice(head.length)}`, tensor);
    } else if (name.startsWith(prefix) && !(isPart && OTHER_SENSES.test(name))) {
      tensors.set(`model.${name.slice(prefix.length)}`, tensor);
    }
  }
  return tensors;
}
