/**
 * EAGLE-3: a head with files of its own that predicts the token after a given one from its embedding
 * and three hidden states of the model for the token before it, of a low, a middle and a high layer.
 * In a chain of drafts its own hidden state takes their place. Y. Li et al., arXiv:2503.01840.
 */
import type { Value } from "../../backend.ts";
import { ForgeError } from "../../errors.ts";
import type { Checkpoint } from "../../formats/checkpoint.ts";
import { InputFile } from "../../formats/file.ts";
import { isJsonObject } from "../../formats/json.ts";
import { quote } from "../../formats/quote.ts";
import type { TensorInfo } from "../../formats/tensor_info.ts";
import { type ForwardPass, type LayerKvShape, ModelSource } from "../causal_lm.ts";
import { type DecoderConfig, decoderConfig } from "../config/decoder_config.ts";
import { biasRule, kvShape, loadAttention, loadGatedMlp, loadRmsNorm } from "./blocks.ts";
import { type DraftHead, hiddenShape } from "./draft_head.ts";
import type { TensorName } from "../weights/weight_loader.ts";
import { readRope } from "./rope.ts";

/** Architectures of config.json that are EAGLE-3 heads. */
const ARCHITECTURE = /Eagle3/i;

const EMBEDDING: TensorName = ["embed_tokens", undefined];
/** Differences between ids of the model and of the head. */
const TOKEN_MAP: TensorName = ["d2t", undefined];

/** True if a folder is an EAGLE-3 head, not a whole model. */
export function isEagleHead({ config }: Checkpoint): boolean {
  const names = config?.architectures;
  return Array.isArray(names) && names.some((name) => ARCHITECTURE.test(String(name)));
}

/** Parts of the model that the head is made for. */
interface Target {
  readonly config: DecoderConfig;
  readonly vocabSize: number;
  readonly kvLayers: readonly LayerKvShape[];
  readonly embed: (pass: ForwardPass) => Value;
}

/**
 * Loads a head for a model.
 *
 * @throws {ForgeError} `bad_model` for a head that does not fit the model, or is damaged
 */
export function loadEagleHead(source: ModelSource, head: Checkpoint, target: Target): DraftHead {
  const { backend } = source.weights;
  const own = new ModelSource(backend, head, { sessionLength: source.sessionLength });
  const { config } = own;
  const weights = source.weights.of(head);
  const c = decoderConfig(config);
  const { hiddenSize } = c;
  const prefix = head.tensors.has("model.fc.weight") ? "model." : "";
  const frame = weights.under([prefix, ""]);
  const middle = [`${prefix}midlayer.`, `${prefix}layers.0.`]
    .find((name) => head.tensors.has(`${name}hidden_norm.weight`)) ?? `${prefix}midlayer.`;
  const layer = weights.under([middle, ""]);

  const fusion = frame.matrix(["fc", undefined], hiddenSize, 3 * target.config.hiddenSize);
  const ownEmbedding = frame.has(EMBEDDING)
    ? frame.matrix(EMBEDDING, target.vocabSize, hiddenSize)
    : undefined;
  if (ownEmbedding === undefined && hiddenSize !== target.config.hiddenSize) {
    const { hiddenSize: expected } = target.config;
    throw unfit(head, `has hidden states of ${hiddenSize}; the model's are ${expected}`);
  }
  const embed = (pass: ForwardPass) =>
    ownEmbedding === undefined ? target.embed(pass) : pass.recorder.embed(ownEmbedding);
  const embeddingNorm = loadRmsNorm(layer, c, ["input_layernorm", undefined]);
  const hiddenNorm = loadRmsNorm(layer, c, ["hidden_norm", undefined]);
  const index = target.kvLayers.length;
  const attention = loadAttention(layer, c, index, {
    rope: readRope(config, {
      headDim: c.headDim,
      contextLength: c.contextLength,
      sessionLength: Math.min(source.sessionLength ?? c.contextLength, c.contextLength),
      layout: "half",
      divisors: {},
    }),
    bias: biasRule(config, "attention_bias", false),
    inputSize: 2 * hiddenSize,
  });
  const mlpNorm = loadRmsNorm(layer, c, ["post_attention_layernorm", undefined]);
  const mlp = loadGatedMlp(layer, c);
  const finalNorm = loadRmsNorm(frame, c, ["norm", undefined]);
  const vocabSize = config.int(["draft_vocab_size", undefined], { fallback: target.vocabSize });
  const output = weights.matrix(["lm_head", undefined], vocabSize, hiddenSize);
  const map = [frame, weights].find((own) => own.has(TOKEN_MAP, ""));
  const tokens = readTokens(
    map?.tensor(TOKEN_MAP, "", [vocabSize]),
    head,
    vocabSize,
    target.vocabSize,
  );
  const isNormedFirst = config.boolean(["norm_before_residual", undefined], false);

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
      const fused = recorder.gatherColumns(states.map((value) => ({ value, width })), 1);
      const hidden = recorder.matmul(fused, fusion);
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
    logits: (pass, hidden) => pass.recorder.matmul(finalNorm(pass, hidden), output),
    tokens,
  };
}

/**
 * Returns the layers whose inputs the head reads: those after the layers that the config names, or
 * the usual three.
 */
function capturedLayers(head: Checkpoint, nLayers: number): readonly number[] {
  const settings = head.config?.eagle_config;
  const named = isJsonObject(settings)
    ? settings.eagle_aux_hidden_state_layer_ids
    : head.config?.eagle_aux_hidden_state_layer_ids;
  const layers = Array.isArray(named)
    ? named.map((layer) => Number(layer) + 1)
    : [2, Math.floor(nLayers / 2), nLayers - 3];
  const areValid = layers.length === 3 &&
    layers.every((layer) => Number.isInteger(layer) && layer >= 0 && layer <= nLayers);
  if (areValid) return layers;
  throw unfit(head, `reads the inputs of layers ${layers.join(", ")}; the model has ${nLayers}`);
}

/** Reads the differences between ids of the model and of the head; `undefined` if all are 0. */
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
  const offsets = new BigInt64Array(vocabSize);
  using file = InputFile.open(tensor.file);
  file.readAt(tensor.offset, new Uint8Array(offsets.buffer));
  const tokens = Int32Array.from(offsets, (offset, id) => id + Number(offset));
  const wrong = tokens.findIndex((token) => token < 0 || token >= modelVocabSize);
  if (wrong < 0) return tokens;
  throw unfit(head, `maps token ${wrong} to ${tokens[wrong]}; valid is 0 to ${modelVocabSize - 1}`);
}

function unfit({ path }: Checkpoint, problem: string): ForgeError {
  return new ForgeError("bad_model", `the EAGLE-3 head ${quote(path)} ${problem}`);
}
