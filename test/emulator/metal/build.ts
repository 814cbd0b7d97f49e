/**
 * Builds the Metal kernels of `kernels/metal` for the CPU: translated into C++ (`translate.ts`), in
 * one shared library described by `metal_registry.h`, and the program that tests them. Objects are
 * cached like those of the CUDA kernels.
 */
import { basename, join, resolve } from "@std/path";
import {
  buildRuntime,
  buildTests,
  compile,
  type EmulatorMode,
  inParallel,
  link,
  list,
  modeFlags,
  text,
} from "../build.ts";
import { translate } from "./translate.ts";
import { ROOT } from "../../support/checkout.ts";
import { writeWhole } from "../../support/make_once.ts";

const shim = "test/emulator/metal/shim";
const kernelFlags = [
  "-std=c++14", // as MSL is
  "-Wall",
  "-Wextra",
  "-Werror",
  "-Wno-unknown-pragmas", // those of clang
  "-Itest/emulator",
  `-I${shim}`,
  // Apple's compiler contracts products and sums, as Metal allows without fast math.
  "-ffp-contract=fast",
  "-mfma",
  "-mf16c",
];

/** Options of {@linkcode buildMetalEmulator}. */
export interface MetalEmulatorOptions {
  /** @default "plain" */
  readonly mode?: EmulatorMode;
  /** Changes a file's text before it is translated; by default returns it unchanged. */
  readonly change?: (file: string, text: string) => string;
  /** Only these `.metal` files; by default all. */
  readonly only?: readonly string[];
  /** Only the instances of kernel templates whose names match; by default all. */
  readonly instances?: RegExp;
}

/** The result of {@linkcode buildMetalEmulator}. */
export interface MetalEmulator {
  /** The shared library with all kernels. */
  readonly library: string;
  /** The program that tests kernels. */
  readonly tests: string;
}

/** The files of the kernels and their headers. */
export function metalFiles(): string[] {
  return [...list("kernels/arguments", ".h"), ...list("kernels/metal", ".metal", ".h")];
}

/** Translates the kernels into a folder named by a hash of the result; returns the folder. */
async function translated({ change, instances }: MetalEmulatorOptions): Promise<string> {
  const files = metalFiles().map((path) => {
    let source = text([path])[0] ?? "";
    if (change) source = change(basename(path), source);
    if (instances) {
      source = source.replaceAll(
        /^INSTANCE\((.*)\)$/gm,
        (line: string, name: string) => instances.test(name) ? line : "",
      );
    }
    const name = basename(path).replace(/\.metal$/, ".metal.cpp");
    return { name, source: translate(path, source) };
  });
  const bytes = new TextEncoder().encode(files.map(({ name, source }) => name + source).join("\0"));
  const hash = new Uint8Array(await crypto.subtle.digest("SHA-256", bytes)).subarray(0, 12).toHex();
  const folder = join("build", "emulator", "sources", `metal-${hash}`);
  await Deno.mkdir(resolve(ROOT, folder), { recursive: true });
  await Promise.all(
    files.map(({ name, source }) => writeWhole(resolve(ROOT, folder, name), source)),
  );
  return folder;
}

/** Builds the emulated kernels and their tests. */
export async function buildMetalEmulator(
  options: MetalEmulatorOptions = {},
): Promise<MetalEmulator> {
  const library = await buildMetalKernels(options);
  return { library, tests: await buildTests("metal", options.mode ?? "plain", library) };
}

/** Builds the library of emulated kernels; returns its path. */
export async function buildMetalKernels(options: MetalEmulatorOptions = {}): Promise<string> {
  const { mode = "plain", only } = options;
  const kernels = await translated(options);
  const folder = join(ROOT, "build", "emulator", mode);
  await Deno.mkdir(folder, { recursive: true });
  const sanitize = modeFlags[mode];
  const own = text(list("test/emulator", ".h"));
  const headers = [...own, ...text(list(shim, ".h", "_stdlib")), ...text(list(kernels, ".h"))];
  const sources = list(kernels, ".metal.cpp")
    .filter((path) => only === undefined || only.includes(basename(path, ".cpp")))
    .map((path) => ({ path, flags: [...sanitize, ...kernelFlags, `-I${kernels}`] }));
  const objects = [
    ...await buildRuntime(),
    ...await inParallel(sources, (source) => compile(source, folder, headers)),
  ];
  return await link(
    join(folder, "libemulated_metal_kernels.*.so"),
    [...sanitize, "-shared"],
    objects,
  );
}

if (import.meta.main) {
  const { library, tests } = await buildMetalEmulator({
    mode: (Deno.args[0] ?? "plain") as EmulatorMode,
  });
  console.log(`${library}\n${tests}`);
}
