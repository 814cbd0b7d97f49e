/**
 * A model that emulated GPUs divide: the answers of one, exchanges in graphs, and failures of one
 * GPU.
 */
import {
  assert,
  assertEquals,
  assertMatch,
  assertRejects,
  assertStringIncludes,
} from "@std/assert";
import { forge, type Outcome } from "../cli/forge.ts";
import { sharedAvailable, sharedPath } from "../support/shared.ts";
import { TempFolder } from "../support/temp_folder.ts";
import { writeRandomLlama } from "../support/tiny_llama.ts";
import {
  emulatedGpu,
  emulatedGpuUnavailable,
  type FakeOptions,
  runOnEmulatedGpu,
} from "./emulated_gpu.ts";

const ignore = emulatedGpuUnavailable() !== undefined;

/** Answers a batch file on emulated GPUs. */
async function answer(
  flags: readonly string[],
  options: FakeOptions = {},
  env: Readonly<Record<string, string>> = {},
): Promise<Outcome> {
  using folder = new TempFolder();
  writeRandomLlama(folder.at("model"));
  const lines = Array.from({ length: 5 }, (_, i) => {
    const more = i % 2 === 0 ? { temperature: 0 } : { temperature: 0.8, regex: "[a-z ]+" };
    const prompt = `prompt ${i} `.repeat(1 + 3 * i);
    return `${JSON.stringify({ id: i, prompt, raw: true, max_tokens: 6, seed: i, ...more })}\n`;
  });
  const input = folder.write("in.jsonl", lines.join(""));
  const args = ["run", "-m", folder.at("model"), "--batch", input, "--ordered", "--parallel", "2"];
  return await forge([...args, ...flags], { env: { ...await emulatedGpu(options), ...env } });
}

function tokensOf({ stdout }: Outcome): unknown[] {
  return stdout.split("\n").slice(0, -1).map((line) => JSON.parse(line).token_ids);
}

let ofOne: Promise<unknown[]> | undefined;

/** Returns the answers of one device, which the first test computes. */
function answersOfOne(): Promise<unknown[]> {
  return ofOne ??= answer(["--device", "cuda"]).then((single) => {
    assertEquals([single.code, single.stderr], [0, ""]);
    return tokensOf(single);
  });
}

Deno.test({
  name: "CUDA: devices that divide a model give the answers of one, with sums in graphs",
  ignore,
  fn: async () => {
    const expected = await answersOfOne();
    for (const [count, architecture] of [[2, 80], [4, 90]] as const) {
      const flags = ["--device", "cuda", "--tensor-parallel", String(count)];
      const options = { devices: count, architecture, strict_exit: 1 };
      const divided = await answer(flags, options, { FORGE_CUDA_TRACE: "1" });
      assertEquals(divided.code, 0, divided.stderr);
      assertEquals(tokensOf(divided), expected);
      // Of the embedding, twice in each of two layers, and of the logits.
      assertMatch(divided.stderr, /launches:.* 6xncclAllReduce/);
      assertMatch(divided.stderr, /^graph for \d+ tokens/m);
    }
  },
});

Deno.test({
  name: "CUDA: stages give the answers of one device, with messages in graphs",
  ignore,
  fn: async () => {
    const expected = await answersOfOne();
    for (
      const [ranks, launches] of [[1, / 1xncclSend/], [4, / 3xncclAllReduce.* 1xncclSend/]] as const
    ) {
      const flags = [
        "--device",
        "cuda",
        "--pipeline-parallel",
        "2",
        "--tensor-parallel",
        `${ranks}`,
      ];
      const options = { devices: 2 * ranks, strict_exit: 1 };
      const staged = await answer(flags, options, { FORGE_CUDA_TRACE: "1" });
      assertEquals(staged.code, 0, staged.stderr);
      assertEquals(tokensOf(staged), expected);
      assertMatch(staged.stderr, launches);
      assertMatch(staged.stderr, /^graph for \d+ tokens/m);
    }
  },
});

Deno.test({
  name: "CUDA: devices divide the heads of latent attention",
  ignore: ignore || !sharedAvailable("models", "tiny"),
  fn: async () => {
    const model = sharedPath("models", "tiny", "deepseek_v2");
    const args = [
      "run",
      "-m",
      model,
      "--device",
      "cuda",
      "--raw",
      "-p",
      "Once",
      "-n",
      "6",
      "--json",
    ];
    const run = async (...flags: string[]) =>
      await forge([...args, "--temp", "0", ...flags], { env: await emulatedGpu({ devices: 2 }) });
    const [one, two] = [await run(), await run("--tensor-parallel", "2")];
    assertEquals([one.code, two.code], [0, 0], two.stderr);
    assertEquals(JSON.parse(two.stdout).token_ids, JSON.parse(one.stdout).token_ids);
  },
});

Deno.test({
  name: "CUDA: a device that is lost ends a divided model with an error",
  ignore,
  fn: async () => {
    for (const division of ["--tensor-parallel", "--pipeline-parallel"]) {
      const flags = ["--devices", "cuda:0,cuda:1", division, "2"];
      for (const failing_device of [0, 1]) {
        const lost = await answer(flags, { devices: 2, lost: 60, failing_device });
        assertEquals(lost.code, 1, lost.stderr);
        assertStringIncludes(lost.stderr, "CUDA_ERROR");
        assert(!lost.stderr.includes("fake NCCL"), lost.stderr);
      }
    }
  },
});

Deno.test({
  name: "CUDA: a device without memory for a graph ends the run of those that wait for its sums",
  ignore,
  fn: async () => {
    const flags = ["--devices", "cuda:0,cuda:1", "--tensor-parallel", "2"];
    for (const failing_device of [0, 1]) {
      const options = { devices: 2, fail_capture: 2, failing_device };
      const failed = await answer(flags, options, { FORGE_FAKE_NCCL_WAIT_MS: "2000" });
      assertEquals(failed.code, 1, failed.stderr);
      assertStringIncludes(failed.stderr, "CUDA_ERROR_OUT_OF_MEMORY");
    }
  },
});

Deno.test({
  name: "CUDA: division needs NCCL, devices and memory",
  ignore,
  fn: async () => {
    const flags = ["--device", "cuda", "--tensor-parallel", "2"];
    const none = await answer(flags, { devices: 2 }, { FORGE_NCCL: "none" });
    assertEquals(none.code, 1);
    assertStringIncludes(none.stderr, "NCCL");
    const few = await answer(flags, { devices: 1 });
    assertEquals(few.code, 2);
    assertStringIncludes(few.stderr, "1 replica of 2 parts need 2 cuda devices; found 1");
    // The demo model has 3.6 MB of weights.
    const { stdout } = await forge(["inspect", "--tensor-parallel", "2", "--json"], {
      env: await emulatedGpu({ devices: 2 }),
    });
    const plans: { weights: number; rank: number }[] = JSON.parse(stdout).replicas;
    assertEquals(plans.map(({ rank }) => rank), [0, 1]);
    for (const { weights } of plans) assert(weights < 2.5e6, `${weights} bytes`);
    const stages = await forge([
      "inspect",
      "--devices",
      "cuda:0,cuda:1",
      "--pipeline-parallel",
      "2",
    ], {
      env: await emulatedGpu({ devices: 2 }),
    });
    assertMatch(stages.stdout, /replica 1, stage 1 .* fit\n\s*replica 1, stage 2 .* fit/);
  },
});

Deno.test({
  name: "CUDA: ranks run series of steps, and the stand-in for NCCL reports what does not match",
  ignore,
  fn: async () => {
    const program = ["run", "-A", "--no-check", "test/support/check_ranks.ts"];
    const env = {
      FORGE_FAKE_CUDA: "devices=2",
      FORGE_CUDA_TRACE: "1",
      FORGE_FAKE_NCCL_WAIT_MS: "2000",
    };
    assertStringIncludes(await runOnEmulatedGpu([...program, "series"], env), ": 4 steps a graph");
    await runOnEmulatedGpu([...program, "stopped runs"], env);
    await runOnEmulatedGpu([...program, "equal sums"], env);
    await runOnEmulatedGpu([...program, "equal messages"], env);
    for (
      const [check, message] of [
        ["different counts", "fake NCCL: sum 2 has "],
        ["a missing sum", "fake NCCL: rank 0 waits in sum 2 for the ranks 1"],
        ["different messages", "fake NCCL: message 2 has 12 numbers on rank 0, 15 on rank 1"],
        ["a missing message", "fake NCCL: rank 1 waits for message 2 of rank 0"],
      ] as const
    ) {
      await assertRejects(() => runOnEmulatedGpu([...program, check], env), Error, message);
    }
  },
});
