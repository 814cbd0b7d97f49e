/**
 * A GPU for tests on machines without one: the stand-ins for NVIDIA's libraries, for programs that
 * run in processes of their own, since a bug in a kernel ends the process.
 */
import { join } from "@std/path";
import { findLibrary } from "../../ffi/library.ts";
import { emulatorUnavailable } from "../emulator/build.ts";
import { buildFakeDriver } from "../emulator/fake_driver/build.ts";
import { buildEmulatedFlashAttention } from "../flash_attn/build.ts";
import { runDeno } from "../support/deno_program.ts";
import { ROOT } from "../support/checkout.ts";
import { emulatorSeed } from "../support/random.ts";

/** Why there can be no emulated GPU here. */
export function emulatedGpuUnavailable(): string | undefined {
  const reason = emulatorUnavailable() ??
    (findLibrary("cuda") === undefined ? "there is no cuda library" : undefined);
  if (reason !== undefined) console.error(`skipping: ${reason}`);
  return reason;
}

/** What the stand-in for the driver pretends; see test/emulator/fake_driver/options.h. */
export type FakeOptions = Readonly<Record<string, number>>;

/**
 * The environment in which forge finds an emulated GPU. The compiler is the stand-in too: kernels are
 * compiled by NVIDIA's in test/emulator, which needs a download.
 */
export async function emulatedGpu(options: FakeOptions = {}): Promise<Record<string, string>> {
  const { driver, nvrtc } = await buildFakeDriver();
  return {
    // What nvcc built, and what NVIDIA did, know nothing of this GPU.
    FORGE_FLASH_ATTN: "none",
    FORGE_CUBLASLT: "none",
    FORGE_CUDA_DRIVER: driver,
    FORGE_EMULATOR_SEED: emulatorSeed(),
    FORGE_NVRTC: nvrtc,
    FORGE_CACHE: join(ROOT, "build", "emulator", "cache"),
    FORGE_FAKE_CUDA: Object.entries(options).map(([key, value]) => `${key}=${value}`).join(","),
  };
}

/** What makes forge use the stand-in for cuBLASLt on an emulated GPU. */
export async function emulatedCublasLt(): Promise<Record<string, string>> {
  return { FORGE_CUBLASLT: (await buildFakeDriver()).cublaslt };
}

/** What makes forge use libflash_attn on an emulated GPU: the library's emulated build. */
export async function emulatedFlashAttention(): Promise<Record<string, string>> {
  return { FORGE_FLASH_ATTN: (await buildEmulatedFlashAttention()).library };
}

/**
 * Runs a Deno program with all permissions on an emulated GPU; all its output when it succeeded.
 *
 * @param env variables beside those of the emulated GPU
 */
export async function runOnEmulatedGpu(
  args: readonly string[],
  env: Readonly<Record<string, string>> = {},
): Promise<string> {
  return await runDeno(args, {
    FORGE_TEST_DEVICES: "cuda",
    FORGE_TEST_EMULATED: "1",
    ...await emulatedGpu(),
    ...env,
  });
}
