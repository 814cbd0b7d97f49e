/**
 * Builds kernels for the emulator and runs their tests: `kernel_check.ts cuda|metal CHECK`, where
 * CHECK is a `KernelCheck` as JSON. Fails unless all tests pass.
 */
import { buildEmulator } from "../emulator/build.ts";
import { runTest } from "../emulator/kernel_program.ts";
import { buildMetalEmulator } from "../emulator/metal/build.ts";
import { emulatorSeed } from "../support/random.ts";
import type { KernelCheck } from "./mutant.ts";

const [device, text = ""] = Deno.args;
const { kernelTests, kernels, instances = ".", mode = "plain" }: KernelCheck = JSON.parse(text);
const build = device === "metal" ? buildMetalEmulator : buildEmulator;
const { tests } = await build({ mode, only: kernels, instances: new RegExp(instances) });
for (const name of kernelTests) {
  const { ok, output } = await runTest(tests, name, { FORGE_EMULATOR_SEED: emulatorSeed() });
  if (ok) continue;
  console.log(output);
  Deno.exit(1);
}
