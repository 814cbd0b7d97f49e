/**
 * Builds the emulator: the kernels of `kernels/cuda`, compiled as C++, in one shared library, and
 * the program that tests them. Objects are kept in `build/emulator`, named by a hash of all inputs,
 * so that only changed sources are compiled again.
 */
import { basename, dirname, join, resolve } from "@std/path";
import { ROOT } from "../support/checkout.ts";
import { makeOnce, writeWhole } from "../support/make_once.ts";

/** Instrumentation of kernels. */
export type EmulatorMode = "plain" | "asan" | "tsan" | "traced";

/**
 * Compiler and linker flags of each mode. CPUs allow misaligned accesses and shift by the lowest
 * bits of a number, GPUs do neither, so the plain build checks both.
 */
export const modeFlags: Readonly<Record<EmulatorMode, readonly string[]>> = {
  plain: [
    "-fsanitize=alignment,shift-exponent",
    "-fno-sanitize-recover=alignment,shift-exponent",
  ],
  // Reports name lines. AddressSanitizer finds null pointers and accesses past objects too, and the
  // plain build checks alignment: without these checks, and with calls for those of accesses,
  // compiling takes half the time.
  asan: [
    "-g1",
    "-fsanitize=address,undefined",
    "-fno-sanitize=alignment,null,object-size,vptr",
    "-fno-sanitize-recover=undefined",
    "-fno-omit-frame-pointer",
    "--param",
    "asan-instrumentation-with-call-threshold=0",
  ],
  // GCC warns of variables that it no longer sees initialised.
  tsan: ["-g1", "-fsanitize=thread", "-Wno-maybe-uninitialized"],
  // Calls out for every access (access_trace.h). Structs of several words stay whole.
  traced: [
    "-fsanitize=kernel-address",
    "-fno-tree-sra",
    ...["instrumentation-with-call-threshold=0", "globals=0", "stack=0"]
      .flatMap((parameter) => ["--param", `asan-${parameter}`]),
  ],
};

const commonFlags = ["-std=c++20", "-O1", "-fPIC", "-ffp-contract=off"];
const kernelFlags = [
  "-Wall",
  "-Wextra",
  "-Werror",
  "-Wno-unknown-pragmas",
  "-DFORGE_EMULATOR",
  "-DFLASH_ATTN_EMULATED",
  "-Itest/emulator",
  "-Itest/flash_attn/emulated",
  ...["csrc/flash_attn", "csrc/flash_attn/device"].map((folder) => `-I${folder}`),
  "-x",
  "c++",
];
const testFlags = ["-Wall", "-Wextra", "-Werror", "-Ikernels/arguments"];

/** The tests of kernels, and kernels used only by tests. */
const testFolder = "test/emulator/kernels";

/** The result of {@linkcode buildEmulator}. */
export interface Emulator {
  /** The shared library with all kernels. */
  readonly library: string;
  /** The program that tests kernels. */
  readonly tests: string;
}

/** Options of {@linkcode buildEmulator}. */
export interface EmulatorOptions {
  /** @default "plain" */
  readonly mode?: EmulatorMode;
  /**
   * The folder of the kernels' sources.
   * @default "kernels/cuda"
   */
  readonly kernels?: string;
  /** Only these of its `.cu` files; by default all. */
  readonly only?: readonly string[];
  /** Only the instances of kernel templates whose names match; by default all. */
  readonly instances?: RegExp;
}

interface Source {
  readonly path: string;
  readonly flags: readonly string[];
}

async function run(command: readonly string[]): Promise<void> {
  const [program = "", ...args] = command;
  // A sanitizer that is loaded into the tests would slow the compiler down.
  const env = { LD_PRELOAD: "" };
  const { success, stderr } = await new Deno.Command(program, { args, cwd: ROOT, env }).output();
  if (success) return;
  throw new Error(`${command.join(" ")}\n${new TextDecoder().decode(stderr)}`);
}

async function sha256(parts: readonly string[]): Promise<string> {
  const bytes = new TextEncoder().encode(parts.join("\0"));
  const digest = new Uint8Array(await crypto.subtle.digest("SHA-256", bytes));
  return Array.from(digest.subarray(0, 12), (byte) => byte.toString(16).padStart(2, "0")).join("");
}

/** The files of a folder whose names end in one of `endings`, sorted. */
export function list(folder: string, ...endings: string[]): string[] {
  return Array.from(Deno.readDirSync(resolve(ROOT, folder)), (entry) => entry.name)
    .filter((name) => endings.some((ending) => name.endsWith(ending)))
    .sort()
    .map((name) => join(folder, name));
}

export function text(paths: readonly string[]): string[] {
  return paths.map((path) => Deno.readTextFileSync(resolve(ROOT, path)));
}

/** Runs `work` on every item, as many at a time as there are processors. */
export async function inParallel<T, R>(
  items: readonly T[],
  work: (item: T) => Promise<R>,
): Promise<R[]> {
  const results: R[] = [];
  let next = 0;
  const worker = async () => {
    while (next < items.length) {
      const index = next++;
      const item = items[index];
      if (item !== undefined) results[index] = await work(item);
    }
  };
  await Promise.all(Array.from({ length: navigator.hardwareConcurrency }, worker));
  return results;
}

/** Copies a folder of kernels without the INSTANCE lines that do not match; returns the copy. */
async function withInstances(folder: string, pattern: RegExp): Promise<string> {
  const copy = join("build", "emulator", "sources", await sha256([folder, pattern.source]));
  await Deno.mkdir(resolve(ROOT, copy), { recursive: true });
  for (const path of list(folder, ".cu", ".cuh")) {
    const source = Deno.readTextFileSync(resolve(ROOT, path)).replaceAll(
      /^INSTANCE\((.*)\)$/gm,
      (line, name) => !name.includes("<") || pattern.test(name) ? line : "",
    );
    await writeWhole(resolve(ROOT, copy, basename(path)), source);
  }
  return copy;
}

/** Compiles a source unless an object of the same hash exists; returns the object's path. */
export async function compile(
  source: Source,
  folder: string,
  headers: readonly string[],
  compiler: string = Deno.env.get("CXX") || "g++",
): Promise<string> {
  const command = [compiler, ...commonFlags, ...source.flags];
  const hash = await sha256([...command, source.path, ...headers, ...text([source.path])]);
  const object = join(folder, `${basename(source.path)}.${hash}.o`);
  await makeOnce(object, (path) => run([...command, "-c", source.path, "-o", path]));
  return object;
}

export async function link(target: string, flags: readonly string[], objects: readonly string[]) {
  const compiler = Deno.env.get("CXX") || "g++";
  const command = [compiler, ...flags, ...objects];
  const path = target.replace("*", await sha256(command));
  await makeOnce(path, (unfinished) => run([...command, "-o", unfinished]));
  return path;
}

/** Returns why kernels cannot be emulated here, or undefined. */
export function emulatorUnavailable(): string | undefined {
  if (Deno.build.os !== "linux" || Deno.build.arch !== "x86_64") {
    return `the emulator of CUDA kernels runs on Linux on x86-64, not on ${Deno.build.target}`;
  }
  return undefined;
}

/**
 * Compiles the emulator's scheduler and registries; returns their objects. They are not under test,
 * so no mode instruments them, and the compiler makes them fast.
 *
 * @param isTraced true for a runtime that records the accesses of traced kernels
 */
export async function buildRuntime(isTraced = false): Promise<string[]> {
  const folder = join(ROOT, "build", "emulator", "runtime");
  await Deno.mkdir(folder, { recursive: true });
  const headers = text(list("test/emulator", ".h"));
  return await inParallel(list("test/emulator", ".cpp"), (path) => {
    const traced = isTraced && basename(path) === "access_trace.cpp" ? ["-DFORGE_TRACED"] : [];
    return compile({ path, flags: ["-O2", ...testFlags, ...traced] }, folder, headers);
  });
}

/**
 * Compiles the tests of `test/emulator/kernels` and of its folder `device`, which also defines the
 * launches; returns their objects. The loops that kernels are compared with are not under test, so
 * only the kernels are instrumented.
 *
 * @param isStrict true if warnings are errors
 */
export async function compileTests(device: "cuda" | "metal", isStrict = true): Promise<string[]> {
  const folder = join(ROOT, "build", "emulator", "tests");
  await Deno.mkdir(folder, { recursive: true });
  const shared = [...list(testFolder, ".cpp"), ...list("csrc/common/quant", ".cpp")];
  const own = list(join(testFolder, device), ".cpp")
    .filter((path) => !path.endsWith("cuda_device.cpp"));
  const headers = text([
    ...list("test/emulator", ".h"),
    ...list(testFolder, ".h"),
    ...list("csrc/common", ".h"),
    ...list("csrc/common/quant", ".h"),
    "csrc/forge.h",
    ...list("csrc/abi", ".h"),
    ...list("kernels/arguments", ".h"),
    "csrc/gpu/launch_geometry.h",
    "csrc/gpu/rounding.h",
    "kernels/metal/arguments.h",
  ]);
  const ownHeaders = [...headers, ...text(list(join(testFolder, device), ".h"))];
  const flags = isStrict ? testFlags : testFlags.filter((flag) => flag !== "-Werror");
  return await inParallel(
    [...shared, ...own],
    (path) => compile({ path, flags }, folder, own.includes(path) ? ownHeaders : headers),
  );
}

/** Builds the program that tests the kernels in `library`. */
export async function buildTests(
  device: "cuda" | "metal",
  mode: EmulatorMode,
  library: string,
): Promise<string> {
  return await link(
    join(ROOT, "build", "emulator", "tests", `${device}_kernel_tests.*`),
    [...modeFlags[mode], `-Wl,-rpath,${dirname(library)}`],
    [...await compileTests(device), library],
  );
}

/** Builds the emulated kernels and their tests. */
export async function buildEmulator(options: EmulatorOptions = {}): Promise<Emulator> {
  const library = await buildKernels(options);
  return { library, tests: await buildTests("cuda", options.mode ?? "plain", library) };
}

/** Builds the library of emulated kernels; returns its path. */
export async function buildKernels(options: EmulatorOptions = {}): Promise<string> {
  const { mode = "plain", only, instances } = options;
  let { kernels = "kernels/cuda" } = options;
  if (instances) kernels = await withInstances(kernels, instances);
  const folder = join(ROOT, "build", "emulator", mode);
  await Deno.mkdir(folder, { recursive: true });
  const sanitize = modeFlags[mode];
  const own = text(list("test/emulator", ".h"));
  const numbers = text(["csrc/common/float16.h"]);

  const device = [
    ...list(kernels, ".cu"),
    ...list(join(testFolder, "cuda"), ".cu"),
    ...list("test/emulator", ".cu"),
  ]
    .filter((path) => only === undefined || only.includes(basename(path)))
    .map((path) => ({
      path,
      flags: [...sanitize, ...kernelFlags, `-I${kernels}`, "-Ikernels/arguments"],
    }));
  const deviceHeaders = text([
    ...list(kernels, ".cuh"),
    ...list("kernels/arguments", ".h"),
    ...list("csrc/flash_attn/device", ".h", ".cuh"),
    ...list("test/flash_attn/emulated", "twins.h", "twins_sm90.h"),
  ]);
  const headers = [...own, ...numbers, ...deviceHeaders];
  const objects = [
    ...await buildRuntime(mode === "traced"),
    ...await inParallel(device, (source) => compile(source, folder, headers)),
  ];
  // Traced kernels call the runtime, not a sanitizer's library.
  const flags = [...(mode === "traced" ? [] : sanitize), "-shared"];
  return await link(join(folder, "libemulated_kernels.*.so"), flags, objects);
}

if (import.meta.main) {
  const { library, tests } = await buildEmulator({
    mode: (Deno.args[0] ?? "plain") as EmulatorMode,
  });
  console.log(`${library}\n${tests}`);
}
