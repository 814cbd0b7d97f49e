/**
 * EAGLE-3: a head with files of its own that predicts the token after a given one from its
 * embedding and three hidden states of the model for the token before it, of a low, a middle and a
 * high layer. In a chain of drafts its own hidden state takes their place. Y. Li et al.,
 * arXiv:2503.01840.
 */
import type { Value } from "../../backend.ts";
import { ForgeError } from "../../errors.ts";
import type { Checkpoint } from "../../formats/checkpoint.ts";
import { InputFile } from "../../formats/file.ts";
import { isJsonObject } from "../../formats/json.ts";
import { quote } from "../../formats/quote.ts";
import type { TensorInfo } from "../../formats/tensor_info.ts";
import type { ForwardPass, LayerKvShape, ModelSource } from "../causal_lm.ts";
import { ConfigReader } from "../config/config_reader.ts";
import { type DecoderConfig, decoderConfig } from "../config/decoder_config.ts";
import { biasRule, kvShape, loadAttention, loadGatedMlp, loadRmsNorm } from "./blocks.ts";
import { type DraftHead, hiddenShape } from "./draft_head.ts";
import type { TensorName } from "../weights/weight_loader.ts";
import { readRope } from "./rope.ts";

/** Architectures of config.json that are EAGLE-3 heads. */
const ARCHITECTURE = /Eagle3/i;

const EMBEDDING: TensorName = ["embed_tokens", "token_embd"];
const FUSION: TensorName = ["fc", "fc"];
/** The norm before the fusion, of all three states at once. */
const FUSION_NORM: TensorName = ["input_norm", "enc.output_norm"];
const EMBEDDING_NORM: TensorName = ["input_layernorm", "attn_norm"];
const HIDDEN_NORM: TensorName = ["hidden_norm", "attn_norm_2"];
const MLP_NORM: TensorName = ["post_attention_layernorm", "ffn_norm"];
const FINAL_NORM: TensorName = ["norm", "output_norm"];
const OUTPUT: TensorName = ["lm_head", "output"];
/** Tokens that the head drafts: differences of ids in folders, ids of the model in GGUF files. */
const TOKEN_MAP: TensorName = ["d2t", "d2t"];

/** True if files hold an EAGLE-3 head, not a whole model. */
export function isEagleHead({ config, modelType }: Checkpoint): boolean {
  const names = config?.architectures;
  return modelType === "eagle3" || config?.draft_vocab_size !== undefined ||
    (Array.isArray(names) && names.some((name) => ARCHITECTURE.test(String(name))));
}

/** Parts of the model that the head is made for. */
interface Target {
  readonly config: DecoderConfig;
  readonly vocabSize: number;
  readonly kvLayers: readonly LayerKvShape[];
  readonly embed: (pass: ForwardPass) => Value;
  readonly logits: (pass: ForwardPass, hidden: Value) => Value;
}

/**
 * Loads a head for a model: a folder in the layout of EAGLE or of speculators, or a GGUF file.
 *
 * @throws {ForgeError} `bad_model` for a head that does not fit the model, or is damaged;
 * `unsupported` for a variant that forge does not compute
 */
export function loadEagleHead(source: ModelSource, files: Checkpoint, target: Target): DraftHead {
  const head = withLayerConfig(files);
  const config = new ConfigReader(head);
  const weights = source.weights.of(head);
  const c = decoderConfig(config);
  checkVariant(head, c);
  const { hiddenSize } = c;
  const prefix = head.tensors.has("model.fc.weight") ? "model." : "";
  const frame = weights.under([prefix, ""]);
  const middle = [`${prefix}midlayer.`, `${prefix}layers.0.`]
    .find((name) => head.tensors.has(`${name}hidden_norm.weight`)) ?? `${prefix}midlayer.`;
  const layer = weights.under([middle, "blk.0."]);

  const fusedSize = 3 * target.config.hiddenSize;
  const fusion = frame.matrix(FUSION, hiddenSize, fusedSize);
  const fusionNorm = eagleBoolean(config, "norm_before_fc")
    ? frame.vector(FUSION_NORM, fusedSize)
    : undefined;
  const ownEmbedding = frame.has(EMBEDDING)
    ? frame.matrix(EMBEDDING, target.vocabSize, hiddenSize)
    : undefined;
  const ownOutput = [weights, frame].find((own) => own.has(OUTPUT));
  const shares = ownEmbedding === undefined || ownOutput === undefined;
  if (shares && hiddenSize !== target.config.hiddenSize) {
    const { hiddenSize: expected } = target.config;
    throw unfit(head, `has hidden states of ${hiddenSize}; the model's are ${expected}`);
  }
  const embed = (pass: ForwardPass) =>
    ownEmbedding === undefined ? target.embed(pass) : pass.recorder.embed(ownEmbedding);
  const embeddingNorm = loadRmsNorm(layer, c, EMBEDDING_NORM);
  const hiddenNorm = loadRmsNorm(layer, c, HIDDEN_NORM);
  const index = target.kvLayers.length;
  const attention = loadAttention(layer, c, index, {
    rope: readRope(config, {
      headDim: c.headDim,
      contextLength: c.contextLength,
      sessionLength: Math.min(source.sessionLength ?? c.contextLength, c.contextLength),
      // llama.cpp's converter reorders the rows of q and k, as it does for Llama.
      layout: config.isGguf ? "interleaved" : "half",
      divisors: { always: weights.optionalNumbers([undefined, "rope_freqs"]) },
    }),
    bias: biasRule(config, "attention_bias"),
    inputSize: 2 * hiddenSize,
  });
  const mlpNorm = loadRmsNorm(layer, c, MLP_NORM);
  const mlp = loadGatedMlp(layer, c);
  const finalNorm = loadRmsNorm(frame, c, FINAL_NORM);
  const map = [frame, weights].find((own) => own.has(TOKEN_MAP, ""));
  const vocabSize = config.int(["draft_vocab_size", undefined], {
    fallback: config.isGguf && map ? head.tensors.get("d2t")!.shape[0]! : target.vocabSize,
  });
  const tokens = readTokens(
    map?.tensor(TOKEN_MAP, "", [vocabSize]),
    head,
    vocabSize,
    target.vocabSize,
  );
  if (ownOutput === undefined && tokens !== undefined) {
    throw unfit(head, "has a d2t, but no output matrix with a row for each of its tokens");
  }
  const output = ownOutput?.matrix(OUTPUT, vocabSize, hiddenSize);
  const isNormedFirst = eagleBoolean(config, "norm_before_residual");

  const begin = (pass: ForwardPass, before: Value) => {
    const hidden = hiddenNorm(pass, before);
    const pieces = [embeddingNorm(pass, embed(pass)), hidden];
    const both = pass.recorder.gatherColumns(
      pieces.map((value) => ({ value, width: hiddenSize })),
      1,
    );
    return { both, residual: isNormedFirst ? hidden : before };
  };
  return {
    kvLayers: [kvShape(c), hiddenShape(hiddenSize)],
    captures: capturedLayers(head, target.config.nLayers),
    keep: (pass, states) => {
      const { recorder, kv } = pass;
      const width = target.config.hiddenSize;
      const all = recorder.gatherColumns(states.map((value) => ({ value, width })), 1);
      const normed = fusionNorm ? recorder.rmsNorm(all, fusionNorm, { eps: c.normEps }) : all;
      const hidden = recorder.matmul(normed, fusion);
      const { both } = begin(pass, recorder.previousRows(hidden, kv[index + 1]!));
      attention.append!(pass, both);
    },
    draft: (pass) => {
      const { recorder, kv } = pass;
      const { both, residual } = begin(pass, recorder.previousRows(undefined, kv[index + 1]!));
      const h = attention(pass, both, residual);
      const hidden = mlp(pass, mlpNorm(pass, h), h);
      recorder.previousRows(hidden, kv[index + 1]!);
      return hidden;
    },
    logits: (pass, hidden) => {
      const normed = finalNorm(pass, hidden);
      return output === undefined
        ? target.logits(pass, normed)
        : pass.recorder.matmul(normed, output);
    },
    tokens,
  };
}

/** Returns a folder whose settings of the layer are not nested, as those of speculators are. */
function withLayerConfig(head: Checkpoint): Checkpoint {
  const layer = head.config?.transformer_layer_config;
  if (!isJsonObject(layer)) return head;
  const { model_type: modelType } = layer;
  return {
    ...head,
    modelType: typeof modelType === "string" ? modelType : head.modelType,
    config: { ...head.config, ...layer },
  };
}

/** Reads a setting of heads, which NVIDIA's folders nest. @default false */
function eagleBoolean(config: ConfigReader, name: string): boolean {
  const nested = config.isGguf ? undefined : config.written("eagle_config");
  const value = isJsonObject(nested) ? nested[name] : undefined;
  return typeof value === "boolean" ? value : config.boolean([name, name], false);
}

/** Settings of config.json that change the computation in ways that forge does not support. */
const VARIANTS = ["fc_norm", "norm_output"] as const;

function checkVariant(head: Checkpoint, { nLayers }: DecoderConfig): void {
  const setting = VARIANTS.find((name) => head.config?.[name] === true);
  const problem = nLayers !== 1
    ? `has ${nLayers} layers; forge supports 1`
    : setting && `sets ${quote(setting)}, which forge does not support`;
  if (problem !== undefined) {
    throw new ForgeError("unsupported", `the EAGLE-3 head ${quote(head.path)} ${problem}`);
  }
}

/**
 * Returns the layers whose inputs the head reads, or the usual three. GGUF files and folders of
 * speculators list these layers; `eagle_config` lists the layers before them.
 */
function capturedLayers(head: Checkpoint, nLayers: number): readonly number[] {
  const { config, metadata } = head;
  const settings = config?.eagle_config;
  const before = isJsonObject(settings) ? settings.eagle_aux_hidden_state_layer_ids : undefined;
  const named = config?.eagle_aux_hidden_state_layer_ids ??
    // The key was renamed in 2026.
    metadata?.get("eagle3.target_layers") ?? metadata?.get("eagle3.extract_layers");
  const layers = Array.isArray(before)
    ? before.map((layer) => Number(layer) + 1)
    : Array.isArray(named) || ArrayBuffer.isView(named)
    ? Array.from(named as ArrayLike<unknown>, Number)
    : [2, Math.floor(nLayers / 2), nLayers - 3];
  const areValid = layers.length === 3 &&
    layers.every((layer) => Number.isInteger(layer) && layer >= 0 && layer <= nLayers);
  if (areValid) return layers;
  throw unfit(head, `reads the inputs of layers ${layers.join(", ")}; the model has ${nLayers}`);
}

/** Reads the model's ids of the head's tokens; `undefined` if they are the same. */
function readTokens(
  tensor: TensorInfo | undefined,
  head: Checkpoint,
  vocabSize: number,
  modelVocabSize: number,
): Int32Array | undefined {
  if (tensor === undefined) {
    if (vocabSize === modelVocabSize) return undefined;
    throw unfit(head, `has ${vocabSize} tokens and no d2t; the model has ${modelVocabSize}`);
  }
  if (tensor.type !== "I64") throw unfit(head, `stores d2t as ${tensor.type}, not I64`);
  const stored = new BigInt64Array(vocabSize);
  using file = InputFile.open(tensor.file);
  file.readAt(tensor.offset, new Uint8Array(stored.buffer));
  const isAbsolute = head.kind === "gguf";
  const tokens = Array.from(stored, (value, id) => Number(value) + (isAbsolute ? 0 : id));
  const wrong = tokens.findIndex((token) => token < 0 || token >= modelVocabSize);
  if (wrong < 0) return Int32Array.from(tokens);
  throw unfit(head, `maps token ${wrong} to ${tokens[wrong]}; valid is 0 to ${modelVocabSize - 1}`);
}

function unfit({ path }: Checkpoint, problem: string): ForgeError {
  return new ForgeError("bad_model", `the EAGLE-3 head ${quote(path)} ${problem}`);
}
