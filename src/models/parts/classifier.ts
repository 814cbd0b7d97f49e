/**
 * Heads that classify a pooled text. They are computed on the host: a text has one pooled vector,
 * and some models average hidden states before the first layer of the head.
 */
import { ForgeError } from "../../errors.ts";
import { quote } from "../../formats/quote.ts";
import type { Classifier, DenseLayer, ModelSource, Pooling } from "../causal_lm.ts";
import type { TensorName, WeightLoader } from "../weights/weight_loader.ts";

/** Names of a head: an optional layer with its norm, and the layer with a row for each label. */
interface HeadNames {
  readonly dense: TensorName;
  readonly out: TensorName;
  readonly norm?: TensorName | undefined;
}

/** Parts of a classification head. */
interface ClassifierParts {
  readonly names: HeadNames;
  readonly pooling: Pooling;
  readonly activation: DenseLayer["activation"];
  /** Epsilon of the norm. */
  readonly eps?: number | undefined;
}

/**
 * Loads the head of a cross-encoder, or returns `undefined` for a model without one.
 *
 * @throws {ForgeError} `unsupported` for a head without its first layer
 */
export function loadClassifier(
  { config, weights }: ModelSource,
  hiddenSize: number,
  { names, pooling, activation, eps = 0 }: ClassifierParts,
): Classifier | undefined {
  const { dense, out, norm } = names;
  if (!weights.has(out)) return undefined;
  if (weights.isGguf && !weights.has(dense)) {
    throw new ForgeError(
      "unsupported",
      `${quote(config.path)} has the last layer of a classification head without the first ` +
        `(${quote(`${dense[1]}.weight`)}), which llama.cpp's converter drops in BERT: its scores ` +
        "would be wrong; use the folder of safetensors",
    );
  }
  const labels = weights.shape(out)[0] ?? 0;
  const first = denseLayer(weights, dense, hiddenSize, hiddenSize, activation);
  return {
    pooling,
    layers: [
      norm === undefined ? first : {
        ...first,
        norm: {
          weight: readVector(weights, norm, hiddenSize, "weight")!,
          bias: readVector(weights, norm, hiddenSize, "bias"),
          eps,
        },
      },
      denseLayer(weights, out, labels, hiddenSize, "identity"),
    ],
  };
}

/** Loads a layer of a head. */
function denseLayer(
  weights: WeightLoader,
  name: TensorName,
  rows: number,
  cols: number,
  activation: DenseLayer["activation"],
): DenseLayer {
  const matrix = weights.matrix(name, rows, cols);
  let read: Float32Array | undefined;
  return {
    rows,
    cols,
    weight: () => read ??= weights.backend.readWeight(matrix, 0, rows),
    bias: readVector(weights, name, rows, "bias"),
    activation,
  };
}

function readVector(
  weights: WeightLoader,
  name: TensorName,
  size: number,
  suffix: "weight" | "bias",
): Float32Array | undefined {
  if (suffix === "bias" && !weights.has(name, suffix)) return undefined;
  return weights.backend.readWeight(weights.vector(name, size, suffix), 0, 1);
}

/**
 * Layers after the pooling of EmbeddingGemma's GGUF files; folders have them in files of their own.
 */
const PROJECTION = ["dense_2", "dense_3"];

/** Loads the layers of a GGUF file between pooling and vectors. */
export function loadProjection(weights: WeightLoader): readonly DenseLayer[] | undefined {
  const layers = PROJECTION.map((name): TensorName => [undefined, name])
    .filter((name) => weights.has(name))
    .map((name) => {
      const [rows = 0, cols = 0] = weights.shape(name);
      return denseLayer(weights, name, rows, cols, "identity");
    });
  return layers.length === 0 ? undefined : layers;
}

/** The head of a decoder, which reads the last token. */
const SCORE: TensorName = ["score", "cls.output"];

/** Loads the head of a decoder that classifies texts, or returns `undefined` without one. */
export function loadScore(weights: WeightLoader, hiddenSize: number): Classifier | undefined {
  if (!weights.has(SCORE)) return undefined;
  const labels = weights.shape(SCORE)[0] ?? 0;
  return {
    pooling: "last",
    layers: [denseLayer(weights, SCORE, labels, hiddenSize, "identity")],
  };
}
