/**
 * An Apple GPU for tests on machines without one: the unchanged Metal backend, linked with a
 * stand-in for Metal. Programs use it in separate processes, since a bug in a kernel, or a misuse
 * of Metal, ends the process.
 */
import { buildFakeMetal, fakeMetalUnavailable } from "../emulator/fake_metal/build.ts";
import type { MetalEmulatorOptions } from "../emulator/metal/build.ts";
import { runDeno } from "../support/deno_program.ts";
import { emulatorSeed } from "../support/random.ts";

/** Returns why emulation is unavailable here, or undefined. */
export function emulatedMetalUnavailable(): string | undefined {
  const reason = fakeMetalUnavailable();
  if (reason !== undefined) console.error(`skipping: ${reason}`);
  return reason;
}

/**
 * Properties and injected failures of the stand-in for Metal; see
 * test/emulator/fake_metal/options.h.
 */
export type FakeOptions = Readonly<Record<string, number>>;

/** The environment in which forge finds an emulated GPU. */
export async function emulatedMetal(
  options: FakeOptions = {},
  kernels: MetalEmulatorOptions = {},
): Promise<Record<string, string>> {
  return {
    FORGE_LIBRARY_PATH: await buildFakeMetal(undefined, kernels),
    FORGE_EMULATOR_SEED: emulatorSeed(),
    FORGE_FAKE_METAL: Object.entries(options).map(([key, value]) => `${key}=${value}`).join(","),
  };
}

/**
 * Runs a Deno program with all permissions on an emulated GPU; returns its output if it succeeds.
 *
 * @param env additional or replaced variables
 */
export async function runOnEmulatedMetal(
  args: readonly string[],
  env: Readonly<Record<string, string>> = {},
): Promise<string> {
  return await runDeno(args, {
    FORGE_TEST_DEVICES: "metal",
    FORGE_TEST_EMULATED: "1",
    ...await emulatedMetal(),
    ...env,
  });
}
