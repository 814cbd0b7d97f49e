/** Compares the sums and the trace of a profile with plain loops over random runs. */
import { assert, assertEquals } from "@std/assert";
import type { OperationTime } from "../../../src/backend.ts";
import { Profile } from "../../../src/engine/profile.ts";
import { load } from "../../../src/mod.ts";
import { Random } from "../../support/random.ts";
import { TempFolder } from "../../support/temp_folder.ts";
import { writeRandomLlama } from "../../support/tiny_llama.ts";

const random = new Random("profile");

interface Run {
  readonly phase: "prefill" | "decode";
  readonly nTokens: number;
  readonly nSteps: number;
  readonly operations: readonly OperationTime[];
}

/** Returns the times of a run's operations. Durations differ, so that their order is unique. */
function operationTimes(nSteps: number): OperationTime[] {
  return Array.from(
    { length: nSteps },
    (_, step) =>
      Array.from({ length: random.int(1, 4) }, (): OperationTime => ({
        step,
        operation: random.pick(["matmul", "rope"]),
        matrix: random.pick(["", "4 x 8 F16", "8 x 8 F32"]),
        kernel: random.pick(["", "matvec"]),
        begin: random.int(0, 1000),
        duration: random.int(1, 2 ** 30),
        bytes: random.int(0, 1000),
        flops: random.int(0, 1000),
      })),
  ).flat();
}

/** Adds a run of one sequence, or of two, to a profile. */
function addRun(profile: Profile, isPrefill: boolean): Run {
  const nSteps = isPrefill ? 1 : random.int(1, 3);
  const operations = operationTimes(nSteps);
  const sizes = Array.from({ length: random.int(1, 2) }, () => random.int(1, 5));
  const chunks = sizes.map((length, i) => ({
    tokens: { length },
    // A prompt next to a decoded sequence makes the run one of prefill.
    outputs: { length: isPrefill && i === 0 ? length - 1 : length },
  }));
  profile.add(chunks, performance.now() - 1, operations);
  const nTokens = nSteps * sizes.reduce((sum, size) => sum + size, 0);
  return { phase: isPrefill ? "prefill" : "decode", nTokens, nSteps, operations };
}

Deno.test("profile: the phases are sums over runs and groups of operations", () => {
  assertEquals(new Profile().phases(), []);
  for (let round = 0; round < 30; round++) {
    const profile = new Profile();
    const runs = Array.from(
      { length: random.int(1, 5) },
      () => addRun(profile, random.chance(0.5)),
    );
    const phases = profile.phases();
    const names = (["prefill", "decode"] as const)
      .filter((name) => runs.some(({ phase }) => phase === name));
    assertEquals(phases.map(({ phase }) => phase), names);
    for (const { phase, steps, tokens, duration, operations } of phases) {
      const own = runs.filter((run) => run.phase === phase);
      const sums = new Map<string, number[]>();
      let [nSteps, nTokens] = [0, 0];
      for (const run of own) {
        nSteps += run.nSteps;
        nTokens += run.nTokens;
        for (const { operation, matrix, duration, bytes, flops } of run.operations) {
          const [n = 0, d = 0, b = 0, f = 0] = sums.get(`${operation}/${matrix}`) ?? [];
          sums.set(`${operation}/${matrix}`, [n + 1, d + duration, b + bytes, f + flops]);
        }
      }
      assertEquals([steps, tokens], [nSteps, nTokens]);
      assert(duration >= 1e6 * own.length, `${duration} ns for ${own.length} runs of 1 ms`);
      const found = operations.map(({ operation, matrix, count, duration, bytes, flops }) => [
        `${operation}/${matrix}`,
        [count, duration, bytes, flops],
      ]);
      assertEquals(found, Array.from(sums).sort(([, a], [, b]) => b[1]! - a[1]!));
    }
  }
});

Deno.test("profile: the trace has every run, and its operations from its begin on", () => {
  const profile = new Profile();
  const before = performance.now();
  const runs = Array.from({ length: 12 }, (_, i) => addRun(profile, i % 3 === 0));
  const { traceEvents, displayTimeUnit } = profile.trace();
  assertEquals(displayTimeUnit, "ns");
  let at = 0;
  for (const { phase, nTokens, operations } of runs) {
    const run = traceEvents[at++]!;
    assertEquals(
      [run.name, run.cat, run.ph, run.pid, run.tid, run.args],
      [`${phase} of ${nTokens} tokens`, "run", "X", 1, 1, { tokens: nTokens }],
    );
    // In microseconds: each run began 1 ms before it was added.
    assert(run.dur >= 1000 && Math.abs(run.ts) <= 1000 * (1 + performance.now() - before));
    for (const { operation, matrix, kernel, begin, duration, bytes, flops } of operations) {
      const { ts, ...event } = traceEvents[at++]!;
      assert(
        Math.abs(ts - run.ts - begin / 1000) < 1e-6,
        `${ts} is not ${begin} ns after ${run.ts}`,
      );
      const args = { ...(matrix && { matrix }), ...(kernel && { kernel }), bytes, flops };
      assertEquals(
        event,
        {
          name: operation,
          cat: "operation",
          ph: "X",
          dur: duration / 1000,
          pid: 1,
          tid: 2,
          args,
        } as const,
      );
    }
  }
  assertEquals(at, traceEvents.length);
});

Deno.test("profile: the runs of a model lie one after another within its time", async () => {
  using folder = new TempFolder();
  writeRandomLlama(folder.path);
  await using model = await load(folder.path, { device: "reference" });
  const before = performance.now();
  const profile = model.startProfile();
  await model.complete(Int32Array.of(3, 4, 5), { temperature: 0, maxTokens: 4 });
  const most = 1000 * (performance.now() - before);
  const runs = profile.trace().traceEvents.filter(({ cat }) => cat === "run");
  assert(runs.length >= 2, `${runs.length} runs`);
  let end = 0;
  for (const { ts, dur } of runs) {
    assert(ts >= end && dur > 0, `a run from ${ts} for ${dur} us after one until ${end} us`);
    end = ts + dur;
  }
  assert(end <= most, `runs until ${end} us of ${most} us`);
});
