/**
 * libflash_attn against plain loops, on the emulator: the sources that nvcc compiles, with the
 * instructions of SM80 and SM90 implemented in C++.
 */
import { assert } from "@std/assert";
import { emulatorUnavailable } from "../emulator/build.ts";
import { Random } from "../support/random.ts";
import { buildEmulatedFlashAttention } from "./build.ts";
import { type Case, decodeCases, forwardCases, randomCase, sanitizerCases } from "./cases.ts";
import { assertAccurate, assertNearFloat, runCases } from "./run_cases.ts";

const unavailable = emulatorUnavailable();
if (unavailable) console.error(`skipping: ${unavailable}`);
const ignore = unavailable !== undefined;

async function checkAll(mode: "plain" | "asan" | "tsan", cases: readonly Case[]): Promise<void> {
  const { cases: program } = await buildEmulatedFlashAttention(mode);
  const outcomes = await runCases(program, cases);
  cases.forEach((c, i) => {
    const outcome = outcomes[i];
    assert(outcome !== undefined);
    assertAccurate(c, outcome);
  });
  assertNearFloat(cases, outcomes);
}

for (const capability of [80, 90] as const) {
  Deno.test({
    name: `flash attention: forward kernels of SM${capability} compute what plain loops compute`,
    ignore,
    fn: () =>
      // Without no_split, few queries would take the split path.
      checkAll("plain", forwardCases.map((c) => ({ no_split: 1, ...c, capability }))),
  });
}

Deno.test({
  name: "flash attention: decoding computes what plain loops compute",
  ignore,
  fn: () => checkAll("plain", decodeCases),
});

Deno.test({
  name: "flash attention: random shapes and flags",
  ignore,
  fn: () => {
    const random = new Random("flash attention");
    return checkAll("plain", Array.from({ length: 60 }, () => randomCase(random)));
  },
});

Deno.test({
  name: "flash attention: no access beyond a buffer, nothing undefined",
  ignore,
  fn: () => checkAll("asan", sanitizerCases),
});

Deno.test({
  name: "flash attention: no races between threads, copies and products",
  ignore,
  fn: () => checkAll("tsan", sanitizerCases),
});
