/**
 * The steps that build one library: a compilation for every source file and kernel target, and a
 * link. Steps are data; `execute.ts` decides which must run.
 */
import { basename, dirname, join } from "@std/path";
import type { Compiler } from "./compiler.ts";
import { embeddedSource } from "./embed.ts";
import { exportedFunctions, exportFlag, exportList, headerText } from "./exports.ts";
import {
  commonCompileFlags,
  commonLinkFlags,
  type Library,
  staticRuntimeFlags,
  systemFlags,
} from "./libraries.ts";
import {
  type KernelTarget,
  kernelTargets,
  libraryFileName,
  type Platform,
  platformName,
} from "./targets.ts";

/** One command that makes one file. Paths are relative to the root of the source tree. */
export interface Step {
  /** What a person would call it, as in `csrc/cpu/kernels/matmul.cpp (avx2)`. */
  readonly label: string;
  readonly output: string;
  /** Where it is recorded how the output was made (`record.ts`). */
  readonly record: string;
  /** Where what the command says is kept, if it is wanted. */
  readonly report?: string;
  /** Everything that shapes the output besides the inputs. */
  readonly command: readonly string[];
  /** Arguments that decide whether the command succeeds, but not what it makes. */
  readonly checks: readonly string[];
  /** What made the command: it is part of its identity, not of its arguments. */
  readonly compiler: string;
  readonly inputs: readonly string[];
  /** Whether the command reports further inputs, by `-MMD`. */
  readonly hasDepfile: boolean;
  /** Whether it takes longer than most, so that it had better start before them. */
  readonly isSlow: boolean;
}

/** The checkers that compilers can build in. */
export const sanitizers = ["address", "undefined", "thread", "leak"] as const;

/** A checker that compilers can build in. */
export type Sanitizer = (typeof sanitizers)[number];

/** A kind of build; builds of different variants keep apart. */
export interface Variant {
  readonly debug: boolean;
  readonly sanitizers: readonly Sanitizer[];
  /** Warnings are errors. */
  readonly strict: boolean;
}

/** A file that the build writes before a step reads it. */
interface GeneratedFile {
  readonly path: string;
  readonly text: string;
}

/** What builds one library. */
export interface LibraryGraph {
  readonly library: Library;
  /** To be written before the compilations. */
  readonly sources: readonly GeneratedFile[];
  readonly compiles: readonly Step[];
  /** Makes the library. */
  readonly link: Step;
  /** The linker's list of exported symbols, to be written before the link. */
  readonly exports: GeneratedFile;
}

/** The name of a kind of build for a platform, such as `linux-x86_64` or `linux-x86_64-debug`. */
function variantName(platform: Platform, variant: Variant): string {
  const kinds = variant.debug ? ["debug", ...variant.sanitizers] : variant.sanitizers;
  return [platformName(platform), ...kinds].join("-");
}

/** The folder of a build's libraries. */
export function outputFolder(platform: Platform, variant: Variant): string {
  return join("build", variantName(platform, variant));
}

/** The folder of a library's objects and records. */
export function objectFolder(platform: Platform, variant: Variant, library: Library): string {
  return join("build", "obj", variantName(platform, variant), library.name);
}

/** The source files of `folder` and below in a fixed order; none where it does not exist. */
export function listSources(root: string, folder: string, extensions: readonly string[]): string[] {
  const files: string[] = [];
  let entries: Deno.DirEntry[];
  try {
    entries = Array.from(Deno.readDirSync(join(root, folder)));
  } catch (error) {
    if (error instanceof Deno.errors.NotFound) return [];
    throw error;
  }
  for (const entry of entries.sort((a, b) => (a.name < b.name ? -1 : 1))) {
    const path = join(folder, entry.name);
    if (entry.isDirectory) files.push(...listSources(root, path, extensions));
    else if (extensions.some((extension) => entry.name.endsWith(extension))) files.push(path);
  }
  return files;
}

/** Whether the tree has sources of the library's own. */
export function hasSources(root: string, library: Library): boolean {
  return listSources(root, library.folder, library.extensions).length > 0;
}

/** What the steps of one library have in common. */
interface Context {
  readonly library: Library;
  readonly platform: Platform;
  readonly variant: Variant;
  readonly compiler: Compiler;
  /** Where objects and records go. */
  readonly objectFolder: string;
}

function variantCompileFlags(variant: Variant): string[] {
  const flags: string[] = [];
  if (variant.debug) flags.push("-Og", "-g", "-D_GLIBCXX_ASSERTIONS");
  else if (variant.sanitizers.length === 0) flags.push("-DNDEBUG", "-ffunction-sections");
  if (variant.sanitizers.length > 0) {
    flags.push(
      // Checks in the kernels, all of whose loops are unrolled, take three times as long to optimise.
      ...(variant.debug ? [] : ["-O1"]),
      `-fsanitize=${variant.sanitizers.join(",")}`,
      "-fno-sanitize-recover=all",
      "-fno-omit-frame-pointer",
      "-g",
    );
  }
  return flags;
}

/** The most files that one command compiles. */
const mostBundled = 13;

/**
 * Divides sources, which come folder by folder, into those that one command compiles. Most files
 * are small, and a compiler spends its time on the headers that they share; together they are read
 * once. Slow files stay alone, and so does every file with `debug`, where headers that a file
 * forgot are missed.
 */
function bundles(sources: readonly string[], { library, variant }: Context): string[][] {
  const isAlone = (source: string) =>
    variant.debug || library.slow.includes(source) || !source.endsWith(".cpp") ||
    !source.startsWith("csrc/");
  const byFolder = new Map<string, string[]>();
  for (const source of sources) {
    const key = isAlone(source) ? source : dirname(source);
    byFolder.set(key, [...byFolder.get(key) ?? [], source]);
  }
  return [...byFolder.values()].flatMap((files) => {
    const n = Math.ceil(files.length / mostBundled);
    const size = Math.ceil(files.length / n);
    return Array.from({ length: n }, (_, i) => files.slice(i * size, (i + 1) * size));
  });
}

/** The compilation of some files, for every processor or, with `target`, as one of the kernel targets. */
function compileStep(context: Context, bundle: readonly string[], target?: KernelTarget): Step {
  const { library, platform, compiler, variant, objectFolder } = context;
  const [first = "", ...more] = bundle;
  const last = more.at(-1) ?? first;
  const suffix = target === undefined ? "" : `.${target.name}`;
  const inFolder = first.startsWith(`${objectFolder}/`)
    ? first.slice(objectFolder.length + 1)
    : first.slice("csrc/".length);
  const output = join(objectFolder, `${inFolder}${suffix}.o`);
  const name = more.length === 0 ? first : `${first} to ${basename(last)}`;
  return {
    label: target === undefined ? name : `${name} (${target.name})`,
    output,
    record: `${output}.json`,
    command: [
      ...compiler.command,
      ...commonCompileFlags,
      ...systemFlags[platform.os],
      ...library.compileFlags,
      ...variantCompileFlags(variant),
      ...(target === undefined ? [] : [...target.flags, `-DFORGE_TARGET=${target.name}`]),
      ...bundle.slice(0, -1).flatMap((source) => ["-include", source]),
      "-c",
      last,
    ],
    checks: variant.strict ? ["-Werror"] : [],
    compiler: compiler.identity,
    inputs: bundle,
    hasDepfile: true,
    isSlow: library.slow.includes(first),
  };
}

function linkFlags({ library, platform, variant }: Context): string[] {
  const common = [...commonLinkFlags[platform.os], ...systemFlags[platform.os]];
  if (variant.sanitizers.length > 0) {
    // The sanitizer's own symbols are found in the process at run time.
    return [
      ...common.filter((flag) => flag !== "-Wl,-z,defs"),
      `-fsanitize=${variant.sanitizers.join(",")}`,
      ...library.linkFlags,
    ];
  }
  return [...common, ...staticRuntimeFlags[platform.os], ...library.linkFlags];
}

function linkStep(context: Context, objects: readonly string[], exportsPath: string): Step {
  const { library, platform, variant, compiler } = context;
  const fileName = libraryFileName(platform, library.name);
  const output = join(outputFolder(platform, variant), fileName);
  return {
    label: output,
    output,
    record: join(context.objectFolder, `${fileName}.json`),
    command: [
      ...compiler.command,
      platform.os === "darwin" ? `-Wl,-install_name,@rpath/${fileName}` : `-Wl,-soname,${fileName}`,
      exportFlag(platform, exportsPath),
      ...objects,
      ...linkFlags(context),
    ],
    checks: [],
    compiler: compiler.identity,
    inputs: [...objects, exportsPath],
    hasDepfile: false,
    isSlow: false,
  };
}

/** The source that carries a library's embedded files; none where it has none. */
function generatedSources(root: string, { library, objectFolder }: Context): GeneratedFile[] {
  if (library.embedded === undefined) return [];
  const { folder, extensions } = library.embedded;
  const files = listSources(root, folder, extensions)
    .map((path) => ({ name: basename(path), text: Deno.readTextFileSync(join(root, path)) }));
  return [{ path: join(objectFolder, "embedded.cpp"), text: embeddedSource(files) }];
}

/**
 * The graph of one library.
 *
 * Objects are linked from the least to the most capable instruction set. A function that several
 * objects define (an inline function, a template of the standard library) is taken from the first,
 * so that no code shared with the baseline uses instructions that only some machines have.
 */
export function libraryGraph(
  root: string,
  library: Library,
  platform: Platform,
  variant: Variant,
  compiler: Compiler,
): LibraryGraph {
  const folder = objectFolder(platform, variant, library);
  const context: Context = { library, platform, variant, compiler, objectFolder: folder };
  const generated = generatedSources(root, context);
  const sources = [
    ...[...library.shared, library.folder]
      .flatMap((folder) => listSources(root, folder, library.extensions)),
    ...generated.map(({ path }) => path),
  ];
  const isKernel = (source: string) =>
    library.kernels !== undefined && source.startsWith(`${library.kernels}/`);
  const targets = kernelTargets.filter((target) => target.arch === platform.arch);
  const common = bundles(sources.filter((source) => !isKernel(source)), context);
  const kernels = bundles(sources.filter(isKernel), context);
  const compiles = [
    ...common.map((bundle) => compileStep(context, bundle)),
    ...targets.flatMap((target) => kernels.map((bundle) => compileStep(context, bundle, target))),
  ];
  const header = headerText(join(root, library.header));
  const exports = {
    path: join(folder, "exports.txt"),
    text: exportList(platform, exportedFunctions(header)),
  };
  const link = linkStep(context, compiles.map((step) => step.output), exports.path);
  return { library, sources: generated, compiles, exports, link };
}
