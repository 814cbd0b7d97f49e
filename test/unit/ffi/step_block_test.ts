/** The packed blocks of a run, read back by the layout of `csrc/forge.h`. */
import { assert, assertEquals, assertThrows } from "@std/assert";
import { InputBlock, OutputBlock } from "../../../ffi/step_block.ts";
import type { OutputRequest, SamplingParams, StepInputs } from "../../../src/backend.ts";
import { ForgeError } from "../../../src/errors.ts";
import { readHeader } from "../../support/header.ts";
import { greedy, outputRow } from "../../support/step_graph.ts";

const { structs } = readHeader();

/** Reads a block by the declarations of the header. */
class BlockReader {
  readonly #view: DataView;
  #at = 0;

  constructor(block: Int32Array) {
    this.#view = new DataView(block.buffer, block.byteOffset, block.byteLength);
  }

  get left(): number {
    return this.#view.byteLength - this.#at;
  }

  struct(name: string): Record<string, number> {
    const { fields, bytes } = structs.get(name)!;
    const record = Object.fromEntries(fields.map(({ type, name, offset }) => {
      const at = this.#at + offset;
      const value = type === "float"
        ? this.#view.getFloat32(at, true)
        : type === "int32_t"
        ? this.#view.getInt32(at, true)
        : this.#view.getUint32(at, true);
      return [name, value];
    }));
    this.#at += bytes;
    return record;
  }

  array(type: "int32" | "float" | "uint32", count: number): number[] {
    return Array.from({ length: count }, () => {
      const at = this.#at;
      this.#at += 4;
      if (type === "float") return this.#view.getFloat32(at, true);
      return type === "int32" ? this.#view.getInt32(at, true) : this.#view.getUint32(at, true);
    });
  }
}

/** A packed block, unpacked. */
function unpack(block: Int32Array) {
  const reader = new BlockReader(block);
  const header = reader.struct("forge_step_header");
  const { n_tokens = 0, n_outputs = 0, n_sequences = 0, n_pages = 0 } = header;
  const { n_history = 0, n_bias = 0, mask_words = 0, n_masks = 0 } = header;
  const { n_steps, n_end_tokens = 0, n_adapters = 0, n_parents = 0 } = header;
  const { attention_mask, attention_mask_heads = 0, attention_mask_cols = 0 } = header;
  const isBits = attention_mask === 1;
  const stride = isBits ? Math.ceil(attention_mask_cols / 32) : attention_mask_cols;
  const parts = {
    nSteps: n_steps,
    tokens: reader.array("int32", n_tokens),
    positions: reader.array("int32", n_tokens),
    sequences: reader.array("int32", n_tokens),
    parents: reader.array("int32", n_parents),
    pageTables: Array.from({ length: n_sequences }, () => reader.array("int32", n_pages)),
    slots: reader.array("int32", n_sequences),
    keyLengths: reader.array("int32", n_sequences),
    adapterScales: reader.array("float", n_sequences * n_adapters),
    outputRows: reader.array("int32", n_outputs),
    sampling: Array.from({ length: n_outputs }, () => reader.struct("forge_sampling")),
    history: reader.array("int32", n_history),
    biasIds: reader.array("int32", n_bias),
    biasValues: reader.array("float", n_bias),
    endTokens: reader.array("int32", n_end_tokens),
    historySizes: reader.array("uint32", n_outputs),
    masks: Array.from({ length: n_masks }, () => reader.array("uint32", mask_words)),
    attentionMask: reader.array(
      isBits ? "uint32" : "float",
      n_tokens * attention_mask_heads * stride,
    ),
  };
  assertEquals(reader.left, 0, "nothing follows the last array");
  return parts;
}

const inputs: StepInputs = {
  tokens: [5, 6, 7],
  positions: [0, 1, 9],
  sequences: [0, 0, 1],
  pageTables: [[3], [4, 5, 6]],
  outputs: [],
};

/** An output with non-greedy sampling. */
function request(
  row: number,
  sampling: Partial<SamplingParams>,
  rest: Partial<OutputRequest> = {},
) {
  return outputRow(row, { sampling: { ...greedy, ...sampling }, ...rest });
}

/** The sampling record of a greedy output. */
const plainSampling = {
  temperature: 0,
  top_k: 0,
  top_p: 1,
  min_p: 0,
  repeat_penalty: 1,
  presence_penalty: 0,
  frequency_penalty: 0,
  forced_token: -1,
  seed_low: 0,
  seed_high: 0,
  stream: 0,
  position: 0,
  history_begin: 0,
  history_end: 0,
  bias_begin: 0,
  bias_end: 0,
  mask: -1,
  n_top: 0,
};

Deno.test("step block: tokens and page tables, padded to the longest", () => {
  const block = unpack(new InputBlock().pack(inputs));
  assertEquals(block.tokens, [5, 6, 7]);
  assertEquals(block.positions, [0, 1, 9]);
  assertEquals(block.sequences, [0, 0, 1]);
  assertEquals(block.pageTables, [[3, 0, 0], [4, 5, 6]]);
  assertEquals(block.slots, [0, 0]);
  assertEquals(block.sampling, []);
  // Words are reused and must not keep the pages of the previous run.
  const reused = new InputBlock();
  reused.pack({ ...inputs, pageTables: [[7, 8, 9], [7, 8, 9]] });
  assertEquals(unpack(reused.pack(inputs)).pageTables, [[3, 0, 0], [4, 5, 6]]);
});

Deno.test("step block: a slot of recurrent state for each sequence", () => {
  const block = new InputBlock();
  assertEquals(unpack(block.pack({ ...inputs, slots: [7, 2] })).slots, [7, 2]);
  // Words are reused and must not keep values of the previous run.
  assertEquals(unpack(block.pack(inputs)).slots, [0, 0]);
});

Deno.test("step block: the scales of adapters", () => {
  const block = new InputBlock();
  const adapterScales = [0, 0.5, -2, 0];
  assertEquals(unpack(block.pack({ ...inputs, adapterScales })).adapterScales, adapterScales);
  assertEquals(unpack(block.pack(inputs)).adapterScales, []);
});

Deno.test("step block: key lengths, and attention masks of bits and of numbers", () => {
  const block = new InputBlock();
  assertEquals(unpack(block.pack(inputs)).keyLengths, [2, 10]);
  assertEquals(unpack(block.pack({ ...inputs, positions: [4, 1, 9] })).keyLengths, [5, 10]);
  assertEquals(unpack(block.pack({ ...inputs, keyLengths: [0, 12] })).keyLengths, [0, 12]);
  const numbers = Float32Array.from({ length: 3 * 2 * 10 }, (_, i) => i % 3 === 0 ? -Infinity : i);
  const ofHeads = { nHeads: 2, nPositions: 10, values: numbers };
  assertEquals(unpack(block.pack({ ...inputs, attentionMask: ofHeads })).attentionMask, [
    ...numbers,
  ]);
  const bits = { nHeads: 1, nPositions: 33, values: new Uint32Array([1, 2, 3, 4, 5, 0x80000000]) };
  assertEquals(unpack(block.pack({ ...inputs, attentionMask: bits })).attentionMask, [
    ...bits.values,
  ]);
  // Values from the middle of a larger buffer.
  const part = { nHeads: 1, nPositions: 4, values: numbers.subarray(10, 22) };
  assertEquals(unpack(block.pack({ ...inputs, attentionMask: part })).attentionMask, [
    ...part.values,
  ]);
  assertEquals(unpack(block.pack(inputs)).attentionMask, []);
  const refused = (change: Partial<StepInputs>, message: string) =>
    assertThrows(() => block.pack({ ...inputs, ...change }), ForgeError, message);
  refused({ keyLengths: [1] }, "a step of 2 sequences got 1 key lengths");
  refused({ attentionMask: { ...bits, nPositions: 32 } }, "has 6 values; expected 3");
});

Deno.test("step block: the parents of a tree", () => {
  const block = new InputBlock();
  assertEquals(unpack(block.pack({ ...inputs, parents: [-1, 0, 0] })).parents, [-1, 0, 0]);
  assertEquals(unpack(block.pack(inputs)).parents, []);
  assertThrows(
    () => block.pack({ ...inputs, parents: [-1] }),
    ForgeError,
    "a step of 3 tokens got 1 parents",
  );
});

Deno.test("step block: several steps", () => {
  const outputs = [outputRow(0, { historySize: 64 }), outputRow(1)];
  const block = unpack(new InputBlock().pack({ ...inputs, outputs, nSteps: 3, endTokens: [2, 9] }));
  assertEquals([block.nSteps, block.endTokens, block.historySizes], [3, [2, 9], [64, 0]]);
  const once = unpack(new InputBlock().pack({ ...inputs, outputs }));
  assertEquals([once.nSteps, once.endTokens], [1, []]);
});

Deno.test("step block: a greedy output", () => {
  const block = unpack(new InputBlock().pack({ ...inputs, outputs: [outputRow(2)] }));
  assertEquals(block.outputRows, [2]);
  assertEquals(block.sampling, [plainSampling]);
});

Deno.test("step block: all options of an output", () => {
  const shared = new Uint32Array([0xffffffff, 0x80000001]);
  const other = new Uint32Array([1, 2]);
  const outputs = [
    request(2, {
      temperature: 0.5,
      topK: 40,
      topP: 0.75,
      minP: 0.0625,
      repeatPenalty: 1.25,
      presencePenalty: -0.5,
      frequencyPenalty: 0.25,
      bias: new Map([[7, -Infinity], [3, 2.5]]),
      mask: shared,
      seed: 0x89abcdef01234567n,
    }, { history: [9, 9, 8], stream: 3, position: 1000, nTop: 5 }),
    request(0, {}, { forcedToken: 0, history: new Int32Array([4]) }),
    request(1, { mask: other, bias: new Map([[1, 1]]), seed: -1n }),
    request(1, { mask: shared }),
  ];
  const block = unpack(new InputBlock().pack({ ...inputs, outputs }));
  assertEquals(block.outputRows, [2, 0, 1, 1]);
  assertEquals(block.history, [9, 9, 8, 4]);
  assertEquals(block.biasIds, [7, 3, 1]);
  assertEquals(block.biasValues, [-Infinity, 2.5, 1]);
  assertEquals(block.masks, [[0xffffffff, 0x80000001], [1, 2]]);
  const later = { history_begin: 4, history_end: 4, bias_begin: 3, bias_end: 3 };
  assertEquals(block.sampling, [
    {
      ...plainSampling,
      temperature: 0.5,
      top_k: 40,
      top_p: 0.75,
      min_p: 0.0625,
      repeat_penalty: 1.25,
      presence_penalty: -0.5,
      frequency_penalty: 0.25,
      seed_low: 0x01234567,
      seed_high: 0x89abcdef,
      stream: 3,
      position: 1000,
      history_end: 3,
      bias_end: 2,
      mask: 0,
      n_top: 5,
    },
    {
      ...plainSampling,
      forced_token: 0,
      history_begin: 3,
      history_end: 4,
      bias_begin: 2,
      bias_end: 2,
    },
    {
      ...plainSampling,
      ...later,
      bias_begin: 2,
      mask: 1,
      seed_low: 0xffffffff,
      seed_high: 0xffffffff,
    },
    { ...plainSampling, ...later, mask: 0 },
  ]);
});

Deno.test("step block: a block is independent of the previous one", () => {
  const block = new InputBlock();
  const large = {
    ...inputs,
    outputs: [request(1, { mask: new Uint32Array(100).fill(7) }, { history: [1, 2, 3] })],
  };
  const expected = unpack(new InputBlock().pack(inputs));
  block.pack(large);
  assertEquals(unpack(block.pack(inputs)), expected);
  assertEquals(unpack(block.pack(large)), unpack(new InputBlock().pack(large)));
});

Deno.test("step block: related arrays of different lengths", () => {
  const block = new InputBlock();
  const refused: [Partial<StepInputs>, string][] = [
    [{ positions: [0] }, "3 tokens got 1 positions and 3 sequences"],
    [{ sequences: [0, 0, 0, 0] }, "3 tokens got 3 positions and 4 sequences"],
    [{ slots: [1] }, "2 sequences got 1 state slots"],
    [{ adapterScales: [1, 2, 3] }, "2 sequences got 3 adapter scales"],
    [
      { outputs: [1, 2].map((words) => request(0, { mask: new Uint32Array(words) })) },
      "1 and 2 words",
    ],
  ];
  for (const [change, message] of refused) {
    const error = assertThrows(() => block.pack({ ...inputs, ...change }), ForgeError, message);
    assertEquals(error.code, "bad_input");
  }
});

/** The result record of one output. */
function writeResult(
  block: Int32Array,
  output: number,
  maxTop: number,
  result: { token: number; flags?: number; logprob: number; top?: [number, number][] },
): void {
  const { bytes } = structs.get("forge_result")!;
  const stride = bytes + 8 * maxTop;
  const view = new DataView(block.buffer, block.byteOffset + output * stride, stride);
  const top = result.top ?? [];
  const values: Record<string, number> = {
    token: result.token,
    flags: result.flags ?? 0,
    logprob: result.logprob,
    n_top: top.length,
  };
  for (const { type, name, offset } of structs.get("forge_result")!.fields) {
    if (type === "float") view.setFloat32(offset, values[name]!, true);
    else view.setInt32(offset, values[name]!, true);
  }
  top.forEach(([token, logprob], i) => {
    view.setInt32(bytes + 4 * i, token, true);
    view.setFloat32(bytes + 4 * maxTop + 4 * i, logprob, true);
  });
}

Deno.test("step block: results", () => {
  const results = new OutputBlock(3);
  const block = results.reserve(2);
  assertEquals(block.length, 2 * (4 + 6));
  writeResult(block, 0, 3, { token: 7, logprob: -0.5, top: [[7, -0.5], [1, -2]] });
  writeResult(block, 1, 3, { token: 0, logprob: -Infinity });
  assertEquals(results.unpack(2), [
    { token: 7, logprob: -0.5, top: [{ token: 7, logprob: -0.5 }, { token: 1, logprob: -2 }] },
    { token: 0, logprob: -Infinity, top: [] },
  ]);
  assertEquals(results.reserve(0).length, 0);
  assertEquals(results.unpack(0), []);
});

Deno.test("step block: steps that did not run have no results", () => {
  const results = new OutputBlock(1);
  const block = results.reserve(3);
  for (const nRun of [0, 1, 2, 3]) {
    for (let output = 0; output < 3; output++) {
      writeResult(block, output, 1, { token: output, flags: output < nRun ? 0 : 4, logprob: 0 });
    }
    const tokens = results.unpack(3).map((result) => "token" in result ? result.token : undefined);
    assertEquals(tokens, [0, 1, 2].slice(0, nRun));
  }
});

Deno.test("step block: a failure affects only its own output", () => {
  const results = new OutputBlock(0);
  const block = results.reserve(2);
  const failures: [number, string, string][] = [
    [1, "bad_model", "NaN or infinite"],
    [2, "bad_input", "leave no token"],
  ];
  for (const [flags, code, message] of failures) {
    writeResult(block, 0, 0, { token: 3, logprob: -1 });
    writeResult(block, 1, 0, { token: -1, flags, logprob: 0 });
    const [good, bad] = results.unpack(2);
    assertEquals(good, { token: 3, logprob: -1, top: [] });
    assert(bad instanceof ForgeError && bad.message.includes(message));
    assertEquals(bad.code, code);
  }
});
