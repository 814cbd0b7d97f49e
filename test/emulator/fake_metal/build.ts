/**
 * Builds the unchanged Metal backend for this machine: `csrc/metal` with declarations of its own in
 * place of Apple's SDK, linked with a stand-in for Metal that runs kernels in the emulator. Objects
 * are cached like those of the emulator.
 */
import { basename, dirname, join } from "@std/path";
import { bundles, embeddedSource } from "../../../ffi/build/graph.ts";
import { compile, emulatorUnavailable, inParallel, link, list, modeFlags, text } from "../build.ts";
import { buildMetalKernels, type MetalEmulatorOptions, metalFiles } from "../metal/build.ts";
import { ROOT } from "../../support/checkout.ts";
import { makeOnce, writeWhole } from "../../support/make_once.ts";

const fake = "test/emulator/fake_metal";
const warnings = ["-Wall", "-Wextra", "-Werror"];

/** Linux distributions have GCC's Objective-C runtime; Clang compiles for it. */
const OBJECTIVE_C = "clang++-19";
const objectiveCFlags = ["-fobjc-runtime=gcc", "-fblocks"];

/** Returns why the backend cannot be built here, or undefined. */
export function fakeMetalUnavailable(): string | undefined {
  const reason = emulatorUnavailable();
  if (reason !== undefined) return reason;
  try {
    const { success } = new Deno.Command(OBJECTIVE_C, { args: ["--version"] }).outputSync();
    if (!success) return `${OBJECTIVE_C} does not run`;
  } catch (error) {
    if (!(error instanceof Deno.errors.NotFound)) throw error;
    return `${OBJECTIVE_C} is missing, which compiles Objective-C++`;
  }
  const probe = new Deno.Command("g++", { args: ["-print-file-name=libobjc.so"] }).outputSync();
  const found = new TextDecoder().decode(probe.stdout).trim() !== "libobjc.so";
  return found ? undefined : "libobjc is missing, GCC's Objective-C runtime (libobjc-12-dev)";
}

/**
 * Compiles C++ with the default compiler, whose sanitizers are used, and Objective-C++ with Clang.
 */
function compileAll(
  paths: readonly string[],
  folder: string,
  headers: readonly string[],
  sanitize: readonly string[],
) {
  const isAlone = (path: string) => path.endsWith(".mm") || !path.startsWith("csrc/");
  return inParallel(bundles(paths, isAlone), ([path = "", ...included]) => {
    const isObjectiveC = path.endsWith(".mm");
    const flags = [
      ...warnings,
      "-fvisibility=hidden",
      "-iquotecsrc/metal", // for changed copies, which lie elsewhere
      "-Ikernels/arguments",
      ...(isObjectiveC ? objectiveCFlags : sanitize),
      ...included.flatMap((each) => ["-include", each]),
    ];
    const texts = [...headers, ...text(included)];
    return compile({ path, flags }, folder, texts, isObjectiveC ? OBJECTIVE_C : undefined);
  });
}

/** Writes the source that embeds the kernels, as the build does. Returns its path. */
async function embeddedKernels(folder: string): Promise<string> {
  const files = metalFiles();
  const texts = text(files);
  const source = embeddedSource(files.map((path, i) => ({
    name: basename(path),
    text: texts[i] ?? "",
  })));
  const path = join(folder, "embedded.cpp");
  await writeWhole(path, source);
  return path;
}

/** A seeded bug in the backend's sources. */
export interface HostChange {
  /** A file of `csrc/metal`. */
  readonly file: string;
  readonly from: string;
  readonly to: string;
}

/** Writes a changed copy of a file; returns its path. */
async function changed({ file, from, to }: HostChange, folder: string): Promise<string> {
  const source = text([`csrc/metal/${file}`])[0] ?? "";
  if (source.split(from).length !== 2) {
    throw new Error(`${file} must contain ${JSON.stringify(from)} exactly once`);
  }
  const path = join(folder, `changed_${file}`);
  await Deno.writeTextFile(path, source.replace(from, () => to));
  return path;
}

/**
 * Builds everything; returns the folder that holds `libforge_metal.so`.
 *
 * @param options of the emulated kernels; their sanitizers are used for the backend too
 */
export async function buildFakeMetal(
  change?: HostChange,
  options: MetalEmulatorOptions = {},
): Promise<string> {
  const kernels = await buildMetalKernels(options);
  const sanitize = options.mode === undefined ? [] : modeFlags[options.mode];
  const folder = join(ROOT, "build", "emulator", "fake_metal");
  await Deno.mkdir(folder, { recursive: true });
  const fakeHeaders = text([
    ...list(fake, ".h"),
    ...list("test/emulator", ".h"),
    "csrc/metal/apple.h",
  ]);
  const standIn = await link(
    join(folder, "libfake_metal.*.so"),
    [...sanitize, "-shared", `-Wl,-rpath,${dirname(kernels)}`],
    [
      ...await compileAll(list(fake, ".cpp", ".mm"), folder, fakeHeaders, sanitize),
      kernels,
      "-lobjc",
    ],
  );
  const sources = [
    "csrc/common",
    "csrc/common/packed",
    "csrc/common/quant",
    "csrc/gpu",
    "csrc/metal",
  ];
  const headers = text([
    ...sources.flatMap((each) => list(each, ".h")),
    "csrc/forge.h",
    ...list("csrc/abi", ".h"),
    ...list("kernels/arguments", ".h"),
    ...list("kernels/metal", ".h"),
  ]);
  const paths = [
    ...sources.flatMap((each) => list(each, ".cpp", ".mm"))
      .filter((path) => path !== `csrc/metal/${change?.file}`),
    ...(change === undefined ? [] : [await changed(change, folder)]),
    await embeddedKernels(folder),
  ];
  // The functions of sanitizers are found when the program starts.
  const defined = sanitize.length === 0 ? ["-Wl,-z,defs"] : [];
  const library = await link(
    join(folder, "libforge_metal.*.so"),
    [...sanitize, "-shared", ...defined, `-Wl,-rpath,${folder}:${dirname(kernels)}`],
    [...await compileAll(paths, folder, headers, sanitize), standIn, kernels, "-lobjc"],
  );
  // forge looks for a fixed name; one folder per library keeps running processes undisturbed.
  const home = library.replace(/\.so$/, "");
  await Deno.mkdir(home, { recursive: true });
  const named = join(home, "libforge_metal.so");
  await makeOnce(named, (unfinished) => Deno.copyFile(library, unfinished));
  return home;
}

if (import.meta.main) console.log(`FORGE_LIBRARY_PATH=${await buildFakeMetal()}`);
