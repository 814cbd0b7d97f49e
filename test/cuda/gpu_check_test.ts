/**
 * The GPU check, on an emulated GPU: it must work the first time a real GPU is available. Every
 * part runs with the smallest sizes, and with a stand-in for compute-sanitizer.
 */
import { assert, assertEquals, assertStringIncludes } from "@std/assert";
import type { SpeedGroup } from "../../bench/gpu/lines.ts";
import { PARTS } from "../../bench/gpu/parts.ts";
import type { PartResult } from "../../bench/gpu/report.ts";
import { TempFolder } from "../support/temp_folder.ts";
import { drawn, isThorough } from "../support/thorough.ts";
import { emulatedGpu, emulatedGpuUnavailable, type FakeOptions } from "./emulated_gpu.ts";
import { ROOT } from "../support/checkout.ts";

const ignore = emulatedGpuUnavailable() !== undefined;

const GROUPS: readonly SpeedGroup[] = [
  ...["product", "decode step", "prefill", "decode attention", "prefill attention"] as const,
  ...["kernels of a step", "sampling", "host", "start", "expert product"] as const,
  "launches of a step",
];

type Numbers = { readonly parts: readonly Omit<PartResult, "output">[] };

/** Parts that only run other tests: the kernels', the operations', libflash_attn's and models'. */
const TESTING = ["kernels", "operations", "flash_kernels", "models"];
const TESTING_DRAWN = drawn("parts that test", TESTING, 1 / 2);

/** All parts, or half of those that test and without the one of test/cuda/gpu_model_test.ts. */
const ALL = isThorough ? [] : PARTS.map(({ name }) => name)
  .filter((name) => name !== "model" && (!TESTING.includes(name) || TESTING_DRAWN.includes(name)));

/** Runs parts of the check; returns its numbers and its output. */
async function check(
  parts: readonly string[],
  options: { readonly sanitizerExit?: number; readonly gpu?: FakeOptions } = {},
) {
  using folder = new TempFolder();
  const { sanitizerExit = 0, gpu = {} } = options;
  // Skips its own options, runs the program, and exits with the configured status.
  const sanitizer = folder.write(
    "compute-sanitizer",
    `#!/bin/sh\nshift 4\n"$@" || exit 1\necho "========= ERROR SUMMARY" >&2\nexit ${sanitizerExit}\n`,
  );
  Deno.chmodSync(sanitizer, 0o755);
  const { code, stdout, stderr } = await new Deno.Command(Deno.execPath(), {
    args: [
      ...["run", "-A", "--quiet", "--no-check", "bench/gpu_check.ts", "--emulated", ...parts],
      ...["--results", folder.at("results")],
    ],
    cwd: ROOT,
    env: {
      ...await emulatedGpu(gpu),
      NO_COLOR: "1",
      OUT: folder.path,
      PATH: `${folder.path}:${Deno.env.get("PATH") ?? ""}`,
    },
    stdin: "null",
  }).output();
  const decoder = new TextDecoder();
  const output = `${decoder.decode(stdout)}${decoder.decode(stderr)}`;
  const { parts: results } = JSON.parse(
    Deno.readTextFileSync(folder.at("gpu_check.json")),
  ) as Numbers;
  const [report = ""] = Array.from(Deno.readDirSync(folder.at("results")), ({ name }) => name);
  return { code, output, results, report, log: Deno.readTextFileSync(folder.at("gpu_check.log")) };
}

Deno.test({
  name: "the GPU check runs all of its parts on an emulated GPU",
  ignore,
  fn: async () => {
    const { code, output, results, report } = await check(ALL);
    const failures = results.flatMap(({ name, outcome, reason, lines }) =>
      outcome === "failed" ? [name, reason, ...lines.filter((line) => line.kind === "check")] : []
    );
    assertEquals(failures, [], output);
    assertEquals(code, 0);
    // PyTorch may be missing, and has no GPU to run on; the model needs a compiler by pip.
    const skipped = results.filter(({ outcome }) => outcome === "skipped").map(({ name }) => name);
    assertEquals(skipped.filter((name) => name !== "torch" && name !== "model"), ["flash_attn"]);
    const checks = (part: string) =>
      results.find(({ name }) => name === part)?.lines.filter(({ kind }) => kind === "check") ?? [];
    for (const part of [...TESTING_DRAWN, "sanitizer"]) {
      assert(checks(part).length >= 2, part);
    }
    // On a busy machine, differences of times may be lost in noise.
    const lines = results.flatMap((part) => part.lines);
    const timed = new Set(lines.map((line) => line.kind === "speed" ? line.group : ""));
    const lost = new Set(
      lines.map((line) =>
        line.kind === "note" ? /^([a-z ]+), .*: too short to be timed$/.exec(line.text)?.[1] : ""
      ),
    );
    for (const group of GROUPS) {
      assert(timed.has(group) || lost.has(group), group);
      if (timed.has(group)) assertStringIncludes(output, `### ${group}\n`);
    }
    assertStringIncludes(output, "# Emulated GPU 0\n");
    assertStringIncludes(output, "### Targets of an H100\n");
    assert(report.endsWith("-emulated-gpu-0.md"), report);
  },
});

Deno.test({
  name: "the GPU check runs the kernels of SM90 on an emulated SM90",
  // It runs the other kernels again.
  ignore: !isThorough || ignore,
  fn: async () => {
    const { code, output, results } = await check(["kernels"], { gpu: { architecture: 90 } });
    assertEquals(code, 0, output);
    const names = results[0]?.lines.flatMap((line) => line.kind === "check" ? [line.name] : []);
    // The driver encodes the tensor maps that the kernels of wgmma read by.
    assert(names?.includes("wgmma_gemm_of_odd_columns"), output);
  },
});

Deno.test({
  name: "the GPU check continues after a part that fails, and names the failure",
  ignore,
  fn: async () => {
    const { code, output, results, log } = await check(["sanitizer", "attention"], {
      sanitizerExit: 9,
    });
    assertEquals(code, 1, output);
    assertEquals(results.map(({ name, outcome }) => [name, outcome]), [
      ["attention", "passed"],
      ["sanitizer", "failed"],
    ]);
    assertStringIncludes(output, "- sanitizer: forge run under memcheck: ");
    assertStringIncludes(log, "ERROR SUMMARY");
  },
});

Deno.test({
  name: "the GPU check reports kernels that bring the device down",
  ignore,
  fn: async () => {
    const { code, results } = await check(["kernels"], { gpu: { illegal_address: 3 } });
    assertEquals(code, 1);
    const checks = results[0]?.lines.flatMap((line) => line.kind === "check" ? [line] : []) ?? [];
    const failed = checks.filter(({ passed }) => !passed);
    // Each process fails at its third launch; the next process continues after that test.
    assert(failed.length >= 2 && failed.length < checks.length, `${failed.length}`);
    for (const { detail = "" } of failed) {
      assertStringIncludes(detail, "CUDA_ERROR_ILLEGAL_ADDRESS");
    }
    assertEquals(new Set(checks.map(({ name }) => name)).size, checks.length);
  },
});

Deno.test("the GPU check rejects unknown parts and options", async () => {
  const run = async (...args: string[]) => {
    const { code, stderr } = await new Deno.Command(Deno.execPath(), {
      args: ["run", "-A", "--quiet", "--no-check", "bench/gpu_check.ts", ...args],
      cwd: ROOT,
    }).output();
    return [code, new TextDecoder().decode(stderr).split("\n")[0]];
  };
  assertEquals(await run("kernel"), [
    2,
    'unknown part "kernel"; valid are kernels, operations, flash_kernels, models, products, ' +
    "decode, attention, sampling, launches, experts, torch, profile, sanitizer, start, flash_attn, model",
  ]);
  assertEquals(await run("--seconds", "soon"), [
    2,
    '--seconds is "soon"; valid is a number above 0',
  ]);
});
