/** A small decoder with random weights that uses every operation. */
import type { Backend, KvCache, KvType, Step, StepInputs, Value } from "../../src/backend.ts";
import { TENSOR_TYPES, type TensorType } from "../../src/formats/tensor_info.ts";
import { type Matrix, stack } from "./matrix.ts";
import type { Random } from "./random.ts";
import { outputRow, StepGraph } from "./step_graph.ts";
import { f32Vector, randomWeight, type TestWeight } from "./weights.ts";

const hidden = 256;
const nHeads = 6;
const nKvHeads = 2;
const headDim = 32;
const ffn = 256;
const nExperts = 5;
const topK = 2;
const vocabulary = 200;

/** The weights of a {@linkcode TinyDecoder}, independent of a device. */
export interface TinyWeights {
  readonly embedding: TestWeight;
  readonly norm: TestWeight;
  readonly qkv: readonly TestWeight[];
  readonly attentionOut: readonly TestWeight[];
  readonly kNorm: TestWeight;
  readonly invFreq: TestWeight;
  readonly router: TestWeight;
  readonly gateUp: readonly TestWeight[];
  readonly down: readonly TestWeight[];
  readonly head: TestWeight;
}

/** Weights of many types; `quantized` replaces the quantized types. */
export function randomTinyWeights(random: Random, quantized?: TensorType): TinyWeights {
  const weight = (type: TensorType, rows: number, cols: number) =>
    randomWeight(
      random,
      TENSOR_TYPES[type].blockElements > 1 ? quantized ?? type : type,
      rows,
      cols,
    );
  const qkvRows = (nHeads + 2 * nKvHeads) * headDim;
  return {
    embedding: weight("Q6_K", vocabulary, hidden),
    norm: f32Vector(random.normals(hidden)),
    qkv: [weight("Q4_K", qkvRows, hidden), weight("F16", qkvRows, hidden)],
    attentionOut: [
      weight("Q8_0", hidden, nHeads * headDim),
      weight("BF16", hidden, nHeads * headDim),
    ],
    kNorm: f32Vector(random.normals(headDim)),
    invFreq: f32Vector(Float32Array.from({ length: headDim / 2 }, (_, i) => 1000 ** (-i / 16))),
    router: weight("F32", nExperts, hidden),
    gateUp: [weight("Q5_K", 2 * ffn, hidden), weight("MXFP4", nExperts * 2 * ffn, hidden)],
    down: [weight("IQ4_XS", hidden, ffn), weight("Q4_0", nExperts * hidden, ffn)],
    head: weight("Q2_K", vocabulary, hidden),
  };
}

/** Limits of a {@linkcode TinyDecoder}. */
export interface TinyLimits {
  readonly maxTokens: number;
  readonly maxSequences: number;
  readonly maxPages: number;
  readonly nPages: number;
  readonly pageTokens: number;
}

/** Recording options of a {@linkcode TinyDecoder}. */
export interface TinyOptions {
  readonly keepAll?: boolean;
  readonly kvTypes?: readonly [KvType, KvType];
}

/** Tokens of a run. */
export type TinyInputs = Omit<StepInputs, "outputs">;

/** The model on a device: a dense layer, then one with experts and a sliding window. */
export class TinyDecoder {
  static readonly vocabulary = vocabulary;
  readonly #step: Step;
  readonly #logits: Value;

  private constructor(step: Step, logits: Value) {
    this.#step = step;
    this.#logits = logits;
  }

  /**
   * Loads the model on a device. With `keepAll`, no value's memory is reused. `kvTypes` are the
   * types of the two layers' caches.
   */
  static async load(
    backend: Backend,
    weights: TinyWeights,
    { nPages, pageTokens, ...limits }: TinyLimits,
    { keepAll = false, kvTypes = ["F16", "F32"] }: TinyOptions = {},
  ): Promise<TinyDecoder> {
    const recorder = backend.record({ ...limits, maxOutputs: limits.maxTokens });
    const graph = new StepGraph(backend, recorder);
    const norm = graph.weight(weights.norm);
    const rope = recorder.ropeTable(graph.weight(weights.invFreq), 1);
    const normed = (x: Value) => recorder.rmsNorm(x, norm, { eps: 1e-5 });

    const attention = (x: Value, layer: number): Value => {
      const kv: KvCache = graph.kv({
        type: kvTypes[layer]!,
        nPages,
        pageTokens,
        nKvHeads,
        kHeadDim: headDim,
        vHeadDim: headDim,
      });
      const q = recorder.ropeAppend(
        recorder.matmul(normed(x), graph.weight(weights.qkv[layer]!)),
        kv,
        { nHeads, kNorm: graph.weight(weights.kNorm), eps: 1e-5, rope, ropeLayout: "half" },
      );
      const window = layer === 0 ? undefined : 20;
      const attended = recorder.attention(q, kv, { nHeads, scale: headDim ** -0.5, window });
      return recorder.matmul(attended, graph.weight(weights.attentionOut[layer]!), { residual: x });
    };

    const dense = attention(recorder.embed(graph.weight(weights.embedding), 4), 0);
    const gateUp = recorder.matmul(normed(dense), graph.weight(weights.gateUp[0]!));
    const mixed = recorder.matmul(
      recorder.glu(gateUp, ffn, "gelu_tanh"),
      graph.weight(weights.down[0]!),
      { residual: dense, alpha: 0.1 },
    );

    const sparse = attention(mixed, 1);
    const input = normed(sparse);
    const route = recorder.moeRoute(
      recorder.matmul(input, graph.weight(weights.router)),
      { topK, normalize: true },
    );
    const experts = recorder.moeMatmul(input, route, graph.weight(weights.gateUp[1]!), nExperts);
    const down = graph.weight(weights.down[1]!);
    const outputs = recorder.moeMatmul(recorder.glu(experts, ffn, "silu"), route, down, nExperts);
    const last = recorder.moeCombine(outputs, route, sparse);
    const logits = recorder.softcap(
      recorder.matmul(recorder.gatherOutputs(normed(last)), graph.weight(weights.head)),
      30,
    );
    // Values are numbered from 1 in the order they are recorded.
    for (let value = keepAll ? 1 : logits; value <= logits; value++) recorder.keep(value as Value);
    return new TinyDecoder(await recorder.finish(), logits);
  }

  /** The logits of every token of a run. */
  async run(inputs: TinyInputs): Promise<Matrix> {
    const rows = inputs.tokens.length;
    const outputs = Array.from({ length: rows }, (_, row) => outputRow(row));
    await this.#step.run({ ...inputs, outputs });
    const data = new Float32Array(this.#step.read(this.#logits, vocabulary, 0, rows));
    return { rows, cols: vocabulary, data };
  }

  /** The logits of one sequence, run in pieces of `chunk` tokens. */
  async runChunks(
    tokens: readonly number[],
    chunk: number,
    pageTable: readonly number[],
  ): Promise<Matrix> {
    const parts: Matrix[] = [];
    for (let begin = 0; begin < tokens.length; begin += chunk) {
      const piece = tokens.slice(begin, begin + chunk);
      parts.push(
        await this.run({
          tokens: piece,
          positions: piece.map((_, i) => begin + i),
          sequences: piece.map(() => 0),
          pageTables: [pageTable],
        }),
      );
    }
    return stack(parts);
  }
}
