/**
 * A GPU for tests on machines without one: the stand-ins for NVIDIA's libraries. Programs use it in
 * separate processes, since a bug in a kernel ends the process.
 */
import { join } from "@std/path";
import { findLibrary } from "../../ffi/library.ts";
import { type EmulatorOptions, emulatorUnavailable } from "../emulator/build.ts";
import { buildFakeDriver } from "../emulator/fake_driver/build.ts";
import { buildEmulatedFlashAttention } from "../flash_attn/build.ts";
import { runDeno } from "../support/deno_program.ts";
import { ROOT } from "../support/checkout.ts";
import { emulatorSeed } from "../support/random.ts";

/** Returns why emulation is unavailable here, or undefined. */
export function emulatedGpuUnavailable(): string | undefined {
  const reason = emulatorUnavailable() ??
    (findLibrary("cuda") === undefined ? "the cuda library is missing" : undefined);
  if (reason !== undefined) console.error(`skipping: ${reason}`);
  return reason;
}

/**
 * Properties and injected failures of the stand-in driver; see test/emulator/fake_driver/options.h.
 */
export type FakeOptions = Readonly<Record<string, number>>;

/**
 * The environment in which forge finds an emulated GPU. It includes the stand-in compiler: NVIDIA's
 * compiler needs a download and is tested in test/emulator.
 */
export async function emulatedGpu(
  options: FakeOptions = {},
  kernels: EmulatorOptions = {},
): Promise<Record<string, string>> {
  const { driver, nvrtc, nccl } = await buildFakeDriver(kernels);
  return {
    // Libraries built by nvcc or NVIDIA do not run on this GPU.
    FORGE_FLASH_ATTN: "none",
    FORGE_CUBLASLT: "none",
    FORGE_CUDA_DRIVER: driver,
    FORGE_EMULATOR_SEED: emulatorSeed(),
    FORGE_NVRTC: nvrtc,
    FORGE_NCCL: nccl,
    FORGE_CACHE: join(ROOT, "build", "emulator", "cache"),
    FORGE_FAKE_CUDA: Object.entries(options).map(([key, value]) => `${key}=${value}`).join(","),
  };
}

/** Environment for the stand-in for cuBLASLt on an emulated GPU. */
export async function emulatedCublasLt(): Promise<Record<string, string>> {
  return { FORGE_CUBLASLT: (await buildFakeDriver()).cublaslt };
}

/** Environment for libflash_attn's emulated build on an emulated GPU. */
export async function emulatedFlashAttention(): Promise<Record<string, string>> {
  return { FORGE_FLASH_ATTN: (await buildEmulatedFlashAttention()).library };
}

/**
 * Runs a Deno program with all permissions on an emulated GPU; returns its output if it succeeds.
 *
 * @param env additional variables
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
