/** Numbers of adapters for one matrix, compared with their formula element by element. */
import { assertEquals, assertThrows } from "@std/assert";
import type { AdapterWeights } from "../../../src/backend.ts";
import { ForgeError } from "../../../src/errors.ts";
import type { Adapter, LoraPair } from "../../../src/formats/adapter.ts";
import type { TensorInfo } from "../../../src/formats/tensor_info.ts";
import { ModelAdapters } from "../../../src/models/weights/adapters.ts";
import type { ModelPart } from "../../../src/models/weights/division.ts";
import { WeightLoader } from "../../../src/models/weights/weight_loader.ts";
import { Random } from "../../support/random.ts";
import { FakeBackend, fakeCheckpoint, type FakeModel } from "./fakes.ts";

const LAYER = "model.layers.0.";

/** Tensors A and B of a matrix, with small whole numbers. */
class Pair {
  readonly values: Readonly<Record<string, number[]>>;
  readonly pair: LoraPair;

  constructor(
    target: string,
    a: readonly [number, number],
    b: readonly [number, number],
    rank: number,
    more: Partial<LoraPair> = {},
  ) {
    const random = new Random(`adapter of ${target}`);
    const numbers = ([rows, cols]: readonly [number, number]) =>
      Array.from({ length: rows * cols }, () => random.int(-99, 99));
    const tensor = (name: string, shape: readonly [number, number]): TensorInfo => {
      const bytes = 4 * shape[0] * shape[1];
      return { name, type: "F32", shape, file: "adapter", offset: 0, bytes };
    };
    const [nameA, nameB] = [`${target} A`, `${target} B`];
    this.values = { [nameA]: numbers(a), [nameB]: numbers(b) };
    const [tensorA, tensorB] = [tensor(nameA, a), tensor(nameB, b)];
    const common = { isOfEmbedding: false, factor: 3 };
    this.pair = { target, a: tensorA, b: tensorB, rank, ...common, ...more };
  }

  a(row: number, col: number): number {
    return this.values[this.pair.a.name]![row * this.pair.a.shape[1]! + col]!;
  }

  b(row: number, col: number): number {
    return this.values[this.pair.b.name]![row * this.pair.b.shape[1]! + col]!;
  }
}

function setUp(
  pairs: readonly Pair[],
  model: FakeModel = {},
  kind: Adapter["kind"] = "safetensors",
  part?: ModelPart,
) {
  const checkpoint = fakeCheckpoint(model);
  const backend = new FakeBackend(Object.assign({}, ...pairs.map(({ values }) => values)));
  const adapter: Adapter = {
    kind,
    path: "adapter",
    files: ["adapter"],
    pairs: pairs.map(({ pair }) => pair),
    architecture: kind === "gguf" ? "llama" : undefined,
    baseModel: undefined,
  };
  // The numbers are of the second adapter; the first one has no pairs.
  const first: Adapter = { ...adapter, pairs: [] };
  const adapters = new ModelAdapters([first, adapter], checkpoint);
  const weights = WeightLoader.for(backend, checkpoint, undefined, adapters, part);
  return { adapters, backend, weights };
}

/** Returns rows of `cols` numbers of each expert or rank. */
function rows(count: number, cols: number, at: (row: number, col: number) => number): number[] {
  return Array.from({ length: count * cols }, (_, i) => at(Math.floor(i / cols), i % cols));
}

Deno.test("pairs of stacked experts are of the matrices, or all of the transposed ones", () => {
  const [nExperts, rank] = [2, 3];
  const name = (part: string) => `${LAYER}mlp.experts.${part}_proj`;
  for (const isReversed of [false, true]) {
    const shapes = { gate_up: [4, 5], down: [5, 5] } as const;
    const pairs = Object.entries(shapes).map(([part, [rows, cols]]) => {
      const [ofA, ofB] = isReversed ? [rows, cols] : [cols, rows];
      return new Pair(name(part), [nExperts * rank, ofA], [ofB, rank * nExperts], rank, {
        nExperts,
      });
    });
    const { adapters, backend, weights } = setUp(pairs);
    for (const [i, [part, [nRows, cols]]] of Object.entries(shapes).entries()) {
      // The shape of the square matrix does not show which of both it is.
      const names = { safetensors: name(part), gguf: undefined };
      backend.uploaded.length = 0;
      const made = adapters.ofExperts([{ names, span: [0, nRows] }], nExperts, cols, weights);
      assertEquals([made?.nBlocks, made?.nAdapters, made?.targets], [2, 2, [name(part)]]);
      const [a, b, ranks] = backend.uploaded.map((values) => [...values]);
      const pair = pairs[i]!;
      const ofA = (row: number, col: number) => pair.a(row, col);
      // In B, the experts of a rank are neighbours.
      const ofB = (row: number, col: number) =>
        pair.b(col, row % rank * nExperts + Math.floor(row / rank));
      const [first, second] = isReversed ? [ofB, ofA] : [ofA, ofB];
      assertEquals(a, rows(nExperts * rank, cols, first), part);
      assertEquals(b, rows(nExperts * rank, nRows, (row, col) => 3 * second(row, col)), part);
      assertEquals(ranks, rows(rank, 3, (_, i) => [1, 0, nRows][i]!));
    }
  }
});

Deno.test("experts may have pairs of unequal ranks, and rows that alternate", () => {
  const name = `${LAYER}mlp.experts.{}.gate_up_proj.weight`;
  const ranks = [1, 3];
  const pairs = ranks.map((rank, expert) => {
    return new Pair(name.replace("{}", String(expert)), [rank, 3], [4, rank], rank);
  });
  const { adapters, backend, weights } = setUp(pairs);
  const names = { safetensors: name, gguf: undefined };
  adapters.ofExperts([{ names, span: [2, 4], isInterleaved: true }], 2, 3, weights);
  const [a, b, ofRanks] = backend.uploaded.map((values) => [...values]);
  // Three ranks of each expert, zeros where it has fewer.
  const at = (row: number, get: (pair: Pair, rank: number) => number) => {
    const expert = Math.floor(row / 3), rank = row % 3;
    return rank < ranks[expert]! ? get(pairs[expert]!, rank) : 0;
  };
  assertEquals(a, rows(6, 3, (row, col) => at(row, (pair, rank) => pair.a(rank, col))));
  const stored = [0, 2, 1, 3];
  assertEquals(b, rows(6, 4, (row, i) => at(row, (pair, rank) => 3 * pair.b(stored[i]!, rank))));
  assertEquals(ofRanks, [1, 2, 4, 1, 2, 4, 1, 2, 4]);
});

Deno.test("heads of other sizes than the hidden size divided by their number are reordered whole", () => {
  const query = `${LAYER}self_attn.q_proj.weight`, file = "blk.0.attn_q.weight";
  // Two heads of 6 rows, although 16 columns among 2 heads make 8.
  const config = { model_type: "llama", hidden_size: 16, num_attention_heads: 2, head_dim: 6 };
  const metadata = {
    "general.architecture": "llama",
    "llama.embedding_length": 16,
    "llama.attention.head_count": 2,
    "llama.attention.key_length": 6,
  };
  const cases = [
    // The row of the adapter's matrix for each row of the model's.
    ["safetensors", { metadata, tensors: { [file]: [12, 16] } }, query, [0, 3, 1, 4, 2, 5]],
    ["gguf", { config, tensors: { [query]: [12, 16] } }, file, [0, 2, 4, 1, 3, 5]],
    ["safetensors", { config, tensors: { [query]: [12, 16] } }, query, [0, 1, 2, 3, 4, 5]],
  ] as const;
  for (const [kind, model, target, order] of cases) {
    const pair = new Pair(target, [2, 16], [12, 2], 2);
    const { backend, weights } = setUp([pair], model, kind);
    weights.layer(0).matrix(["self_attn.q_proj", "attn_q"], 12, 16);
    const [a, b] = backend.uploaded.map((values) => [...values]);
    assertEquals(a, rows(2, 16, (row, col) => pair.a(row, col)));
    const stored = (row: number) => row - row % 6 + order[row % 6]!;
    assertEquals(b, rows(2, 12, (rank, row) => 3 * pair.b(stored(row), rank)));
  }
});

Deno.test("rows of a matrix, and the columns of a rank, have their part of the adapter", () => {
  const target = `${LAYER}self_attn.k_proj.weight`;
  const pair = new Pair(target, [2, 16], [6, 2], 2);
  const { backend, weights } = setUp([pair], { tensors: { [target]: [6, 16] } });
  const layer = weights.layer(0), name = ["self_attn.k_proj", undefined] as const;
  const uploads = (load: () => { readonly adapters?: AdapterWeights | undefined }) => {
    backend.uploaded.length = 0;
    assertEquals(load().adapters?.targets, [target]);
    return backend.uploaded.map((values) => [...values]);
  };
  const [a, b, ranks] = uploads(() => layer.matrix(name, 6, 16, [[1, 2], [4, 1]]));
  const own = [1, 2, 4];
  assertEquals(a, rows(2, 16, (row, col) => pair.a(row, col)));
  assertEquals(b, rows(2, 3, (rank, i) => 3 * pair.b(own[i]!, rank)));
  // Both parts of the tensor share its ranks.
  assertEquals(ranks, [1, 0, 3, 1, 0, 3]);
  const [ofColumns] = uploads(() => layer.columns(name, 6, 16, [8, 8]));
  assertEquals(ofColumns, rows(2, 8, (row, col) => pair.a(row, 8 + col)));
});

Deno.test("an embedding's rows are corrected, on each rank in its columns", () => {
  const name = ["embed_tokens", "token_embd"] as const, stage = { index: 0, memory: [1] };
  const model = { tensors: { "model.embed_tokens.weight": [5, 16] } };
  for (
    const [kind, target] of [
      ["safetensors", "model.embed_tokens.weight"],
      ["gguf", "token_embd.weight"],
    ] as const
  ) {
    // GGUF files have A token by token.
    const isByToken = kind === "gguf", shape = isByToken ? [5, 2] as const : [2, 5] as const;
    const pair = new Pair(target, shape, [16, 2], 2, { isOfEmbedding: true });
    for (const [index, count] of [[0, 1], [0, 2], [1, 2]] as const) {
      const { backend, weights } = setUp([pair], model, kind, { rank: { index, count }, stage });
      const [weight, [first, cols]] = weights.embeddingPart(name, 5, 16);
      assertEquals([weight.adapters?.targets, first, cols], [[target], index * 8, 16 / count]);
      const [b, ofTokens, identity, ranks] = backend.uploaded.map((values) => [...values]);
      assertEquals(b, rows(2, cols, (rank, col) => pair.b(first + col, rank)));
      const a = (token: number, rank: number) =>
        isByToken ? pair.a(token, rank) : pair.a(rank, token);
      assertEquals(ofTokens, rows(5, 2, (token, rank) => 3 * a(token, rank)));
      assertEquals([identity, ranks], [[1, 0, 0, 1], [1, 0, cols, 1, 0, cols]]);
    }
  }
});

Deno.test("keys and values of latent attention's heads have their rows of one adapter", () => {
  const pair = new Pair(`${LAYER}self_attn.kv_b_proj.weight`, [2, 4], [10, 2], 2);
  const { backend, weights } = setUp([pair]);
  const sizes = { nHeads: 2, plain: 3, value: 2, rank: 4 };
  const made = weights.layer(0).adaptersOfHeads(["self_attn.kv_b_proj", "attn_kv_b"], sizes);
  assertEquals([made?.keys.nBlocks, made?.values.nBlocks], [2, 2]);
  const [a, keys, ofKeys, values, ofValues] = backend.uploaded.map((values) => [...values]);
  assertEquals(a, rows(2, 4, (row, col) => pair.a(row, col)));
  // Rows of the ranks of a head, which has 3 rows of keys before 2 of values.
  const b = (first: number) => (row: number, i: number) =>
    3 * pair.b(5 * Math.floor(row / 2) + first + i, row % 2);
  assertEquals([keys, ofKeys], [rows(4, 3, b(0)), [1, 0, 4, 1, 0, 4]]);
  assertEquals([values, ofValues], [rows(4, 2, b(3)), [1, 0, 2, 1, 0, 2]]);
});

Deno.test("a matrix that no device adapts is refused unless its layer is on none", () => {
  const target = `${LAYER}conv.weight`;
  const { adapters } = setUp([new Pair(target, [1, 4], [4, 1], 1)], {
    tensors: { [target]: [4, 4] },
  });
  const loaders = (...others: readonly boolean[]) =>
    others.map((isOther) => ({ isOfOtherLayer: () => isOther }));
  adapters.assertUsed([adapters], loaders(true));
  adapters.assertUsed([adapters, adapters], loaders(true, true));
  for (const others of [[false], [false, true], [true, false]]) {
    const refused = () => adapters.assertUsed([adapters], loaders(...others));
    assertThrows(refused, ForgeError, `changes the matrix "${target}", which forge cannot adapt`);
  }
});

Deno.test("adapters of matrices that files scale or rearrange are for their own format", () => {
  const load = (kind: Adapter["kind"], modelType: string, part: readonly [string, string]) => {
    const [stored, file] = [`${LAYER}${part[0]}.weight`, `blk.0.${part[1]}.weight`];
    const pair = new Pair(kind === "gguf" ? file : stored, [1, 4], [4, 1], 1);
    const tensors = { [stored]: [4, 4] };
    const { weights } = setUp([pair], { config: { model_type: modelType }, tensors }, kind);
    return weights.layer(0).matrix(part, 4, 4).adapters?.targets.length;
  };
  const plain = ["mlp.up_proj", "ffn_up"] as const;
  const rearranged = ["linear_attn.out_proj", "ssm_out"] as const;
  assertEquals(load("gguf", "llama", plain), 1);
  for (const part of [plain, rearranged]) assertEquals(load("safetensors", "falcon_h1", part), 1);
  for (const [type, part] of [["falcon_h1", plain], ["llama", rearranged]] as const) {
    assertThrows(() => load("gguf", type, part), ForgeError, "which forge cannot adapt");
  }
});

Deno.test("a pair of another shape than its matrix is refused, whichever size differs", () => {
  const target = `${LAYER}self_attn.k_proj.weight`, embedding = "model.embed_tokens.weight";
  const tensors = { [target]: [6, 16], [embedding]: [5, 16] };
  type Shape = readonly [number, number];
  const load = (name: string, a: Shape, b: Shape, more: Partial<LoraPair> = {}) => {
    const { weights } = setUp([new Pair(name, a, b, 2, more)], { tensors });
    if (name === embedding) weights.embedding(["embed_tokens", undefined], 5, 16);
    else weights.layer(0).matrix(["self_attn.k_proj", undefined], 6, 16);
  };
  const experts = `${LAYER}mlp.experts.gate_up_proj`,
    each = experts.replace("experts", "experts.{}");
  const ofExperts = (name: string, a: Shape, b: Shape, more: Partial<LoraPair> = {}) => {
    const isOfOne = name.includes("{}");
    const pair = new Pair(name.replace("{}", "0"), a, b, 3, {
      nExperts: isOfOne ? undefined : 2,
      ...more,
    });
    const { adapters, weights } = setUp([pair]);
    const names = { safetensors: name, gguf: undefined };
    adapters.ofExperts([{ names, span: [0, 4] }], 2, 5, weights);
  };
  const isOfEmbedding = true;
  load(target, [2, 16], [6, 2]);
  load(embedding, [2, 5], [16, 2], { isOfEmbedding });
  ofExperts(experts, [6, 5], [4, 6]);
  ofExperts(experts, [6, 4], [5, 6]);
  ofExperts(each, [3, 5], [4, 3]);
  const refusals: (() => void)[] = [
    () => load(target, [2, 15], [6, 2]),
    () => load(target, [2, 16], [5, 2]),
    () => load(target, [2, 16], [6, 2], { nExperts: 1 }),
    () => load(embedding, [2, 5], [15, 2], { isOfEmbedding }),
    () => load(embedding, [3, 5], [16, 2], { isOfEmbedding }),
    () => load(embedding, [2, 4], [16, 2], { isOfEmbedding }),
    () => ofExperts(experts, [6, 5], [5, 6]),
    () => ofExperts(experts, [6, 4], [4, 6]),
    () => ofExperts(experts, [6, 5], [4, 6], { nExperts: 3 }),
    () => ofExperts(experts, [6, 5], [4, 6], { isOfEmbedding }),
    () => ofExperts(each, [3, 4], [5, 3]),
    () => ofExperts(each, [3, 5], [4, 3], { nExperts: 1 }),
  ];
  for (const [i, refused] of refusals.entries()) {
    assertEquals(assertThrows(refused, ForgeError, "for another model").code, "bad_model", `${i}`);
  }
});
