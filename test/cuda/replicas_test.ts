/** Replicas on several emulated GPUs: the answers of one, and failures of one of them. */
import { assertEquals, assertStringIncludes } from "@std/assert";
import { forge, type Outcome } from "../cli/forge.ts";
import { TempFolder } from "../support/temp_folder.ts";
import { writeRandomLlama } from "../support/tiny_llama.ts";
import { emulatedGpu, emulatedGpuUnavailable, type FakeOptions } from "./emulated_gpu.ts";

const ignore = emulatedGpuUnavailable() !== undefined;

/** Answers a batch file on emulated GPUs. */
async function answer(flags: readonly string[], options: FakeOptions): Promise<Outcome> {
  using folder = new TempFolder();
  writeRandomLlama(folder.at("model"));
  const lines = Array.from({ length: 6 }, (_, i) => {
    return `${
      JSON.stringify({ id: i, prompt: `prompt ${i}`, raw: true, max_tokens: 4, seed: i })
    }\n`;
  });
  const input = folder.write("in.jsonl", lines.join(""));
  const args = ["run", "-m", folder.at("model"), "--batch", input, "--ordered", "--parallel", "2"];
  return await forge([...args, ...flags], { env: await emulatedGpu(options) });
}

function tokensOf({ stdout }: Outcome): unknown[] {
  return stdout.split("\n").slice(0, -1).map((line) => JSON.parse(line).token_ids);
}

Deno.test({
  name: "CUDA: replicas on two devices give the answers of one, also if a device is lost",
  ignore,
  fn: async () => {
    const single = await answer(["--device", "cuda"], {});
    assertEquals([single.code, single.stderr], [0, ""]);
    const pair = ["--devices", "cuda:0,cuda:1"];
    const several = await answer(pair, { devices: 2, strict_exit: 1 });
    assertEquals([several.code, several.stderr], [0, ""]);
    assertEquals(tokensOf(several), tokensOf(single));
    for (const failing_device of [0, 1]) {
      const lost = await answer(pair, { devices: 2, lost: 30, failing_device });
      assertEquals(lost.code, 0, lost.stderr);
      assertStringIncludes(
        lost.stderr,
        `replica ${failing_device + 1} (Emulated GPU ${failing_device}) failed, others continue: `,
      );
      assertEquals(tokensOf(lost), tokensOf(single));
    }
  },
});

Deno.test({
  name: "CUDA: a device that cannot hold its replica is named",
  ignore,
  fn: async () => {
    const full = await answer(["--data-parallel", "2"], {
      devices: 2,
      fail_allocation: 3,
      failing_device: 1,
    });
    assertEquals(full.code, 1);
    assertStringIncludes(full.stderr, "replica 2 (Emulated GPU 1): ");
    // The demo model has 3.6 MB of weights.
    for (const memory_mib of [2, 64]) {
      const { stdout } = await forge(["inspect", "--devices", "cuda:0,cuda:1", "--json"], {
        env: await emulatedGpu({ devices: 2, memory_mib }),
      });
      const plans: Record<string, unknown>[] = JSON.parse(stdout).replicas;
      assertEquals(
        plans.map(({ name, free, fits }) => [name, free, fits]),
        [0, 1].map((i) => [`Emulated GPU ${i}`, memory_mib << 20, memory_mib > 2]),
      );
    }
    const few = await answer(["--device", "cuda", "--data-parallel", "3"], { devices: 2 });
    assertEquals(few.code, 2);
    assertStringIncludes(few.stderr, "3 replicas need 3 cuda devices; found 2");
  },
});
