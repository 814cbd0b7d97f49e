/**
 * Builds the stand-ins for NVIDIA's libraries: a driver that runs kernels in the emulator, and a
 * compiler for machines without NVRTC. Objects are cached like those of the emulator.
 */
import { basename, dirname, join } from "@std/path";
import {
  buildKernels,
  compile,
  type EmulatorOptions,
  inParallel,
  link,
  list,
  modeFlags,
  text,
} from "../build.ts";
import { ROOT } from "../../support/checkout.ts";

const sources = "test/emulator/fake_driver";
const warnings = ["-Wall", "-Wextra", "-Werror"];

/** Paths of the stand-ins. */
export interface FakeDriver {
  /** For FORGE_CUDA_DRIVER. */
  readonly driver: string;
  /** For FORGE_NVRTC, if the real library is not available. */
  readonly nvrtc: string;
  /** For FORGE_CUBLASLT. */
  readonly cublaslt: string;
  /** For FORGE_NCCL. */
  readonly nccl: string;
}

/** Builds the emulated kernels and the stand-ins. */
export async function buildFakeDriver(options: EmulatorOptions = {}): Promise<FakeDriver> {
  const kernels = await buildKernels(options);
  const folder = join(ROOT, "build", "emulator", "fake_driver");
  const { mode = "plain" } = options;
  // A trace is of kernels alone, so both modes share the objects.
  const sanitize = modeFlags[mode === "traced" ? "plain" : mode];
  const flags = [...warnings, ...sanitize, "-fvisibility=hidden"];
  await Deno.mkdir(folder, { recursive: true });
  const headers = text([
    ...list(sources, ".h"),
    "test/emulator/access_trace.h",
    "test/emulator/emulator.h",
    "test/emulator/sm90.h",
    "test/emulator/fake_options.h",
    "csrc/cuda/driver_api.h",
    "csrc/cuda/cublaslt_api.h",
    "csrc/cuda/nccl_api.h",
    "csrc/common/float16.h",
  ]);
  const isDriver = (path: string) => !basename(path).startsWith("fake_");
  const paths = list(sources, ".cpp");
  const build = (own: readonly string[]) =>
    inParallel(own, (path) =>
      // The products of the stand-in for cuBLASLt take most of a prompt's time.
      compile(
        { path, flags: [...flags, ...path.includes("cublaslt") ? ["-O3"] : []] },
        folder,
        headers,
      ));
  const driverObjects = await build(paths.filter(isDriver));
  const driver = await link(
    join(folder, "libfake_cuda.*.so"),
    [...sanitize, "-shared", `-Wl,-rpath,${dirname(kernels)}`],
    [...driverObjects, kernels],
  );
  const library = async (name: string) =>
    await link(
      join(folder, `lib${name}.*.so`),
      [...sanitize, "-shared"],
      await build(paths.filter((path) => path.endsWith(`/${name}.cpp`))),
    );
  return {
    driver,
    nvrtc: await library("fake_nvrtc"),
    cublaslt: await library("fake_cublaslt"),
    nccl: await library("fake_nccl"),
  };
}

if (import.meta.main) {
  const { driver, nvrtc, cublaslt, nccl } = await buildFakeDriver();
  const files = { CUDA_DRIVER: driver, NVRTC: nvrtc, CUBLASLT: cublaslt, NCCL: nccl };
  for (const [name, path] of Object.entries(files)) console.log(`FORGE_${name}=${path}`);
}
