/**
 * The steps that build one library: a compilation for every source file and kernel target, and a
 * link. Steps are data; `execute.ts` decides which must run.
 */
import { join } from "@std/path";
import type { Compiler } from "./compiler.ts";
import { exportedFunctions, exportFlag, exportList } from "./exports.ts";
import {
  commonCompileFlags,
  commonLinkFlags,
  type Library,
  staticRuntimeFlags,
} from "./libraries.ts";
import { kernelTargets, libraryFileName, type Platform, platformName } from "./targets.ts";

/** One command that makes one file. Paths are relative to the root of the source tree. */
export interface Step {
  /** What a person would call it, as in `csrc/cpu/kernels/matmul.cpp (avx2)`. */
  readonly label: string;
  readonly output: string;
  /** Where it is recorded how the output was made (`record.ts`). */
  readonly record: string;
  /** Everything that shapes the output besides the inputs. */
  readonly command: readonly string[];
  /** Arguments that decide whether the command succeeds, but not what it makes. */
  readonly checks: readonly string[];
  /** What made the command: it is part of its identity, not of its arguments. */
  readonly compiler: string;
  readonly inputs: readonly string[];
  /** Whether the command reports further inputs, by `-MMD`. */
  readonly hasDepfile: boolean;
}

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

/** What builds one library. */
export interface LibraryGraph {
  readonly library: Library;
  /** The path of the library, relative to the root. */
  readonly path: string;
  readonly compiles: readonly Step[];
  readonly link: Step;
  /** The linker's list of exported symbols, to be written before the link. */
  readonly exports: { readonly path: string; readonly text: string };
}

/** The folder of a build's libraries, such as `build/linux-x86_64` or `build/linux-x86_64-debug`. */
export function outputFolder(platform: Platform, variant: Variant): string {
  const parts = [platformName(platform)];
  if (variant.debug) parts.push("debug");
  return join("build", [...parts, ...variant.sanitizers].join("-"));
}

/** The source files of `folder` and below in a fixed order; none where it does not exist. */
function listSources(root: string, folder: string, extensions: readonly string[]): string[] {
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

function variantCompileFlags(variant: Variant): string[] {
  const flags: string[] = [];
  if (variant.debug) flags.push("-Og", "-g", "-D_GLIBCXX_ASSERTIONS");
  else if (variant.sanitizers.length === 0) flags.push("-DNDEBUG", "-ffunction-sections");
  if (variant.sanitizers.length > 0) {
    flags.push(
      `-fsanitize=${variant.sanitizers.join(",")}`,
      "-fno-sanitize-recover=all",
      "-fno-omit-frame-pointer",
      "-g",
    );
  }
  return flags;
}

function linkFlags(library: Library, platform: Platform, variant: Variant): string[] {
  const common = commonLinkFlags[platform.os];
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
  const folder = outputFolder(platform, variant);
  const objectFolder = join("build", "obj", folder.slice("build/".length), library.name);
  const checks = variant.strict ? ["-Werror"] : [];

  const compile = (source: string, suffix: string, flags: readonly string[]): Step => {
    const output = join(objectFolder, `${source.slice("csrc/".length)}${suffix}.o`);
    return {
      label: suffix === "" ? source : `${source} (${suffix.slice(1)})`,
      output,
      record: `${output}.json`,
      command: [
        ...compiler.command,
        ...commonCompileFlags,
        ...library.compileFlags,
        ...variantCompileFlags(variant),
        ...flags,
        "-c",
        source,
      ],
      checks,
      compiler: compiler.identity,
      inputs: [source],
      hasDepfile: true,
    };
  };

  const sources = [...library.shared, library.folder]
    .flatMap((folder) => listSources(root, folder, library.extensions));
  const isKernel = (source: string) =>
    library.kernels !== undefined && source.startsWith(`${library.kernels}/`);
  const compiles = sources.filter((source) => !isKernel(source))
    .map((source) => compile(source, "", []));
  for (const target of kernelTargets.filter((target) => target.arch === platform.arch)) {
    const flags = [...target.flags, `-DFORGE_TARGET=${target.name}`];
    for (const source of sources.filter(isKernel)) {
      compiles.push(compile(source, `.${target.name}`, flags));
    }
  }

  const fileName = libraryFileName(platform, library.name);
  const exports = {
    path: join(objectFolder, "exports.txt"),
    text: exportList(
      platform,
      exportedFunctions(Deno.readTextFileSync(join(root, library.header))),
    ),
  };
  const objects = compiles.map((step) => step.output);
  const name = platform.os === "darwin"
    ? `-Wl,-install_name,@rpath/${fileName}`
    : `-Wl,-soname,${fileName}`;
  const path = join(folder, fileName);
  return {
    library,
    path,
    compiles,
    exports,
    link: {
      label: path,
      output: path,
      record: join(objectFolder, `${fileName}.json`),
      command: [
        ...compiler.command,
        name,
        exportFlag(platform, exports.path),
        ...objects,
        ...linkFlags(library, platform, variant),
      ],
      checks: [],
      compiler: compiler.identity,
      inputs: [...objects, exports.path],
      hasDepfile: false,
    },
  };
}
