/** Facts about a model, from its headers and configuration. */
import { type EmbeddingRecipe, embeddingRecipe } from "../../engine/embedding/pooling.ts";
import { endTokens } from "../../engine/load/tokenizer.ts";
import { DEFAULT_CONTEXT } from "../../engine/limits.ts";
import {
  kvBytesPerToken,
  type ModelPlan,
  planModel,
  stateBytes,
} from "../../engine/load/plan_model.ts";
import { MAX_CHUNK, maxOutputs } from "../../engine/runner.ts";
import { ForgeError } from "../../errors.ts";
import type { TensorType } from "../../formats/tensor_info.ts";
import { type Checkpoint, openTokenizer, type TensorInfo } from "../../mod.ts";
import { ConfigReader, type Key } from "../../models/config/config_reader.ts";

const F16_BYTES = 2;

/** Facts with the keys of `--json`. */
export interface ModelFacts {
  readonly path: string;
  readonly format: Checkpoint["kind"];
  readonly name: string | null;
  readonly architecture: string;
  /** Architecture of the multimodal model, if this is the text part of one. */
  readonly multimodal: string | null;
  /** Reason why forge cannot run it; `null` if it can. */
  readonly problem: string | null;
  readonly files: readonly string[];
  readonly parameters: number;
  readonly bytes: number;
  readonly config: ConfigFacts;
  readonly types: Readonly<Record<string, { readonly tensors: number; readonly bytes: number }>>;
  /** True if a layer of the model drafts tokens. */
  readonly multi_token_prediction: boolean;
  readonly unused_tensors: readonly string[];
  readonly tokenizer: TokenizerFacts | null;
  readonly chat_template: string | null;
  /** Pooling that the files define; `null` if they define none, or an unsupported one. */
  readonly embedding: EmbeddingRecipe | null;
  readonly memory: MemoryFacts;
}

/** Sizes of the architecture; `null` if the configuration lacks them. */
export interface ConfigFacts {
  readonly layers: number | null;
  readonly hidden_size: number | null;
  readonly intermediate_size: number | null;
  readonly heads: number | null;
  readonly kv_heads: number | null;
  readonly head_dim: number | null;
  readonly experts: number | null;
  readonly experts_used: number | null;
  readonly context_length: number | null;
  readonly sliding_window: number | null;
  readonly rope_theta: number | null;
  readonly rope_scaling: string | null;
}

/** Facts about the tokenizer. */
interface TokenizerFacts {
  readonly description: string;
  readonly vocab_size: number;
  readonly add_bos: boolean;
  readonly add_eos: boolean;
  readonly bos: SpecialToken | null;
  /** Tokens that end an answer. */
  readonly end: readonly SpecialToken[];
}

/** A token at the beginning or end of a text. */
export interface SpecialToken {
  readonly id: number;
  readonly text: string;
}

/** Memory of a loaded model in bytes; `null` if the configuration lacks a size. */
interface MemoryFacts {
  readonly weights: number;
  /** For a cache in F16. */
  readonly kv_per_token: number | null;
  /** Context length that `kv_default` is for. */
  readonly default_context: number | null;
  readonly kv_default: number | null;
  /** Recurrent state of one sequence; 0 without one. */
  readonly state_per_sequence: number;
  /** Estimated. */
  readonly activations: number | null;
}

const CONFIG_KEYS = {
  layers: [["num_hidden_layers", "block_count"]],
  hidden_size: [["hidden_size", "embedding_length"]],
  intermediate_size: [["intermediate_size", "feed_forward_length"], [
    "moe_intermediate_size",
    "expert_feed_forward_length",
  ]],
  heads: [["num_attention_heads", "attention.head_count"]],
  kv_heads: [["num_key_value_heads", "attention.head_count_kv"]],
  head_dim: [["head_dim", "attention.key_length"]],
  experts: [["num_local_experts", "expert_count"], ["num_experts", undefined]],
  experts_used: [["num_experts_per_tok", "expert_used_count"]],
  context_length: [["max_position_embeddings", "context_length"]],
  sliding_window: [["sliding_window", "attention.sliding_window"]],
} as const satisfies Partial<Record<keyof ConfigFacts, readonly Key[]>>;

/**
 * Collects the facts. A problem of the model, such as an unknown architecture, is a fact, not an
 * error.
 */
export function modelFacts(checkpoint: Checkpoint): ModelFacts {
  const tensors = [...checkpoint.tensors.values()];
  const plan = attempt(() => planModel(checkpoint, true));
  const tokenizer = attempt(() => tokenizerFacts(checkpoint));
  const template = attempt(() => checkpoint.chatTemplate);
  const config = configFacts(checkpoint);
  const bytes = sum(tensors.map((tensor) => tensor.bytes));
  const name = checkpoint.metadata?.get("general.name");
  return {
    path: checkpoint.path,
    format: checkpoint.kind,
    name: typeof name === "string" ? name : null,
    architecture: checkpoint.modelType,
    multimodal: checkpoint.multimodal ?? null,
    problem: plan.problem ?? tokenizer.problem ?? template.problem ?? null,
    files: checkpoint.files,
    parameters: sum(tensors.map(elements)),
    bytes,
    config,
    types: typeFacts(tensors),
    multi_token_prediction: plan.value?.predicts ?? false,
    unused_tensors: plan.value?.unusedTensors ?? [],
    tokenizer: tokenizer.value ?? null,
    chat_template: template.value ?? null,
    embedding: embeddingFacts(checkpoint),
    memory: memoryFacts(config, tokenizer.value?.vocab_size, plan.value, bytes),
  };
}

function embeddingFacts(checkpoint: Checkpoint): EmbeddingRecipe | null {
  const { value } = attempt(() => embeddingRecipe(checkpoint));
  return value?.pooling === undefined && value?.normalize === undefined ? null : value;
}

function elements(tensor: TensorInfo): number {
  return tensor.shape.reduce((product, size) => product * size, 1);
}

function attempt<T>(work: () => T): { readonly value?: T; readonly problem?: string } {
  try {
    return { value: work() };
  } catch (error) {
    if (error instanceof ForgeError) return { problem: error.message };
    throw error;
  }
}

function configFacts(checkpoint: Checkpoint): ConfigFacts {
  const config = new ConfigReader(checkpoint);
  const find = (keys: readonly Key[]) =>
    keys.map((key) => config.raw(key)).find((value) => typeof value === "number") ?? null;
  const numbers = Object.fromEntries(
    Object.entries(CONFIG_KEYS).map(([name, keys]) => [name, find(keys)]),
  ) as Record<keyof typeof CONFIG_KEYS, number | null>;
  const { heads, hidden_size } = numbers;
  const derived = heads !== null && hidden_size !== null ? Math.floor(hidden_size / heads) : null;
  return {
    ...numbers,
    kv_heads: numbers.kv_heads ?? heads,
    head_dim: numbers.head_dim ?? derived,
    ...ropeFacts(config),
  };
}

function ropeFacts(config: ConfigReader): Pick<ConfigFacts, "rope_theta" | "rope_scaling"> {
  const newer = config.object("rope_parameters");
  const older = config.object("rope_scaling");
  const theta = config.raw(["rope_theta", "rope.freq_base"]) ?? newer?.rope_theta;
  const scaling = config.raw([undefined, "rope.scaling.type"]) ?? newer?.rope_type ??
    older?.rope_type ?? older?.type;
  return {
    rope_theta: typeof theta === "number" ? theta : null,
    rope_scaling: typeof scaling === "string" ? scaling : null,
  };
}

function typeFacts(tensors: readonly TensorInfo[]): ModelFacts["types"] {
  const types = new Map<TensorType, { tensors: number; bytes: number }>();
  for (const { type, bytes } of tensors) {
    const entry = types.get(type) ?? { tensors: 0, bytes: 0 };
    types.set(type, { tensors: entry.tensors + 1, bytes: entry.bytes + bytes });
  }
  return Object.fromEntries([...types].sort(([, a], [, b]) => b.bytes - a.bytes));
}

function tokenizerFacts(checkpoint: Checkpoint): TokenizerFacts {
  const tokenizer = openTokenizer(checkpoint);
  const token = (id: number) => ({ id, text: tokenizer.tokenText(id) });
  const isKnown = (id: number) => id >= 0 && id < tokenizer.vocabSize;
  return {
    description: tokenizer.description,
    vocab_size: tokenizer.vocabSize,
    add_bos: tokenizer.addBos,
    add_eos: tokenizer.addEos,
    bos: tokenizer.bosId === undefined ? null : token(tokenizer.bosId),
    end: [...endTokens(checkpoint, tokenizer)].filter(isKnown).map(token),
  };
}

function memoryFacts(
  config: ConfigFacts,
  vocabSize: number | undefined,
  plan: ModelPlan | undefined,
  bytes: number,
): MemoryFacts {
  const limit = plan?.contextLength ?? config.context_length;
  const defaultContext = limit === null ? null : Math.min(limit, DEFAULT_CONTEXT);
  const perToken = plan === undefined
    ? product([config.layers, config.kv_heads, config.head_dim, 2 * F16_BYTES])
    : kvBytesPerToken(plan.kvLayers, F16_BYTES);
  return {
    weights: plan?.weightBytes ?? bytes,
    kv_per_token: perToken,
    default_context: defaultContext,
    kv_default: product([perToken, defaultContext]),
    state_per_sequence: stateBytes(plan?.stateLayers ?? []),
    activations: activationBytes(config, vocabSize ?? plan?.vocabSize, defaultContext),
  };
}

/**
 * Estimates the activations: residual stream and norm, gate, up and their product for each token of
 * a chunk, and the logits of the largest step. Attention takes less than the MLP in most models.
 */
function activationBytes(
  config: ConfigFacts,
  vocabSize: number | undefined,
  context: number | null,
): number | null {
  const { hidden_size, intermediate_size, experts_used } = config;
  if (hidden_size === null || intermediate_size === null || context === null) return null;
  const chunk = Math.min(MAX_CHUNK, context);
  const width = 2 * hidden_size + 3 * intermediate_size * (experts_used ?? 1);
  const logits = vocabSize === undefined ? 0 : vocabSize * Math.min(chunk, maxOutputs(vocabSize));
  return 4 * (chunk * width + logits);
}

function product(factors: readonly (number | null)[]): number | null {
  return factors.reduce((a, b) => a === null || b === null ? null : a * b, 1);
}

function sum(values: readonly number[]): number {
  return values.reduce((a, b) => a + b, 0);
}
