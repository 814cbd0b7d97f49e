/** Compiles kernels of `csrc/flash_attn` with nvcc for tests of their machine code. */
import { join } from "@std/path";
import { buildLibraries } from "../../build.ts";
import { execute } from "../../ffi/build/execute.ts";
import { objectFolder } from "../../ffi/build/graph.ts";
import { libraries } from "../../ffi/build/libraries.ts";
import { findNvcc, nvccGraph } from "../../ffi/build/nvcc.ts";
import { FileSignatures, isCurrent } from "../../ffi/build/record.ts";
import { hostPlatform } from "../../ffi/build/targets.ts";
import { ROOT } from "../support/checkout.ts";
import { isThorough } from "../support/thorough.ts";

/**
 * Values of head_dim whose kernels all runs compile. nvcc takes a minute for each of the others,
 * which only `deno task thorough` compiles.
 */
export const compiledHeadDims: readonly number[] = isThorough ? [64, 96, 128, 192, 256] : [128];

/** nvcc, or undefined if it is missing. */
export const nvcc = await findNvcc();

const library = libraries.find(({ name }) => name === "flash_attn")!;
const variant = { debug: false, sanitizers: [], strict: false };

/** Compiles the kernels that are not up to date; returns the folder of the objects. */
export async function compileKernels(): Promise<string> {
  if (nvcc === undefined) throw new Error("nvcc is missing");
  const platform = hostPlatform();
  const signatures = new FileSignatures(ROOT);
  const steps = nvccGraph(ROOT, library, platform, variant, nvcc).compiles.filter((step) => {
    const [, headDim] = /(?:_(\d+))?\.cu$/.exec(step.label) ?? [];
    return step.label.endsWith(".cu") &&
      (headDim === undefined || compiledHeadDims.includes(Number(headDim))) &&
      !isCurrent(ROOT, step, signatures);
  });
  const jobs = navigator.hardwareConcurrency;
  await execute(steps, { root: ROOT, signatures, jobs, onStart: () => {} });
  return join(ROOT, objectFolder(platform, variant, library.name));
}

/** Builds the whole library unless it is up to date; returns its path. */
export async function buildFlashAttention(): Promise<string> {
  return (await buildLibraries({ only: ["flash_attn"] })).libraries[0]!.path;
}
