/**
 * Attention over values in keys, between products for each head, on the CPU: the bits of a token do
 * not depend on the rest of the batch, nor on the division of its sequence into runs.
 */
import type { Backend, KvType, Value } from "../../src/backend.ts";
import type { TensorType } from "../../src/formats/tensor_info.ts";
import { devices, openDevice } from "../support/devices.ts";
import {
  assertSameBits,
  type Matrix,
  matrixOfRows,
  randomMatrix,
  rowOf,
} from "../support/matrix.ts";
import { Random } from "../support/random.ts";
import { runStep, type StepGraph } from "../support/step_graph.ts";
import { f32Vector, randomWeight } from "../support/weights.ts";

const HEADS = 5, PLAIN = 32, RANK = 64, ROTATED = 16, VALUE = 32;
const PAGE_TOKENS = 16, PAGES = 24;
/**
 * A row: the queries of all heads, plain parts first, then the latent vector and the rotated part.
 */
const COLS = HEADS * (PLAIN + ROTATED) + RANK + ROTATED;
const LENGTHS = [300, 1, 37];

/** Tokens `begin` to `end` of a sequence. */
interface Run {
  readonly sequence: number;
  readonly begin: number;
  readonly end: number;
}

const whole = (sequence: number): Run => ({ sequence, begin: 0, end: LENGTHS[sequence]! });

/** A layer of latent attention on a device, and its tokens. */
class Layer {
  readonly #device: Backend;
  readonly #kvType: KvType;
  readonly #rows: readonly Matrix[];
  readonly #pageTables: readonly (readonly number[])[];
  readonly #toLatent;
  readonly #toValues;
  readonly #invFreq = f32Vector(Float32Array.of(1, 0.5, 0.25, 0.1, 0.05, 0.01, 0.003, 0.001));

  constructor(device: Backend, random: Random, kvType: KvType, weightType: TensorType) {
    this.#device = device;
    this.#kvType = kvType;
    this.#rows = LENGTHS.map((length) => randomMatrix(random, length, COLS));
    const pages = random.permutation(PAGES);
    this.#pageTables = LENGTHS.map((length) => pages.splice(0, Math.ceil(length / PAGE_TOKENS)));
    this.#toLatent = randomWeight(random, weightType, HEADS * RANK, PLAIN);
    this.#toValues = randomWeight(random, weightType, HEADS * VALUE, RANK);
  }

  /** Runs steps one after another over a new cache. Returns the results of all tokens, in order. */
  async compute(steps: readonly (readonly Run[])[]): Promise<Matrix> {
    const kv = this.#device.createKv({
      type: this.#kvType,
      nPages: PAGES,
      pageTokens: PAGE_TOKENS,
      nKvHeads: 1,
      kHeadDim: RANK + ROTATED,
      vHeadDim: RANK,
      valuesInKeys: true,
    });
    const rows: Float32Array[] = [];
    for (const runs of steps) {
      const tokens = runs.flatMap(({ sequence, begin, end }, run) =>
        Array.from({ length: end - begin }, (_, i) => ({ run, sequence, position: begin + i }))
      );
      const input = matrixOfRows(tokens.length, COLS, (row) => {
        const { sequence, position } = tokens[row]!;
        return rowOf(this.#rows[sequence]!, position);
      });
      const result = await runStep(this.#device, {
        tokens: tokens.map((_, row) => row),
        positions: tokens.map(({ position }) => position),
        sequences: tokens.map(({ run }) => run),
        pageTables: runs.map(({ sequence }) => this.#pageTables[sequence]!),
        outputs: [],
      }, (graph) => ({
        value: this.#record(graph, graph.input(input), kv),
        cols: HEADS * VALUE,
      }));
      for (let row = 0; row < result.rows; row++) rows.push(rowOf(result, row));
    }
    return matrixOfRows(rows.length, HEADS * VALUE, (row) => rows[row]!);
  }

  #record(graph: StepGraph, x: Value, kv: ReturnType<Backend["createKv"]>): Value {
    const { recorder } = graph;
    const plain = recorder.gatherColumns([{ value: x, width: HEADS * PLAIN }], 1);
    const latent = recorder.headMatmul(plain, graph.weight(this.#toLatent), HEADS);
    const q = recorder.gatherColumns([
      { value: latent, width: RANK, step: RANK },
      { value: x, width: ROTATED, first: HEADS * PLAIN, step: ROTATED },
    ], HEADS);
    const qk = recorder.gatherColumns([
      { value: q, width: HEADS * (RANK + ROTATED) },
      { value: x, width: RANK + ROTATED, first: HEADS * (PLAIN + ROTATED) },
    ], 1);
    const turned = recorder.ropeAppend(qk, kv, {
      nHeads: HEADS,
      eps: 1e-6,
      rope: recorder.ropeTable(graph.weight(this.#invFreq), 1),
      ropeLayout: "interleaved",
    });
    const mixed = recorder.attention(turned, kv, { nHeads: HEADS, scale: 0.1 });
    return recorder.headMatmul(mixed, graph.weight(this.#toValues), HEADS);
  }
}

for (const device of devices.filter(({ kind }) => kind === "cpu")) {
  for (const [kvType, weightType] of [["F16", "Q8_0"], ["F32", "F16"], ["Q8_0", "F32"]] as const) {
    const name = `latent attention of ${weightType} over ${kvType} is the same alone and together`;
    Deno.test(`${name} (${device.name})`, async () => {
      using backend = openDevice(device);
      const layer = new Layer(backend, new Random(name), kvType, weightType);
      const all = LENGTHS.map((_, sequence) => whole(sequence));
      const alone = await layer.compute(all.map((run) => [run]));
      assertSameBits(await layer.compute([all]), alone, "in a batch");
      const cuts = [0, 1, 2, 19, 256, 290, 300];
      const chunks = cuts.slice(1).map((end, i) => [{ sequence: 0, begin: cuts[i]!, end }]);
      assertSameBits(await layer.compute([...chunks, [whole(1)], [whole(2)]]), alone, "in chunks");
    });
  }
}
