/**
 * The text model of a multimodal folder. Such folders store its settings in a part of config.json
 * and its tensors under a prefix, next to encoders of images or sound. This module presents it like
 * any other text model.
 */
import { isJsonObject, type JsonObject } from "./json.ts";

/** Keys of config.json with the settings of the text model. */
const PARTS = ["text_config", "llm_config"] as const;

/** Settings that transformers takes from the whole model if the text model has none. */
const INHERITED = ["bos_token_id", "eos_token_id", "pad_token_id", "quantization_config"];

/** Prefixes of the decoder's tensors, the most specific first. */
const DECODER_PREFIXES = [
  // Speech models saved by transformers 5.
  "language_model.model.model.",
  "model.language_model.model.",
  "model.language_model.",
  "language_model.model.",
  "model.text_model.",
  "language_model.",
  "model.",
  "",
] as const;

/** Prefixes of the output matrix. */
const HEAD_PREFIXES = ["", "language_model.", "model.language_model."] as const;

/** Other parts of a multimodal model that share the decoder's plain prefix `model.`. */
const OTHER_PARTS =
  /^model\.(visual|vision|audio|image|speech|multi_modal|mm_|embed_(vision|audio))/;

/** The embedding of tokens of an encoder, after the prefix of the whole encoder. */
const ENCODER_EMBEDDING = /^(.*?)embeddings\.(?:word|tok)_embeddings\.weight$/;

/**
 * Names in the layers of encoders, and the names that decoders have for the same tensors: of BERT
 * and RoBERTa, then of ModernBERT, then of Nomic's and Jina's files.
 */
const ENCODER_NAMES: readonly (readonly [pattern: RegExp, name: string])[] = [
  [/\.gamma$/, ".weight"],
  [/\.beta$/, ".bias"],
  [/^encoder\.layers?\./, "layers."],
  [/\battention\.self\.(query|key|value)\b/, "self_attn.$1"],
  [/\bself_attn\.query\b/, "self_attn.q_proj"],
  [/\bself_attn\.key\b/, "self_attn.k_proj"],
  [/\bself_attn\.value\b/, "self_attn.v_proj"],
  [/\battention\.output\.dense\b/, "self_attn.o_proj"],
  [/\battention\.output\.LayerNorm\b/, "post_attention_layernorm"],
  [/\bintermediate\.dense\b/, "mlp.up_proj"],
  [/\boutput\.dense\b/, "mlp.down_proj"],
  [/\boutput\.LayerNorm\b/, "post_mlp_layernorm"],
  [/\btok_embeddings\b/, "word_embeddings"],
  [/^(?:embeddings\.norm|emb_ln)\b/, "embeddings.LayerNorm"],
  [/\b(?:attn|mixer)\.Wqkv\b/, "self_attn.qkv_proj"],
  [/\b(?:attn\.Wo|(?:attn|mixer)\.out_proj)\b/, "self_attn.o_proj"],
  [/\bmlp\.Wi\b/, "mlp.gate_up_proj"],
  [/\bmlp\.(?:Wo|fc2)\b/, "mlp.down_proj"],
  [/\bmlp\.fc12\b/, "mlp.gate_proj"],
  [/\bmlp\.fc11?\b/, "mlp.up_proj"],
  [/\bnorm1\b/, "post_attention_layernorm"],
  [/\bnorm2\b/, "post_mlp_layernorm"],
  [/^final_norm\b/, "norm"],
];

/** The embedding of tokens in models whose layers have a mixer (Nemotron-H, Mamba-2). */
const MIXER_EMBEDDING = /^backbone\.embeddings?\./;

/** Names in such models, and the names that other decoders have for the same tensors. */
const MIXER_NAMES: readonly (readonly [pattern: RegExp, name: string])[] = [
  [MIXER_EMBEDDING, "model.embed_tokens."],
  [/^backbone\.norm_f\./, "model.norm."],
  [/^backbone\./, "model."],
  [/\.mixer\.([qkvo]_proj)\./, ".self_attn.$1."],
  [/\.mixer\.(?=(?:up|down)_proj\.|gate\.|experts\.|shared_experts\.|fc[12]_latent)/, ".mlp."],
  [/\.mixer\./, ".mamba."],
];

/** A text model as a checkpoint presents it. */
interface TextPart {
  readonly modelType: string;
  readonly config: JsonObject;
  /**
   * Returns the name of a stored tensor in a text-only model: `model.…` for the decoder and
   * `lm_head.weight`. Tensors of encoders have the names of decoders. `undefined` for tensors of
   * other parts of a multimodal model.
   */
  readonly nameOf: (stored: string) => string | undefined;
  /** Architecture of the multimodal model that contains it. */
  readonly multimodal: string | undefined;
}

/**
 * Describes the text model of a folder.
 *
 * @param modelType `model_type` of config.json
 * @param config config.json
 * @param stored names of the tensors in the files
 */
export function textPart(
  modelType: string,
  config: JsonObject,
  stored: Iterable<string>,
): TextPart {
  const names = [...stored];
  for (const key of PARTS) {
    const inner = config[key];
    if (!isJsonObject(inner) || typeof inner.model_type !== "string") continue;
    const { nameOf, hasHead } = naming(names, true);
    const inherited = INHERITED.map((key) => [key, inner[key] ?? config[key]] as const)
      .filter(([, value]) => value !== undefined);
    return {
      modelType: inner.model_type,
      config: {
        ...inner,
        ...Object.fromEntries(inherited),
        // The two settings may disagree; the tensors in the files decide.
        tie_word_embeddings: !hasHead &&
          (inner.tie_word_embeddings === true || (config.tie_word_embeddings ?? true)),
      },
      nameOf,
      multimodal: modelType,
    };
  }
  // Some models store the text settings at the top level, next to those of the vision encoder.
  const isWhole = isJsonObject(config.vision_config);
  return {
    modelType,
    config,
    nameOf: naming(names, isWhole).nameOf,
    multimodal: isWhole ? modelType : undefined,
  };
}

function naming(
  stored: readonly string[],
  isPart: boolean,
): Pick<TextPart, "nameOf"> & { readonly hasHead: boolean } {
  const encoder = stored.map((name) => ENCODER_EMBEDDING.exec(name)?.[1]).find((p) =>
    p !== undefined
  );
  if (encoder !== undefined) {
    return { nameOf: (name) => encoderName(name, encoder), hasHead: false };
  }
  if (stored.some((name) => MIXER_EMBEDDING.test(name))) {
    const hasHead = stored.some((name) => name.startsWith("lm_head."));
    return { nameOf: (name) => replaced(name, MIXER_NAMES), hasHead };
  }
  // Packed matrices have several tensors, whose names do not end with "weight".
  const has = (module: string) => stored.some((name) => name.startsWith(`${module}.`));
  const prefix = DECODER_PREFIXES.find((start) => has(`${start}embed_tokens`));
  const head = HEAD_PREFIXES.map((start) => `${start}lm_head`).find(has);
  const hasHead = head !== undefined;
  if (prefix === undefined || (prefix === "model." && !isPart)) {
    return { nameOf: (name) => name, hasHead };
  }
  return {
    hasHead,
    nameOf: (name) => {
      // Qwen3.5 stores its layer for multi-token prediction outside of the text part.
      if (name.startsWith("mtp.")) return name;
      if (hasHead && name.startsWith(`${head}.`)) return `lm_head${name.slice(head.length)}`;
      return name.startsWith(prefix) && !(isPart && OTHER_PARTS.test(name))
        ? `model.${name.slice(prefix.length)}`
        : undefined;
    },
  };
}

/** Returns the name of an encoder's tensor; those outside the encoder, of its head, keep theirs. */
function encoderName(stored: string, prefix: string): string {
  if (!stored.startsWith(prefix)) return stored;
  return `model.${replaced(stored.slice(prefix.length), ENCODER_NAMES)}`;
}

function replaced(name: string, names: readonly (readonly [pattern: RegExp, name: string])[]) {
  return names.reduce((name, [pattern, replacement]) => name.replace(pattern, replacement), name);
}

/**
 * Returns the names that a tensor may have in a text-only model (see {@linkcode textPart}), for a
 * tensor whose neighbours are unknown, such as the only adapted matrix of a model.
 */
export function textModelNames(stored: string): string[] {
  const heads = HEAD_PREFIXES.filter((prefix) => stored.startsWith(`${prefix}lm_head.`))
    .map((prefix) => stored.slice(prefix.length));
  const inDecoder = DECODER_PREFIXES.filter((prefix) => stored.startsWith(prefix))
    .map((prefix) => `model.${stored.slice(prefix.length)}`);
  const inEncoder = ["", /^\w+\./.exec(stored)?.[0] ?? ""]
    .map((prefix) => encoderName(stored, prefix));
  const names = [stored, ...heads, ...inDecoder, ...inEncoder];
  return [...new Set([...names, ...names.map((name) => replaced(name, MIXER_NAMES))])];
}
