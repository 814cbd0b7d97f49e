/**
 * Whole programs on emulated GPUs whose kernels, stand-ins and host code check addresses and
 * undefined behaviour. `deno task sanitize` runs them; other runs skip them, since forge's
 * libraries are not sanitized.
 */
import { assertEquals } from "@std/assert";
import { join } from "@std/path";
import { forge } from "../cli/forge.ts";
import { emulatedGpu, emulatedGpuUnavailable } from "../cuda/emulated_gpu.ts";
import { emulatedMetal, emulatedMetalUnavailable } from "../metal/emulated_metal.ts";
import { ROOT } from "../support/checkout.ts";
import { TempFolder } from "../support/temp_folder.ts";

const isSanitized = Deno.env.get("FORGE_SANITIZED") === "1";

/** The instances of kernels that the bundled model uses: instrumented code is slow to compile. */
const KERNELS = { mode: "asan", instances: /F16|<f16(, 32)?>$/ } as const;

const MODEL = join(ROOT, "models", "demo");

/** A prompt of more than one tile, computed at once, and tokens drawn in several ways. */
const PROMPT = "Once upon a time there was a little girl who had a red ball and a small dog. "
  .repeat(2);
const SAMPLINGS = [["--temp", "0"], ["--temp", "0.9", "--top-k", "30", "--top-p", "0.9"]];

async function generate(
  device: string,
  env: Readonly<Record<string, string>>,
  sampling: readonly string[],
): Promise<string> {
  const args = ["run", "--device", device, "-m", MODEL, "--raw", "-p", PROMPT, "-n", "4"];
  const { code, stdout, stderr } = await forge([...args, "--seed", "3", ...sampling], { env });
  assertEquals([code, stderr], [0, ""]);
  return stdout;
}

const gpus = {
  cuda: { isMissing: () => emulatedGpuUnavailable() !== undefined, environment: emulatedGpu },
  metal: { isMissing: () => emulatedMetalUnavailable() !== undefined, environment: emulatedMetal },
};

for (const [device, { isMissing, environment }] of Object.entries(gpus)) {
  Deno.test({
    name: `a program on emulated ${device} runs without an error of the sanitizers`,
    ignore: !isSanitized || isMissing(),
    fn: async () => {
      using cache = new TempFolder();
      const env = { ...await environment({}, KERNELS), FORGE_CACHE: cache.path };
      for (const sampling of SAMPLINGS) {
        assertEquals(await generate(device, env, sampling), await generate("cpu", {}, sampling));
      }
    },
  });
}
