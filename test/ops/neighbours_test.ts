/**
 * Chains of operations that resemble those which a GPU computes in one kernel, and differ in one
 * respect: the results are the reference's.
 */
import type { KvShape, MatmulOptions, RopeAppendOptions, Value } from "../../src/backend.ts";
import { deviceTest, openDevice, referenceDevice } from "../support/devices.ts";
import { assertClose, randomMatrix } from "../support/matrix.ts";
import { Random } from "../support/random.ts";
import { type Kept, runStep, type StepGraph, tokenInputs } from "../support/step_graph.ts";
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

  product(x: Value, rows = COLS, options: MatmulOptions = {}, cols = COLS): Value {
    const { data } = randomMatrix(this.#random, rows, cols);
    const scaled = { rows, cols, data: data.map((value) => value / Math.sqrt(cols)) };
    const weight = this.type === "F32" ? f32Weight(scaled) : f16Weight(scaled);
    return this.graph.recorder.matmul(x, this.graph.weight(weight), options);
  }

  gated(x: Value, width = COLS): Value {
    return this.graph.recorder.glu(x, width, "silu");
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
}

/** Columns of q, k and v. */
const QKV = 4 * 16;

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

const WIDTHS: Readonly<Record<string, number>> = {
  "a product that is read again after its gated unit": 2 * COLS,
};

deviceTest("neighbours that are not computed in one kernel", async (device) => {
  using reference = openDevice(referenceDevice);
  for (const [name, record] of Object.entries(chains)) {
    // Devices fuse products with weights of one type that they do not fuse with another.
    for (const [tokens, type] of [[2, "F32"], [1, "F16"], [2, "F16"], [18, "F16"]] as const) {
      const chain = (graph: StepGraph): Kept => {
        const value = record(new Chain(graph, tokens, name, type));
        return { value, cols: WIDTHS[name] ?? COLS };
      };
      const actual = await runStep(device, tokenInputs(tokens), chain);
      const expected = await runStep(reference, tokenInputs(tokens), chain);
      assertClose(actual, expected, TOLERANCE, `${name}, ${type}, ${tokens} tokens`);
    }
  }
});
