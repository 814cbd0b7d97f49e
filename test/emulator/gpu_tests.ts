/**
 * Builds the tests of kernels for a real GPU: the same tests, with NVIDIA's driver and compiler in
 * place of the emulator, used as in csrc/cuda.
 */
import { basename, join } from "@std/path";
import { embeddedSource } from "../../ffi/build/graph.ts";
import { compile, compileTests, inParallel, link, list, text } from "./build.ts";
import { ROOT } from "../support/checkout.ts";

const tests = "test/emulator/kernels";

/** Sources that find the driver, and compile and load kernels. */
const hostFiles = [
  ...["device", "driver", "kernel_cache", "kernels", "memory", "nvrtc", "shared_library"]
    .map((name) => `csrc/cuda/${name}.cpp`),
  ...["kernel_sources", "device_memory"].map((name) => `csrc/gpu/${name}.cpp`),
];

/**
 * Builds the program, which has the same arguments as the emulator's.
 *
 * @param isStrict true if warnings are errors; a machine with a GPU may have a newer compiler with
 * new warnings
 */
export async function buildGpuTests(isStrict = false): Promise<string> {
  const flags = ["-Wall", "-Wextra", "-pthread", ...isStrict ? ["-Werror"] : []];
  const folder = join(ROOT, "build", "emulator", "gpu");
  await Deno.mkdir(folder, { recursive: true });
  const kernels = [
    ...list("kernels/arguments", ".h"),
    ...list("kernels/cuda", ".cu", ".cuh"),
    ...list("csrc/flash_attn/device", ".h", ".cuh"),
    ...list(join(tests, "cuda"), ".cu"),
  ].map((path) => ({ name: basename(path), text: text([path])[0] ?? "" }));
  const embedded = join(folder, "embedded_kernels.cpp");
  await Deno.writeTextFile(embedded, embeddedSource(kernels));
  const sources = [join(tests, "cuda", "cuda_device.cpp"), ...hostFiles, embedded];
  const headers = text([
    ...[
      "test/emulator",
      tests,
      join(tests, "cuda"),
      "csrc/common",
      "csrc/common/quant",
      "csrc/cuda",
      "csrc/gpu",
    ]
      .flatMap((place) => list(place, ".h")),
    "csrc/forge.h",
    ...list("csrc/abi", ".h"),
    ...list("kernels/arguments", ".h"),
  ]);
  const objects = [
    ...(await compileTests("cuda", isStrict))
      .filter((path) => !basename(path).startsWith("emulated_device.")),
    ...await inParallel(sources, (path) => compile({ path, flags }, folder, headers)),
  ];
  return await link(join(folder, "kernel_tests.*"), ["-pthread"], [...objects, "-ldl"]);
}

if (import.meta.main) console.log(await buildGpuTests());
