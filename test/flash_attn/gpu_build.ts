/**
 * Builds the program that runs cases (`emulated/run_cases.cpp`) on a real GPU, with the library
 * built by nvcc, which FORGE_FLASH_ATTN must name.
 */
import { join } from "@std/path";
import { compile, inParallel, link, list, text } from "../emulator/build.ts";
import { ROOT } from "../support/checkout.ts";

/** Cases, and the sources that open the driver and copy memory. */
const sources = [
  ...["attention_case", "case_shape", "reference", "run_cases"]
    .map((name) => `test/flash_attn/emulated/${name}.cpp`),
  "test/flash_attn/gpu/call_on_gpu.cpp",
  ...["device", "driver", "memory", "shared_library"].map((name) => `csrc/cuda/${name}.cpp`),
  "csrc/gpu/device_memory.cpp",
];

// No -Werror: a machine with a GPU may have a newer compiler with new warnings.
const flags = [
  ...["-Wall", "-Wextra", "-pthread"],
  ...["-Icsrc/flash_attn", "-Itest/flash_attn/emulated"],
];

/** Builds the program, which reads cases from stdin like the emulator's. */
export async function buildGpuCases(): Promise<string> {
  const folder = join(ROOT, "build", "emulator", "flash_attn_gpu");
  await Deno.mkdir(folder, { recursive: true });
  const headers = text([
    ...[
      ...["csrc/flash_attn", "test/flash_attn/emulated", "test/emulator"],
      ...["csrc/common", "csrc/cuda", "csrc/gpu"],
    ].flatMap((place) => list(place, ".h")),
    "csrc/forge.h",
    ...list("csrc/abi", ".h"),
  ]);
  const objects = await inParallel(sources, (path) => compile({ path, flags }, folder, headers));
  return await link(join(folder, "run_cases.*"), ["-pthread"], [...objects, "-ldl"]);
}

if (import.meta.main) console.log(await buildGpuCases());
