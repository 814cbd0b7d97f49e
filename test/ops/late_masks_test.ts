/** Masks that are filled during the run. */
import { assert, assertEquals, assertRejects } from "@std/assert";
import { InputBlock } from "../../ffi/step_block.ts";
import { ForgeError } from "../../src/errors.ts";
import { deviceTest } from "../support/devices.ts";
import { fullRequest, LogitSampler, type SampleRequest } from "../support/logit_sampler.ts";
import { randomMatrix } from "../support/matrix.ts";
import { Random } from "../support/random.ts";
import { borderTest, floatWord, status } from "../support/raw_border.ts";
import { greedy, outputRow } from "../support/step_graph.ts";

const VOCABULARY = 70, WORDS = 3, OUTPUTS = 4;

/** A mask of random tokens, at least one. */
function randomMask(random: Random): Uint32Array {
  const mask = Uint32Array.from({ length: WORDS }, () => random.u32() & random.u32());
  mask[2]! &= 2 ** (VOCABULARY % 32) - 1;
  mask[random.int(0, 1)]! |= 1;
  return mask;
}

function requests(random: Random, masks: readonly Uint32Array[]): SampleRequest[] {
  return masks.map((mask, row) => ({
    row,
    position: random.int(0, 1000),
    sampling: { mask, seed: 5n, temperature: random.pick([0, 0.8]), topK: random.pick([0, 4]) },
  }));
}

deviceTest("masks filled late choose as masks filled before", async (device) => {
  const random = new Random("late masks");
  const logits = randomMatrix(random, OUTPUTS, VOCABULARY);
  const sampler = await LogitSampler.record(device, logits, { maxOutputs: OUTPUTS });
  for (let i = 0; i < 20; i++) {
    const masks = Array.from({ length: OUTPUTS }, () => randomMask(random));
    const early = requests(random, masks);
    const late = early.map((request, row) => {
      const mask = new Uint32Array(WORDS);
      // Some masks of a run are complete from the start.
      if (row === i % OUTPUTS) return request;
      const fillMask = () => mask.set(masks[row]!);
      return { ...request, sampling: { ...request.sampling, mask }, fillMask };
    });
    assertEquals(await sampler.sample(late), await sampler.sample(early));
  }
  sampler.release();
});

deviceTest("a mask that cannot be filled fails its output alone", async (device) => {
  const random = new Random("broken masks");
  const sampler = await LogitSampler.record(device, randomMatrix(random, 2, VOCABULARY), {
    maxOutputs: 2,
  });
  const broken = {
    row: 0,
    sampling: { mask: new Uint32Array(WORDS) },
    fillMask: () => {
      throw new ForgeError("bad_input", "no mask today");
    },
  };
  await assertRejects(() => sampler.sample([broken, { row: 1 }]), ForgeError, "no mask today");
  const alone = await sampler.sample([{ row: 1 }]);
  assertEquals(await sampler.sample([{ row: 1 }]), alone);
  sampler.release();
});

borderTest(
  "a run waits for its masks until they are there, it is stopped, or the time is over",
  async (border, random) => {
    const { symbols: s, device } = border;
    const step = border.make((out) => s.forge_step_begin(device, 1, 1, 1, 1, out));
    const table = border.upload(randomMatrix(random, 1, VOCABULARY));
    const x = border.record(step, "embed", table, floatWord(1));
    border.record(step, "sample", border.record(step, "gather_outputs", x), 0);
    assertEquals(await s.forge_step_end(step, new BigUint64Array(1)), status.ok);
    const mask = new Uint32Array(WORDS).fill(0xffffffff);
    const output = outputRow(0, { sampling: { ...greedy, mask } });
    const block = new InputBlock().pack({
      tokens: [0],
      positions: [0],
      sequences: [0],
      pageTables: [[0]],
      outputs: [output],
    });
    const results = new Int32Array(4);
    const run = (control: Int32Array<ArrayBuffer> | null) =>
      s.forge_step_run(
        step,
        block,
        BigInt(block.byteLength),
        results,
        BigInt(results.byteLength),
        control,
      );

    assertEquals(await run(null), status.ok);
    assertEquals(await run(Int32Array.of(0, 0)), status.ok);

    const patient = Int32Array.of(0, 60_000);
    const waiting = run(patient);
    // The mask allows a single token from here on.
    block.fill(0, block.length - WORDS);
    block[block.length - WORDS] = 1 << 7;
    Atomics.store(patient, 1, 0);
    assertEquals(await waiting, status.ok);
    assertEquals(results[0], 7);

    const stopped = Int32Array.of(0, 60_000);
    const cancelled = run(stopped);
    Atomics.store(stopped, 0, 1);
    assertEquals(await cancelled, status.cancelled);

    assertEquals(await run(Int32Array.of(0, 20)), status.invalidArgument);
    assertEquals(await run(null), status.ok);
  },
);

Deno.test("late masks: equal masks share a place unless they are yet to be filled", () => {
  const masks = [1, 2, 1, 1].map((word) => Uint32Array.of(word));
  const packed = (late: boolean) =>
    new InputBlock().pack({
      tokens: [0],
      positions: [0],
      sequences: [0],
      pageTables: [[0]],
      outputs: masks.map((mask) => ({
        ...fullRequest({ sampling: { mask } }),
        fillMask: late ? () => {} : undefined,
      })),
    });
  assertEquals(packed(false)[7], 2);
  assertEquals(packed(true)[7], 4);
  assert(packed(false).length < packed(true).length);
});
