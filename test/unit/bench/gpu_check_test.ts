import { assert, assertAlmostEquals, assertEquals, assertStringIncludes } from "@std/assert";
import { linesOfRace } from "../../../bench/gpu/flash_attn.ts";
import { type Line, readLines, type SpeedLine } from "../../../bench/gpu/lines.ts";
import { testCases, testFile } from "../../../bench/gpu/operations.ts";
import { describeCheck } from "../../../bench/gpu/report.ts";
import { judge, TARGETS } from "../../../bench/gpu/targets.ts";
import { MEASURED_MS, timeRuns, WARM_UP_MS } from "../../../bench/gpu/timing.ts";
import type { Step, StepInputs } from "../../../src/backend.ts";
import { TempFolder } from "../../support/temp_folder.ts";

const read: Line = { kind: "limit", name: "read GB/s", value: 3000 };

function product(name: string, gbPerSecond: number): SpeedLine {
  return {
    kind: "speed",
    group: "product",
    name,
    by: "forge",
    microseconds: 10,
    gbPerSecond,
    of: { tokens: 1 },
  };
}

Deno.test("GPU check: incomplete and foreign lines are ignored", () => {
  const output = `Compiling\n${JSON.stringify(read)}\n{"kind":"speed","name":"a\n{"kind":1\n`;
  assertEquals(readLines(output), [read]);
});

Deno.test("GPU check: a target is judged by the worst of its lines", () => {
  const verdicts = (...speeds: number[]) =>
    judge([read, ...speeds.map((speed, i) => product(`${i}`, speed))]);
  assertEquals(verdicts(2900, 2760)[0]?.met, true);
  assertEquals(verdicts(2900, 2760)[0]?.worst, 92);
  assertEquals(verdicts(2900, 2600)[0]?.met, false);
  assertEquals(verdicts(2900, NaN)[0]?.met, false);
  assertEquals(verdicts()[0], { target: TARGETS[0]!, worst: undefined, met: undefined });
  // Without measured reads there are no shares.
  assertEquals(judge([product("a", 2900)])[0]?.met, undefined);
});

Deno.test("GPU check: times are compared with a peer's times for the same work", () => {
  const line = (by: SpeedLine["by"], name: string, microseconds: number): SpeedLine => ({
    kind: "speed",
    group: "decode attention",
    name,
    by,
    microseconds,
  });
  const target = TARGETS.findIndex(({ text }) => text.includes("PyTorch's flash attention"));
  const lines = [line("forge", "a", 8), line("PyTorch", "a", 10), line("forge", "b", 30)];
  assertEquals(judge(lines)[target]?.worst, 0.8);
  assertEquals(judge([...lines, line("PyTorch", "b", 20)])[target]?.met, false);
});

Deno.test("GPU check: the report compares speeds with peers, and lists failures, parts and targets", () => {
  const failing: Line = { kind: "check", name: "softcap", passed: false, detail: "3 is not 4" };
  const passing: Line = { kind: "check", name: "glu", passed: true };
  const peer: SpeedLine = { ...product("BF16 x 1", 0), by: "PyTorch", microseconds: 12 };
  const part = { seconds: 1.25, reason: "", output: "" };
  const lines = [read, product("BF16 x 1", 2400), peer];
  const text = describeCheck({ name: "NVIDIA H100", details: ["sm_90"] }, [
    { ...part, name: "operations", outcome: "failed", lines: [passing, failing] },
    { ...part, name: "products", outcome: "passed", lines },
  ], judge(lines));
  for (
    const piece of [
      "# NVIDIA H100\n\n- sm_90\n- read GB/s, at most: 3000\n",
      "| BF16 x 1 | 10.0 | 2400 GB/s (80%) |  | PyTorch 12.0 |",
      "- operations: softcap: 3 is not 4",
      "| operations | failed | 1 of 2 | 1.3 |  |",
      "| products of one token, of the read bandwidth | ≥ 90 % | 80.0 % | **missed** |",
    ]
  ) {
    assertStringIncludes(text, piece);
  }
  assert(text.lastIndexOf("###") === text.indexOf("### Targets"));
});

Deno.test("GPU check: a step is timed once the clocks of an idle GPU have risen", async () => {
  const timed = async (run: () => Promise<void>) => {
    let runs = 0;
    const step = { run: async () => (runs++, await run()) } as unknown as Step;
    const start = performance.now();
    const microseconds = await timeRuns(step, {} as StepInputs);
    return { microseconds, runs, elapsed: performance.now() - start };
  };
  const short = await timed(() => Promise.resolve());
  assert(short.elapsed >= WARM_UP_MS + MEASURED_MS, `${short.elapsed} ms`);
  const long = await timed(() => new Promise((end) => setTimeout(end, 50)));
  // Three runs are not timed. The GPU was busy until now.
  assertEquals(long.runs, 3 + 5);
  assert(long.microseconds >= 49_000, `${long.microseconds} us`);
});

Deno.test("GPU check: cases of a test report, with what failed", () => {
  const xml = `<testsuite><testcase name="a &quot;b&quot; &lt;c&gt;" time="1"></testcase>
    <testcase name="d"><failure message="x &amp; y">trace</failure></testcase>
    <testcase name="e"><skipped/></testcase></testsuite>`;
  assertEquals(testCases(xml), [
    { name: 'a "b" <c>', failure: undefined },
    { name: "d", failure: "x & y" },
  ]);
  assertEquals(testCases(""), []);
});

Deno.test("GPU check: a file of tests that ends without a report says how", async () => {
  using folder = new TempFolder();
  const detail = async (body: string, limitMs?: number) => {
    const path = folder.write("a_test.ts", `Deno.test("a", async () => { ${body} });`);
    const { lines, output } = await testFile(path, limitMs);
    assertStringIncludes(output, path);
    assertEquals(lines.map(({ passed }) => passed), [false]);
    return lines[0]?.detail;
  };
  const wait = (ms: number) => `await new Promise((end) => setTimeout(end, ${ms}));`;
  const killed = `${wait(500)} Deno.kill(Deno.pid, "SIGKILL"); ${wait(60_000)}`;
  assertEquals(await detail(killed), "ended by SIGKILL; a ...");
  assertStringIncludes(await detail(wait(60_000), 2000) ?? "", "stopped after 2 s");
});

Deno.test("GPU check: results of the race become lines of the check", () => {
  const check = { kind: "check", name: "varlen", error: 1e-3, float_error: 4e-4 } as const;
  assertEquals(linesOfRace(check).map((line) => line.kind === "check" && line.passed), [false]);
  // 4 x 4096 tokens squared x 2048, half of which is masked: 2.2e12 operations.
  const operations = 4 * 4 * 4096 * 4096 * 2048 / 2;
  const speeds = linesOfRace({
    kind: "forward",
    dtype: "bfloat16",
    head_dim: 128,
    length: 4096,
    causal: true,
    layout: "",
    flops: operations,
    tflop_s: { ours: 600, ours_sm80: 300, fa2: 320, cudnn: null },
  });
  assertEquals(
    speeds.map((line) => line.kind === "speed" ? [line.by, Math.round(line.microseconds)] : []),
    [
      ["forge", Math.round(operations / 600e6)],
      ["forge, SM80", Math.round(operations / 300e6)],
      ["FlashAttention-2", Math.round(operations / 320e6)],
    ],
  );
  // 32 numbers of Q8_0 are 34 bytes.
  for (const [type, bytes] of [["BF16", 64], ["Q8_0", 34]] as const) {
    const size = 2 * 8192 * 8 * 128 * bytes / 32;
    const [line] = linesOfRace({
      ...{ kind: "decode", type, length: 8192, batch: 1, kv_heads: 8 },
      gb_s: { ours: size / 20e3, fa2: null },
      microseconds: { ours: 20, fa2: null },
    });
    assert(line?.kind === "speed");
    assertAlmostEquals(line.microseconds, 20);
  }
});
