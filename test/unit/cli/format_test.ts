/** The forms of numbers in reports, and reports of given numbers. */
import { assertEquals } from "@std/assert";
import { BatchMeter } from "../../../src/cli/batch/meter.ts";
import {
  formatBytes,
  formatClock,
  formatCount,
  formatDuration,
  formatSpeed,
  plural,
} from "../../../src/cli/output/format.ts";
import { describeProfile } from "../../../src/cli/output/profile_report.ts";
import type { Progress } from "../../../src/cli/output/progress.ts";
import { describeDevice, describeSpeed } from "../../../src/cli/output/run_report.ts";
import type { OperationSum, PhaseTimes } from "../../../src/engine/profile.ts";
import type {
  Completion,
  ConstraintCost,
  GenerationEnd,
  Model,
  Profile,
} from "../../../src/mod.ts";
import { fakeCheckpoint } from "../models/fakes.ts";

Deno.test("numbers have three digits and the unit that keeps them above 1", () => {
  const forms: readonly (readonly [found: string, expected: string])[] = [
    [formatBytes(0), "0 B"],
    [formatBytes(999), "999 B"],
    [formatBytes(344_000), "344 kB"],
    [formatBytes(1_049_000), "1.05 MB"],
    [formatBytes(999_600), "1.00 MB"],
    [formatBytes(2e18), "2000 PB"],
    [formatBytes(9_994_900), "9.99 MB"],
    [formatBytes(9_995_000), "10.0 MB"],
    [formatBytes(99_940_000), "99.9 MB"],
    [formatBytes(99_950_000), "100 MB"],
    [formatCount(12), "12"],
    [formatCount(260_000), "260 thousand"],
    [formatCount(7.62e9), "7.62 billion"],
    [formatSpeed(12, 350), "12 tokens in 350 ms (34.3 per second)"],
    [formatSpeed(1, 2000), "1 token in 2.00 s (0.50 per second)"],
    [formatSpeed(3, 0), "3 tokens in 0.00 ms"],
    [formatDuration(350), "350 ms"],
    [formatDuration(999.4), "999 ms"],
    [formatDuration(1240), "1.24 s"],
    [formatClock(4.2), "0:05"],
    [formatClock(754), "12:34"],
    [formatClock(10_800), "3:00:00"],
    [plural(1, "token"), "1 token"],
    [plural(2, "token"), "2 tokens"],
  ];
  for (const [found, expected] of forms) assertEquals(found, expected);
});

Deno.test("a profile's table has the times, shares and rates of its sums", () => {
  const sum = (operation: string, matrix: string, count: number, duration: number, flops = 0) =>
    ({ operation, matrix, count, duration, bytes: 3 * duration, flops }) as OperationSum;
  const report = (phases: readonly PhaseTimes[], bandwidth: number) =>
    describeProfile({ phases: () => phases } as Profile, bandwidth);
  assertEquals(report([], 1), "no step ran: the answer needed none\n");
  const decode: PhaseTimes = {
    phase: "decode",
    steps: 4,
    tokens: 5,
    duration: 8_000_000,
    operations: [
      sum("matmul", "4 x 8 F16", 12, 4_000_000, 5_000_000),
      sum("rope", "", 6, 1_000_000),
      // Of 0.5% of the time, and of less.
      sum("norm", "", 4, 40_000),
      sum("add", "", 4, 39_000),
      sum("copy", "", 4, 1_000),
    ],
  };
  const one: PhaseTimes = { phase: "prefill", steps: 1, tokens: 1, duration: 10, operations: [] };
  const heads = "operation           times  us a step  share  GB/s";
  assertEquals(
    report([decode], 6e9).split("\n"),
    [
      "decode: 5 tokens in 4 steps, 2.00 ms each",
      `  ${heads}  of reads  GFLOP/s`,
      "  matmul 4 x 8 F16        3     1000.0  50.0%   3.0     50.0%      1.3",
      "  rope                  1.5      250.0  12.5%   3.0     50.0%",
      "  norm                    1       10.0   0.5%   3.0     50.0%",
      "  smaller operations              10.0   0.5%",
      "  between operations             730.0  36.5%",
      "Reads reach at most 6.0 GB/s on this device, measured now.",
      "",
    ],
  );
  assertEquals(
    report([one, { ...decode, operations: [sum("rope", "", 4, 9_000_000)] }], 0).split("\n"),
    [
      "prefill: 1 token in 1 step, 0.00 ms each",
      "  operation           times  us a step   share  GB/s  of reads  GFLOP/s",
      "  between operations               0.0  100.0%",
      "",
      "decode: 5 tokens in 4 steps, 2.00 ms each",
      "  operation           times  us a step   share  GB/s  of reads  GFLOP/s",
      "  rope                    1     2250.0  112.5%   3.0",
      "  between operations               0.0    0.0%",
      "",
    ],
  );
});

Deno.test("a verbose report has the model, devices, memory and tensors that are not used", () => {
  const tensors = { a: [20, 5, 2], b: { type: "F16" as const, shape: [34] }, c: [1] };
  const memory = { weights: 4_870, kvCache: 2e6, states: 0, activations: 30e9 };
  const model = {
    checkpoint: fakeCheckpoint({ config: { model_type: "llama" }, tensors }),
    tokenizer: { description: "BPE" },
    devices: [
      { name: "A", kernels: "avx2", threads: 1 },
      { name: "B", kernels: "amx", threads: 8 },
    ],
    contextLength: 64,
    memory,
    unusedTensors: [],
  };
  const report = (more: object) => describeDevice({ ...model, ...more } as unknown as Model);
  const rows: (readonly [string, string])[] = [
    ["model", "model (llama, 235 parameters, F32 F16)"],
    ["tokenizer", "BPE"],
    ["device", "A, avx2 kernels, 1 thread"],
    ["", "B, amx kernels, 8 threads"],
    ["context", "64 tokens"],
    ["memory", "4.87 kB weights, 2.00 MB KV cache, 30.0 GB activations"],
  ];
  assertEquals(report({}), rows);
  const states = "4.87 kB weights, 2.00 MB KV cache, 1 B recurrent states, 30.0 GB activations";
  assertEquals(
    report({ memory: { ...memory, states: 1 }, unusedTensors: ["a", "b", "c", "d", "e"] }),
    [
      ...rows.slice(0, -1),
      ["memory", states],
      ["warning", '5 tensors of the files not used: "a", "b", "c", "d", "e"'],
    ],
  );
  const [, unused] = report({ unusedTensors: ["a", "b", "c", "d", "e", "f"] }).at(-1)!;
  assertEquals(unused.startsWith('6 tensors of the files not used: "a", "b", "c", "d", "e"'), true);
  assertEquals(unused.includes('"f"'), false);
});

Deno.test("a verbose report has the times of an answer, its drafts and its constraint", () => {
  const report = (more: object, cost?: ConstraintCost) => {
    const timings = { prefillMs: 100, decodeMs: 300, drafted: 0, accepted: 0, ...more };
    const tokens = { promptTokens: 30, cachedPromptTokens: 10, completionTokens: 7 };
    return describeSpeed(
      { timings, ...tokens, finishReason: "stop", ...more } as GenerationEnd,
      cost,
    );
  };
  const [reused, prefill] = [
    "reused   10 of 30 prompt tokens",
    "prefill  20 tokens in 100 ms (200 per second)",
  ];
  assertEquals(report({}).trimEnd().split("\n"), [
    reused,
    prefill,
    "decode   6 tokens in 300 ms (20.0 per second)",
    "ended    stop",
  ]);
  const drafted = report({ completionTokens: 0, finishReason: "length", drafted: 8, accepted: 3 });
  assertEquals(drafted.trimEnd().split("\n"), [
    reused,
    prefill,
    "decode   0 tokens in 300 ms (0.00 per second)",
    "drafted  8 tokens, 3 accepted (38%)",
    "ended    length",
  ]);
  const cost = { compiled: 1, compileMs: 1.26, masks: 8, maskMs: 30 };
  const constraint = (times: object, cost: ConstraintCost) =>
    report(times, cost).split("\n").find((line) => line.startsWith("constraint"));
  assertEquals(
    constraint({}, cost),
    "constraint  compiled in 1.3 ms, 8 masks of 3.750 ms, 7.5% of the steps",
  );
  assertEquals(
    constraint({ prefillMs: 0, decodeMs: 0 }, { ...cost, masks: 0, maskMs: 0 }),
    "constraint  compiled in 1.3 ms, 0 masks of 0.000 ms, 0.0% of the steps",
  );
});

Deno.test("a batch's progress and report count requests, errors, tokens and time", () => {
  const lines: (readonly unknown[])[] = [];
  const progress = { update: (...line: unknown[]) => lines.push(line) } as unknown as Progress;
  const completion = (promptTokens: number, completionTokens: number) =>
    ({ promptTokens, completionTokens }) as Completion;
  const { now } = performance;
  let time = 5_000;
  performance.now = () => time;
  try {
    const meter = new BatchMeter(progress, 11, 0);
    time += 2_000;
    meter.count([completion(7, 30_000), completion(7, 50_003)], 3);
    assertEquals([meter.done, meter.errors], [1, 0]);
    assertEquals(
      meter.describe(0),
      "1 request answered, 7 prompt tokens, 80003 tokens in 2.00 s (40002 per second)\n",
    );
    time += 2_000;
    meter.count(undefined, 3);
    assertEquals([meter.done, meter.errors], [2, 1]);
    assertEquals(
      meter.describe(3),
      "1 request answered, 3 done earlier, 1 failed, 7 prompt tokens, " +
        "80003 tokens in 4.00 s (20001 per second)\n",
    );
    meter.count([], 10);
    const unknown = new BatchMeter(progress, undefined, 2);
    time += 1_000;
    unknown.count([completion(1, 1)], 0);
    assertEquals([unknown.done, unknown.errors], [3, 2]);
  } finally {
    performance.now = now;
  }
  assertEquals(lines, [
    ["answering"],
    ["", 4, 11, "40002 tokens/s, 0:14 left"],
    ["", 5, 11, "20001 tokens/s, 1 error, 0:12 left"],
    ["", 11, 11, "20001 tokens/s, 1 error, 0:00 left"],
    ["answering"],
    ["3 requests done, 1 tokens/s, 2 errors"],
  ]);
});
