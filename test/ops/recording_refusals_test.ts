/** Contradictory recordings are refused, for each operation, with a clear error. */
import { assertAlmostEquals, assertEquals, assertRejects, assertThrows } from "@std/assert";
import type { KvCache, StepLimits, Weight } from "../../src/backend.ts";
import { ForgeError } from "../../src/errors.ts";
import { devices, deviceTest, openDevice, referenceDevice } from "../support/devices.ts";
import { tokenInputs } from "../support/step_graph.ts";
import {
  attention,
  begin,
  type Limit,
  limits,
  norm,
  refusals,
  sizeLimits,
} from "./recording_refusals.ts";

for (const [operation, list] of Object.entries(refusals)) {
  deviceTest(`${operation} rejects`, (device) => {
    for (const [message, record] of list) {
      assertThrows(() => record(begin(device)), ForgeError, message);
    }
  });
}

deviceTest("sizes up to their limits are accepted, and those next to them refused", (device) => {
  const isAccepted = ({ what, use }: Limit, size: number) => {
    try {
      use(begin(device), size);
      return true;
    } catch (error) {
      if (!(error instanceof ForgeError)) throw new Error(`${what}: ${size}`, { cause: error });
      return false;
    }
  };
  for (const limit of sizeLimits) {
    const { what, least, most } = limit;
    const sizes = [least - 1, least, most, most + 1].filter((size) => size >= 0);
    assertEquals(
      sizes.map((size) => [what, size, isAccepted(limit, size)]),
      sizes.map((size) => [what, size, size >= least && size <= most]),
    );
  }
}, [referenceDevice]);

deviceTest("a recording continues after a rejected operation", async (device) => {
  const { recorder, x } = begin(device);
  const error = assertThrows(() => recorder.softcap(x, 0), ForgeError);
  assertEquals(error.message, "softcap: cap is 0; valid is a finite number > 0");
  const value = recorder.softcap(x, 1);
  recorder.keep(value);
  const step = await recorder.finish();
  await step.run(tokenInputs(1));
  assertAlmostEquals(step.read(value, 8, 0, 1)[7]!, Math.tanh(1), 1e-6);
  step.release();
});

deviceTest("beginning and ending a recording", async (device) => {
  const refused: [Partial<StepLimits>, string][] = [
    [{ maxTokens: 0 }, "max_tokens is 0; valid is 1 to 1048576"],
    [{ maxTokens: 2 ** 20 + 1 }, "max_tokens is 1048577"],
    [{ maxOutputs: 0 }, "max_outputs is 0; valid is 1 to max_tokens (4)"],
    [{ maxOutputs: 5 }, "max_outputs is 5"],
    [{ maxSequences: 0 }, "max_sequences is 0"],
    [{ maxSequences: 5 }, "max_sequences is 5"],
    [{ maxPages: 0 }, "max_pages is 0"],
    [{ maxPages: 2 ** 24 + 1 }, "max_pages is 16777217"],
  ];
  for (const [change, message] of refused) {
    assertThrows(() => device.record({ ...limits, ...change }), ForgeError, message);
  }
  await assertRejects(() => device.record(limits).finish(), ForgeError, "nothing was recorded");
  const { recorder, x } = begin(device);
  const step = await recorder.finish();
  await assertRejects(() => recorder.finish(), ForgeError, "recording has ended already");
  assertThrows(() => recorder.softcap(x, 1), ForgeError, "recording has ended");
  assertThrows(() => recorder.keep(x), ForgeError, "recording has ended");
  step.release();
});

deviceTest("handles of another kind", (device) => {
  const { recorder, x, kv, vector } = begin(device);
  const weight: Weight = { handle: kv.handle, rows: 1, cols: 8 };
  assertThrows(() => recorder.matmul(x, weight), ForgeError, "is not a live weight");
  const cache = { ...kv, handle: vector(8).handle } as KvCache;
  assertThrows(() => recorder.attention(x, cache, attention), ForgeError, "not a live KV cache");
  const zero: Weight = { handle: 0, rows: 1, cols: 8 };
  assertThrows(() => recorder.matmul(x, zero), ForgeError, "handle 0 is not a live weight");
});

for (const device of devices) {
  Deno.test(`weights and caches of another device are rejected (${device.name})`, () => {
    using first = openDevice(device);
    using second = openDevice(device);
    const mine = begin(first), other = begin(second);
    assertThrows(
      () => mine.recorder.rmsNorm(mine.x, other.vector(8), norm),
      ForgeError,
      "another device",
    );
    assertThrows(
      () => mine.recorder.attention(mine.tokens(16), other.kv, attention),
      ForgeError,
      "another device",
    );
  });
}
