/**
 * libflash_attn against plain loops, on the emulator: the sources that nvcc compiles, with the
 * instructions of SM80 and SM90 implemented in C++.
 */
import { assert, assertEquals } from "@std/assert";
import { emulatorUnavailable } from "../emulator/build.ts";
import { Random } from "../support/random.ts";
import { drawn } from "../support/thorough.ts";
import { buildEmulatedFlashAttention, buildScheduleBalance, sanitizedHeadDims } from "./build.ts";
import {
  type Case,
  decodeCases,
  e4m3Cases,
  forwardCases,
  maskedCases,
  randomCase,
  sanitizerCases,
} from "./cases.ts";
import { assertAccurate, assertNearFloat, runCases, runLines } from "./run_cases.ts";

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

/** Returns calls of random shapes and flags. */
function randomCases(length: number): Case[] {
  const random = new Random("flash attention");
  return Array.from({ length }, () => randomCase(random));
}

/** Returns some of them whose kernels are built with sanitizers. */
function randomSanitizedCases(): Case[] {
  return randomCases(60).filter(({ head_dim }) => sanitizedHeadDims.includes(head_dim)).slice(0, 4);
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
  name: "flash attention: E4M3 is computed as plain loops compute it",
  ignore,
  fn: () => checkAll("plain", e4m3Cases),
});

Deno.test({
  name: "flash attention: masks of every type hide and shift what they do in plain loops",
  ignore,
  fn: () => checkAll("plain", maskedCases),
});

/** H100 SXM and PCIe, and A100. */
const devices = [
  { capability: 90, multiprocessors: 132, l2: 50 << 20 },
  { capability: 90, multiprocessors: 114, l2: 50 << 20 },
  { capability: 80, multiprocessors: 108, l2: 40 << 20 },
] as const;

Deno.test({
  name: "flash attention: every schedule of the bench has each tile, and no idle multiprocessors",
  ignore,
  async fn() {
    const shapes = devices.flatMap((device) =>
      [64, 128].flatMap((headDim) =>
        // With 1800 tokens the last section of heads is not full.
        [512, 1024, 1800, 2048, 4096, 8192, 16384].flatMap((length) =>
          [1, 0].map((causal) => ({ ...device, headDim, length, causal }))
        )
      )
    );
    const lines = shapes.map((shape) =>
      [
        ...[shape.headDim, shape.length, shape.causal],
        ...[shape.capability, shape.multiprocessors, shape.l2],
      ].join(" ")
    );
    const results = await runLines(await buildScheduleBalance(), lines);
    shapes.forEach((shape, i) => {
      const { tiles, distinct, balance } = JSON.parse(results[i] ?? "") as Record<
        "tiles" | "distinct" | "balance",
        number
      >;
      assertEquals(distinct, tiles, lines[i]);
      // Tiles of one size come in rounds, of which the last is not full.
      const rounds = tiles / shape.multiprocessors;
      const most = shape.causal === 1 ? 1 : rounds / Math.ceil(rounds);
      assert(balance >= Math.min(0.97, most - 1e-3), `${lines[i]}: ${balance} of ${most}`);
    });
  },
});

Deno.test({
  name: "flash attention: decoding computes what plain loops compute",
  ignore,
  fn: () => checkAll("plain", decodeCases),
});

Deno.test({
  name: "flash attention: random shapes and flags",
  ignore,
  fn: () => checkAll("plain", randomCases(60)),
});

const sanitizers = [
  ["asan", "no access beyond a buffer, nothing undefined"],
  ["tsan", "no races between threads, copies and products"],
] as const;
for (const [mode, what] of drawn("sanitizers of flash attention", sanitizers, 1 / 2)) {
  Deno.test({
    name: `flash attention: ${what}`,
    ignore,
    fn: () => checkAll(mode, [...sanitizerCases, ...randomSanitizedCases()]),
  });
}
