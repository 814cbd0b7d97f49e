/**
 * Builds `csrc/flash_attn` for the emulator: the same sources, compiled as C++, as a library that
 * runs on the CPU, and a program that compares it with plain loops.
 */
import { join } from "@std/path";
import {
  buildRuntime,
  compile,
  type EmulatorMode,
  inParallel,
  link,
  list,
  modeFlags,
  text,
} from "../emulator/build.ts";
import { ROOT } from "../support/checkout.ts";
import { isThorough } from "../support/thorough.ts";

const library = "csrc/flash_attn";
const emulated = "test/flash_attn/emulated";
const balance = `${emulated}/schedule_balance.cpp`;
const folders = ["core", "decode", "device", "host", "sm80", "sm90"];

const flags = [
  "-Wall",
  "-Wextra",
  "-Werror",
  "-Wno-unknown-pragmas",
  // A note about passing 64-byte aligned parameters, irrelevant with a single compiler.
  "-Wno-psabi",
  "-fvisibility=hidden",
  "-DFLASH_ATTN_EMULATED",
  `-I${library}`,
  `-I${emulated}`,
  "-Itest/emulator",
  "-x",
  "c++",
];

/**
 * Kernels that sanitizers check in every run: kernels of other head_dims differ from them in a
 * number, and are linked without instrumentation. `deno task thorough` checks all.
 */
const sanitizedKernels = /\/(combine|\w+_64|sm90\/forward_(96|128))\.cu$/;

/** Values of head_dim with all kernels under sanitizers. */
export const sanitizedHeadDims: readonly number[] = isThorough ? [64, 96, 128, 192, 256] : [64];

/** The output of {@linkcode buildEmulatedFlashAttention}. */
export interface EmulatedFlashAttention {
  /** `libflash_attn.so` that runs on the CPU; its device pointers are host pointers. */
  readonly library: string;
  /** Reads cases from stdin, one per line, and prints each result as JSON. */
  readonly cases: string;
}

/** Compiles sources for the emulator; objects of unchanged sources are kept. */
async function compiler(
  mode: EmulatorMode,
): Promise<{
  folder: string;
  build: (paths: readonly string[], own: readonly string[]) => Promise<string[]>;
}> {
  const folder = join(ROOT, "build", "emulator", `flash_attn_${mode}`);
  await Deno.mkdir(folder, { recursive: true });
  const headers = text([
    ...folders.flatMap((name) => list(join(library, name), ".h", ".cuh")),
    ...list(library, ".h"),
    ...list(emulated, ".h"),
    ...list("test/emulator", ".h"),
    ...list("csrc/common", ".h"),
  ]);
  return {
    folder,
    build: (paths, own) =>
      inParallel(paths, (path) => compile({ path, flags: [...own, ...flags] }, folder, headers)),
  };
}

/** Builds both. */
export async function buildEmulatedFlashAttention(
  mode: EmulatorMode = "plain",
): Promise<EmulatedFlashAttention> {
  const { folder, build } = await compiler(mode);
  const plain = await compiler("plain");
  const sanitize = modeFlags[mode];
  const linked = [...sanitize, "-fsanitize=alignment"];
  const sources = folders.flatMap((name) => list(join(library, name), ".cu", ".cpp"))
    .filter((path) => !path.includes("/cuda_"));
  const isPlain = (path: string) =>
    !isThorough && path.endsWith(".cu") && !sanitizedKernels.test(path);
  const programs = list(emulated, ".cpp")
    .filter((path) => !path.includes("/emulated_") && path !== balance);
  const devices = list(emulated, ".cpp").filter((path) => path.includes("/emulated_"));
  const objects = [
    ...await build([...sources.filter((path) => !isPlain(path)), ...devices], sanitize),
    ...await buildRuntime(),
    // The plain kernels come last, so that functions they share with others are instrumented.
    ...await plain.build(sources.filter(isPlain), modeFlags.plain),
  ];
  const main = await build(programs, sanitize);
  return {
    library: await link(
      join(folder, "libflash_attn.*.so"),
      [...linked, "-shared"],
      objects,
    ),
    cases: await link(join(folder, "run_cases.*"), linked, [...main, ...objects]),
  };
}

/**
 * Builds the program that reads shapes from stdin, one per line, and prints the balance of each
 * shape's schedule as JSON.
 */
export async function buildScheduleBalance(): Promise<string> {
  const host = (name: string) => `${library}/host/${name}.cpp`;
  const { folder, build } = await compiler("plain");
  const objects = [
    ...await build(
      [balance, ...["arguments", "forward_plan", "validate"].map(host)],
      modeFlags.plain,
    ),
    ...await buildRuntime(),
  ];
  return await link(join(folder, "schedule_balance.*"), modeFlags.plain, objects);
}

if (import.meta.main) {
  const { library, cases } = await buildEmulatedFlashAttention(
    (Deno.args[0] ?? "plain") as EmulatorMode,
  );
  console.log(`${library}\n${cases}`);
}
