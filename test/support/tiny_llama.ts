/** Writes small Llama models for tests, with random weights or with a scripted text. */
import { join } from "@std/path";
import { byteToChar } from "../../src/tokenizer/byte_level.ts";
import { Random } from "./random.ts";
import { encodeSafetensors, writeModelFolder } from "./safetensors_writer.ts";
import { float32Tensor, type TensorData } from "../../src/formats/tensor_data.ts";

/** Ids of the special tokens of every model in this file. */
export const BOS = 0;
export const EOS = 1;

const SPECIALS = ["<s>", "</s>"];
const PRINTABLE = Array.from({ length: 95 }, (_, i) => String.fromCharCode(0x20 + i));

export interface TinyLlamaOptions {
  /**
   * Tokens besides BOS, EOS and the printable ASCII characters; bytes may end within a character.
   */
  readonly pieces?: readonly (string | Uint8Array)[];
  /** The pieces that are control tokens. */
  readonly controls?: readonly string[];
  /** @default 256 */
  readonly contextLength?: number;
  /** @default 64 */
  readonly hidden?: number;
  /** @default 96 */
  readonly intermediate?: number;
  /** @default 16 */
  readonly headDim?: number;
  /** @default 2 */
  readonly layers?: number;
  /** True to add a layer for multi-token prediction. @default false */
  readonly predictor?: boolean;
  /** Source of tokenizer_config.json's chat template. */
  readonly chatTemplate?: string;
  readonly generationConfig?: Readonly<Record<string, unknown>>;
  /** Replaces settings of config.json. */
  readonly config?: Readonly<Record<string, unknown>>;
  /** Replaces settings of tokenizer_config.json. */
  readonly tokenizerConfig?: Readonly<Record<string, unknown>>;
  /** Changes the tensors before they are written. */
  readonly change?: (tensors: TensorData[]) => TensorData[];
}

/** The written model. */
export interface TinyLlama {
  readonly folder: string;
  /** The id of a token by its text. */
  readonly idOf: (piece: string) => number;
}

const SHAPE = { hidden: 64, intermediate: 96, layers: 2, heads: 4, kvHeads: 2, headDim: 16 };

/** Makes the values of one tensor. */
type Values = (name: string, shape: readonly number[]) => Float32Array<ArrayBuffer>;

/**
 * Writes a model with random weights that depend only on the seed, so that every token depends on
 * all previous tokens.
 */
export function writeRandomLlama(
  folder: string,
  options: TinyLlamaOptions = {},
  seed = 1,
): TinyLlama {
  return write(folder, options, (name, shape) => {
    const count = shape.reduce((product, size) => product * size, 1);
    if (shape.length === 1) return new Float32Array(count).fill(1);
    return new Random(name, seed).normals(count, 1.5 / Math.sqrt(shape.at(-1)!));
  });
}

/**
 * Writes a model whose next token depends on the last one alone, and whose layer for multi-token
 * prediction gives the same logits, but for rounding.
 */
export function writeForeseeingLlama(
  folder: string,
  options: TinyLlamaOptions = {},
  seed = 1,
): TinyLlama {
  return writeRandomLlama(folder, {
    ...options,
    predictor: true,
    change: (tensors) =>
      tensors.map(({ name, shape, data }) => {
        const values = new Float32Array(shape.reduce((product, size) => product * size, 1));
        if (/(o_proj|down_proj)\.weight$/.test(name)) return float32Tensor(name, shape, values);
        if (!name.endsWith("eh_proj.weight")) {
          return { ...float32Tensor(name, shape, values), data };
        }
        const [rows = 0, cols = 0] = shape;
        for (let row = 0; row < rows; row++) values[row * cols + row] = 1;
        return float32Tensor(name, shape, values);
      }),
  }, seed);
}

/**
 * Writes a model that never ends a text by itself: the logit of EOS is always 0, never the largest.
 */
export function writeEndlessLlama(folder: string, options: TinyLlamaOptions = {}): TinyLlama {
  return writeRandomLlama(folder, {
    contextLength: 32768,
    ...options,
    change: (tensors) =>
      tensors.map((tensor) => {
        if (tensor.name !== "lm_head.weight") return tensor;
        const rowBytes = 4 * tensor.shape[1]!;
        const data = (tensor.data as Uint8Array).slice();
        return { ...tensor, data: data.fill(0, EOS * rowBytes, (EOS + 1) * rowBytes) };
      }),
  });
}

/**
 * Writes a model that continues any prompt with `script` and then ends the text; each token is by
 * far the most probable. The pieces of the script must differ.
 */
export function writeScriptedLlama(
  folder: string,
  script: readonly (string | Uint8Array)[],
  options: TinyLlamaOptions = {},
): TinyLlama {
  const pieces = [...options.pieces ?? [], ...script];
  const { ids, spelling } = vocabularyOf(pieces, options.controls);
  const steps = [...script.map((piece) => ids.get(spelling(piece))!), EOS];
  return write(folder, { ...options, pieces }, (name, shape) => {
    const values = new Float32Array(shape.reduce((product, size) => product * size, 1));
    const cols = shape.at(-1)!;
    if (shape.length === 1) return values.fill(1);
    // Attention and MLPs add nothing, so only the last token matters.
    const isEmbedding = name === "model.embed_tokens.weight";
    if (!isEmbedding && name !== "lm_head.weight") return values;
    const state = (step: number) => new Random(`state ${step}`, 1).normals(cols);
    const [rows] = shape;
    // A token is the state that it leads to; tokens outside of the script lead to its beginning.
    for (let id = 0; id < rows!; id++) {
      const step = steps.indexOf(id);
      if (isEmbedding) values.set(state(step + 1), id * cols);
      else if (step >= 0) values.set(state(step), id * cols);
    }
    return values;
  });
}

function write(folder: string, options: TinyLlamaOptions, values: Values): TinyLlama {
  const { pieces = [], contextLength = 256, generationConfig, chatTemplate, change } = options;
  const { texts, ids, spelling } = vocabularyOf(pieces, options.controls);
  const { heads, kvHeads } = SHAPE;
  const { hidden, intermediate, headDim, layers } = { ...SHAPE, ...options };
  const tensors: TensorData[] = [];
  const add = (name: string, ...shape: number[]) =>
    tensors.push(float32Tensor(`${name}.weight`, shape, values(`${name}.weight`, shape)));
  add("model.embed_tokens", texts.length, hidden);
  for (let i = 0; i < (options.predictor ? layers + 1 : layers); i++) {
    const layer = `model.layers.${i}`;
    add(`${layer}.input_layernorm`, hidden);
    add(`${layer}.self_attn.q_proj`, heads * headDim, hidden);
    add(`${layer}.self_attn.k_proj`, kvHeads * headDim, hidden);
    add(`${layer}.self_attn.v_proj`, kvHeads * headDim, hidden);
    add(`${layer}.self_attn.o_proj`, hidden, heads * headDim);
    add(`${layer}.post_attention_layernorm`, hidden);
    add(`${layer}.mlp.gate_proj`, intermediate, hidden);
    add(`${layer}.mlp.up_proj`, intermediate, hidden);
    add(`${layer}.mlp.down_proj`, hidden, intermediate);
  }
  if (options.predictor) {
    const layer = `model.layers.${layers}`;
    for (const norm of ["enorm", "hnorm", "shared_head.norm"]) add(`${layer}.${norm}`, hidden);
    add(`${layer}.eh_proj`, hidden, 2 * hidden);
  }
  add("model.norm", hidden);
  add("lm_head", texts.length, hidden);

  const config = {
    model_type: "llama",
    hidden_size: hidden,
    intermediate_size: intermediate,
    num_hidden_layers: layers,
    num_attention_heads: heads,
    num_key_value_heads: kvHeads,
    head_dim: headDim,
    hidden_act: "silu",
    max_position_embeddings: contextLength,
    rms_norm_eps: 1e-5,
    rope_theta: 10000,
    tie_word_embeddings: false,
    vocab_size: texts.length,
    ...options.config,
  };
  const tokenizerConfig = {
    bos_token: SPECIALS[BOS],
    eos_token: SPECIALS[EOS],
    add_bos_token: true,
    ...(chatTemplate === undefined ? {} : { chat_template: chatTemplate }),
    ...options.tokenizerConfig,
  };
  const files = {
    "config.json": config,
    "tokenizer.json": tokenizerJson(texts, [...SPECIALS, ...options.controls ?? []]),
    "tokenizer_config.json": tokenizerConfig,
    ...(generationConfig === undefined ? {} : { "generation_config.json": generationConfig }),
  };
  writeModelFolder(folder, files, change?.(tensors) ?? tensors);
  return {
    folder,
    idOf: (piece) => ids.get(spelling(piece)) ?? -1,
  };
}

/** The tokens in the spelling of the vocabulary, and their ids. */
function vocabularyOf(
  pieces: readonly (string | Uint8Array)[],
  controls: readonly string[] = [],
) {
  const kept = new Set<unknown>([...SPECIALS, ...controls]);
  const spelling = (piece: string | Uint8Array) => kept.has(piece) ? `${piece}` : spell(piece);
  const texts = [...new Set([...SPECIALS, ...PRINTABLE, ...pieces].map(spelling))];
  return { texts, spelling, ids: new Map(texts.map((text, id) => [text, id])) };
}

/** Bytes in GPT-2's alphabet, in which the tokenizer's vocabulary is written. */
function spell(piece: string | Uint8Array): string {
  const bytes = typeof piece === "string" ? new TextEncoder().encode(piece) : piece;
  return Array.from(bytes, byteToChar).join("");
}

function tokenizerJson(texts: readonly string[], controls: readonly string[]) {
  return {
    added_tokens: controls.map((content) => ({
      id: texts.indexOf(content),
      content,
      special: true,
    })),
    normalizer: null,
    pre_tokenizer: { type: "ByteLevel", add_prefix_space: false, use_regex: false },
    post_processor: null,
    decoder: { type: "ByteLevel" },
    model: {
      type: "BPE",
      vocab: Object.fromEntries(texts.map((text, id) => [text, id])),
      merges: [],
    },
  };
}

/** Writes an adapter of peft for models of the usual shape, which changes most tokens. */
export function writeLlamaAdapter(path: string): void {
  const shapes = { q_proj: [64, 64], o_proj: [64, 64] } as const;
  const tensors = [0, 1].flatMap((layer) =>
    Object.entries(shapes).flatMap(([name, [rows, cols]]) => {
      const module = `base_model.model.model.layers.${layer}.self_attn.${name}`;
      return ([["lora_A", [4, cols]], ["lora_B", [rows, 4]]] as const).map(([part, shape]) => {
        const values = new Random(`${module}.${part}`, 1).normals(shape[0] * shape[1], 0.4);
        return float32Tensor(`${module}.${part}.weight`, shape, Float32Array.from(values));
      });
    })
  );
  Deno.mkdirSync(path);
  Deno.writeTextFileSync(
    join(path, "adapter_config.json"),
    JSON.stringify({
      peft_type: "LORA",
      r: 4,
      lora_alpha: 8,
      target_modules: Object.keys(shapes),
    }),
  );
  Deno.writeFileSync(join(path, "adapter_model.safetensors"), encodeSafetensors({ tensors }));
}
