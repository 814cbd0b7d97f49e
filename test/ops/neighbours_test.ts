/**
 * Chains of operations that resemble those which a GPU computes in one kernel, and differ in one
 * respect: the results are the reference's.
 */
import type {
  KvCache,
  KvShape,
  MatmulOptions,
  RopeAppendOptions,
  Value,
} from "../../src/backend.ts";
import type { NativeBackend } from "../../ffi/native_backend.ts";
import { deviceTest, openDevice, referenceDevice } from "../support/devices.ts";
import { assertClose, type Matrix, randomMatrix } from "../support/matrix.ts";
import { Random } from "../support/random.ts";
import { type Kept, limitsOf, runStep, StepGraph, tokenInputs } from "../support/step_graph.ts";
import { f16Weight, f32Vector, f32Weight } from "../support/weights.ts";

const COLS = 64;
/** Products of sums of sums are rounded to 16 bits several times. */
const TOLERANCE = { absolute: 0.03, relative: 0.01 };

/**
 * A chain over two inputs that are kept, so that no result takes their memory, with weights that
 * are the same on each device.
 */
class Chain {
  readonly x: Value;
  readonly y: Value;
  readonly #random: Random;

  /** The matrices are of the type `type`. */
  constructor(
    readonly graph: StepGraph,
    readonly tokens: number,
    name: string,
    readonly type: "F32" | "F16",
  ) {
    this.#random = new Random(name);
    this.x = this.input();
    this.y = this.input();
    for (const input of [this.x, this.y]) graph.recorder.keep(input);
  }

  input(): Value {
    return this.graph.input(randomMatrix(this.#random, this.tokens, COLS));
  }

  vector(n: number) {
    return this.graph.weight(f32Vector(this.#random.normals(n)));
  }

  norm(x: Value, residual?: Value, width = COLS): Value {
    return this.graph.recorder.rmsNorm(x, this.vector(width), { eps: 1e-5, residual });
  }

  matrix(rows: number, cols: number) {
    const { data } = randomMatrix(this.#random, rows, cols);
    const scaled = { rows, cols, data: data.map((value) => value / Math.sqrt(cols)) };
    return this.graph.weight(this.type === "F32" ? f32Weight(scaled) : f16Weight(scaled));
  }

  product(x: Value, rows = COLS, options: MatmulOptions = {}, cols = COLS): Value {
    return this.graph.recorder.matmul(x, this.matrix(rows, cols), options);
  }

  gated(x: Value, width = COLS): Value {
    return this.graph.recorder.glu(x, width, "silu");
  }

  /** Products with the 2 of 4 experts that `logits` choose. */
  experts(x: Value, rows: number, logits: Value): Value {
    const route = this.graph.recorder.moeRoute(logits, { topK: 2, normalize: true });
    return this.graph.recorder.moeMatmul(x, route, this.matrix(4 * rows, COLS), 4);
  }

  /** Attention over `qkv`, and a product of the queries. */
  attention(
    qkv: Value,
    shape: Partial<KvShape> = {},
    options: Partial<RopeAppendOptions> = {},
  ): Value {
    const { recorder } = this.graph;
    const nHeads = 2, kHeadDim = 16, vHeadDim = 16;
    const full = { nKvHeads: 1, kHeadDim, vHeadDim, ...shape };
    const kv = this.graph.kv({ type: "F32", nPages: 1, pageTokens: 64, ...full });
    const q = recorder.ropeAppend(qkv, kv, { nHeads, eps: 1e-5, ropeLayout: "half", ...options });
    const attended = recorder.attention(q, kv, { nHeads, scale: 0.25 });
    const residual = this.product(q, COLS, {}, nHeads * full.kHeadDim);
    return this.product(attended, COLS, { residual }, nHeads * full.vHeadDim);
  }

  /** A cache whose rows attention may append. */
  cache(): KvCache {
    const heads = { nKvHeads: N_HEADS, kHeadDim: 32, vHeadDim: 32 };
    return this.graph.kv({ type: "F16", nPages: 1, pageTokens: 64, ...heads });
  }

  /** The queries of `x`, whose keys and values are appended to a cache. */
  queries(x: Value, kv: KvCache, rope?: Value): Value {
    const options = { nHeads: N_HEADS, eps: 1e-5, ropeLayout: "half", rope } as const;
    return this.graph.recorder.ropeAppend(this.product(x, 3 * HEADS), kv, options);
  }

  /** Attention, and after it a product of queries. */
  attended(q: Value, kv: KvCache, read?: Value): Value {
    const attended = this.graph.recorder.attention(q, kv, { nHeads: N_HEADS, scale: 0.2 });
    const residual = read === undefined ? undefined : this.product(read, COLS, {}, HEADS);
    return this.product(attended, COLS, { residual }, HEADS);
  }
}

/** Columns of q, k and v. */
const QKV = 4 * 16;
/** Heads of caches whose rows attention may append, and their columns. */
const N_HEADS = 16, HEADS = 16 * 32;

const chains: Readonly<Record<string, (chain: Chain) => Value>> = {
  "a norm, and a product of another value": (c) => {
    const normed = c.norm(c.x);
    return c.product(normed, COLS, { residual: c.product(c.y) });
  },
  "a norm with a residual, and its product": (c) => c.product(c.norm(c.x, c.y)),
  "a norm of halves of rows, and its product": (c) => c.product(c.norm(c.x, undefined, COLS / 2)),
  "a norm with two products": (c) => {
    const normed = c.norm(c.x);
    return c.product(normed, COLS, { residual: c.product(normed) });
  },
  "a norm and its product in place of their input": (c) => c.product(c.product(c.norm(c.input()))),
  "a product with a bias, and its gated unit": (c) =>
    c.gated(c.product(c.x, 2 * COLS, { bias: c.vector(2 * COLS) })),
  "a product with a residual, and its gated unit": (c) => {
    const residual = c.product(c.y, 2 * COLS);
    return c.gated(c.product(c.x, 2 * COLS, { residual }));
  },
  "a product with a factor, and its gated unit": (c) =>
    c.gated(c.product(c.x, 2 * COLS, { alpha: 0.5 })),
  "a product with an activation, and its gated unit": (c) =>
    c.gated(c.product(c.x, 2 * COLS, { activation: "silu" })),
  "a product, and the gated unit of another": (c) => {
    const first = c.product(c.x, 2 * COLS), second = c.product(c.y, 2 * COLS);
    const gated = c.gated(first);
    return c.product(c.gated(second), COLS, { residual: gated });
  },
  "a product, and gated units of parts of it": (c) => c.gated(c.product(c.x, 2 * COLS), COLS / 4),
  "a product that is read again after its gated unit": (c) => {
    const product = c.product(c.x, 2 * COLS);
    return c.product(c.gated(product), 2 * COLS, { residual: product });
  },
  "a norm, its product and its gated unit in place of their input": (c) =>
    c.product(c.gated(c.product(c.norm(c.input()), 2 * COLS))),
  "a product and its gated unit in place of their input": (c) =>
    c.product(c.gated(c.product(c.input(), 2 * COLS))),
  "a norm and its queries, keys and values": (c) => c.attention(c.product(c.norm(c.x), QKV)),
  "queries, keys and values with a residual": (c) =>
    c.attention(c.product(c.norm(c.x), QKV, { residual: c.y })),
  "queries, keys and values with a factor": (c) =>
    c.attention(c.product(c.norm(c.x), QKV, { alpha: 0.5 })),
  "queries, keys and values with an activation": (c) =>
    c.attention(c.product(c.norm(c.x), QKV, { activation: "silu" })),
  "queries with a norm": (c) =>
    c.attention(c.product(c.norm(c.x), QKV), {}, { qNorm: c.vector(16) }),
  "keys with a norm": (c) => c.attention(c.product(c.norm(c.x), QKV), {}, { kNorm: c.vector(16) }),
  "a cache with scales": (c) => c.attention(c.product(c.norm(c.x), QKV), { type: "Q8_0" }),
  "keys that are values too": (c) => {
    const rope = c.graph.recorder.ropeTable(c.vector(4), 1);
    const qkv = c.product(c.norm(c.x), 3 * 16);
    return c.attention(qkv, { vHeadDim: 8, valuesInKeys: true }, { rope });
  },
  "keys of odd heads": (c) => c.attention(c.product(c.norm(c.x), 3 * 15 + 16), { kHeadDim: 15 }),
  "values of odd heads": (c) => c.attention(c.product(c.norm(c.x), 3 * 16 + 15), { vHeadDim: 15 }),
  "queries, keys and values that are read twice": (c) => {
    const qkv = c.product(c.norm(c.x), QKV);
    return c.product(c.attention(qkv), QKV, { residual: qkv });
  },
  "queries, keys and values of another product": (c) => {
    const qkv = c.product(c.y, QKV);
    const own = c.product(c.norm(c.x), QKV);
    return c.product(c.attention(qkv), QKV, { residual: own });
  },
  "queries in place of the input of their norm": (c) =>
    c.attention(c.product(c.norm(c.input()), QKV)),
  "angles in place of the input of a norm": (c) => {
    const qkv = c.product(c.norm(c.input()), 3 * 64 + 16);
    // Queries are too wide for the place of the input.
    const rope = c.graph.recorder.ropeTable(c.vector(32), 1);
    return c.attention(qkv, { kHeadDim: 64 }, { rope });
  },
  "the gated unit of experts in place of their input": (c) => {
    const gated = c.gated(c.experts(c.input(), 2 * COLS, c.product(c.y, 4)));
    return c.product(gated, COLS, {}, 2 * COLS);
  },
  "the gated unit of experts in place of their route": (c) => {
    const gated = c.gated(c.experts(c.x, 2 * COLS, c.product(c.y, 4)));
    return c.product(gated, COLS, {}, 2 * COLS);
  },
  "two norms": (c) => {
    const sum = c.norm(c.x, c.y);
    return c.product(c.norm(sum), COLS, { residual: sum });
  },
  "two norms, the second of another value": (c) => {
    const sum = c.norm(c.x, c.y);
    return c.product(c.norm(c.y), COLS, { residual: sum });
  },
  "two norms with residuals": (c) => {
    const sum = c.norm(c.x, c.y);
    return c.product(c.norm(sum, c.x), COLS, { residual: sum });
  },
  "two norms, the first of halves of rows": (c) => {
    const sum = c.norm(c.x, c.y, COLS / 2);
    return c.product(c.norm(sum), COLS, { residual: sum });
  },
  "two norms, the second of halves of rows": (c) => {
    const sum = c.norm(c.x, c.y);
    return c.product(c.norm(sum, undefined, COLS / 2), COLS, { residual: sum });
  },
};

/** Chains of a token whose row attention may append. */
const attentions: Readonly<Record<string, (chain: Chain) => Value>> = {
  "attention with other queries": (c) => {
    const kv = c.cache();
    const q = c.queries(c.x, kv);
    return c.attended(q, kv, c.queries(c.y, kv));
  },
  "attention over another cache": (c) => {
    const kv = c.cache();
    const q = c.queries(c.x, kv);
    return c.attended(c.queries(c.y, c.cache()), kv, q);
  },
  "attention whose queries are read again": (c) => {
    const kv = c.cache(), q = c.queries(c.x, kv);
    return c.attended(q, kv, q);
  },
  // Heads are written to the places of others.
  "attention in place of its queries, keys and values": (c) => {
    const kv = c.cache();
    return c.attended(c.queries(c.input(), kv), kv);
  },
  "attention in place of its angles": (c) => {
    const kv = c.cache();
    const wide = c.product(c.x, HEADS - COLS);
    const rope = c.graph.recorder.ropeTable(c.vector(16), 1);
    const x = c.product(wide, COLS, {}, HEADS - COLS);
    return c.attended(c.queries(x, kv, rope), kv);
  },
};

const WIDTHS: Readonly<Record<string, number>> = {
  "a product that is read again after its gated unit": 2 * COLS,
};

/** The results of runs of one token each, the second of which sees the first. */
async function runTokens(device: NativeBackend, name: string): Promise<Matrix> {
  const inputs = tokenInputs(1);
  const graph = new StepGraph(device, device.record(limitsOf(inputs)));
  const value = attentions[name]!(new Chain(graph, 2, name, "F16"));
  graph.recorder.keep(value);
  const step = await graph.recorder.finish();
  try {
    for (const token of [0, 1]) await step.run({ ...inputs, tokens: [token], positions: [token] });
    return { rows: 1, cols: COLS, data: new Float32Array(step.read(value, COLS, 0, 1)) };
  } finally {
    step.release();
  }
}

deviceTest("neighbours that are not computed in one kernel", async (device) => {
  using reference = openDevice(referenceDevice);
  for (const [name, record] of Object.entries(chains)) {
    // Devices fuse products with weights of one type that they do not fuse with another.
    for (const [type, counts] of [["F32", [2, 18]], ["F16", [1, 2, 18]]] as const) {
      for (const tokens of counts) {
        const chain = (graph: StepGraph): Kept => {
          const value = record(new Chain(graph, tokens, name, type));
          return { value, cols: WIDTHS[name] ?? COLS };
        };
        const actual = await runStep(device, tokenInputs(tokens), chain);
        const expected = await runStep(reference, tokenInputs(tokens), chain);
        assertClose(actual, expected, TOLERANCE, `${name}, ${type}, ${tokens} tokens`);
      }
    }
  }
});

deviceTest("attention that does not append rows, and attention in their place", async (device) => {
  using reference = openDevice(referenceDevice);
  for (const name of Object.keys(attentions)) {
    const expected = await runTokens(reference, name);
    assertClose(await runTokens(device, name), expected, TOLERANCE, name);
  }
});
