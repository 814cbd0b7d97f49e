/**
 * The build graph of one library: a compilation for every source file and kernel target, and a
 * link. Steps are data; `execute.ts` runs the outdated ones.
 */
import { basename, dirname, join } from "node:path";
import type { Compiler } from "./compiler.ts";
import { exportedFunctions, exportFlag, exportList, headerText } from "./exports.ts";
import {
  commonCompileFlags,
  commonLinkFlags,
  type Library,
  type LibraryName,
  sharedFlags,
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
import { ForgeError } from "../../src/errors.ts";

/** A command that creates one file. Paths are relative to the root of the source tree. */
export interface Step {
  /** Display name, such as `csrc/cpu/kernels/matmul.cpp (avx2)`. */
  readonly label: string;
  readonly output: string;
  /** Path of the build record of the output (`record.ts`). */
  readonly record: string;
  /** Path for the command's output, if it is kept. */
  readonly report?: string;
  /** Arguments that determine the output, apart from the inputs. */
  readonly command: readonly string[];
  /** Arguments that determine if the command succeeds, but not the output. */
  readonly checks: readonly string[];
  /** Identity of the compiler, which is part of the step's identity. */
  readonly compiler: string;
  readonly inputs: readonly string[];
  /** True if the command reports further inputs, by `-MMD`. */
  readonly hasDepfile: boolean;
  /** True for slow compilations, which start first. */
  readonly isSlow: boolean;
}

/** Sanitizers of the compilers. */
export const sanitizers = ["address", "undefined", "thread", "leak"] as const;

/** One of {@linkcode sanitizers}. */
export type Sanitizer = (typeof sanitizers)[number];

/** Build variant; each has its own folder. */
export interface Variant {
  readonly debug: boolean;
  readonly sanitizers: readonly Sanitizer[];
  /** True if warnings are errors. */
  readonly strict: boolean;
  /** Flags that override those of the build. @default none */
  readonly flags?: readonly string[];
}

/** A file that the build writes before a step reads it. */
interface GeneratedFile {
  readonly path: string;
  readonly text: string;
}

/** The steps of one library. */
export interface LibraryGraph {
  readonly library: Library;
  /** Files to write before the compilations. */
  readonly sources: readonly GeneratedFile[];
  readonly compiles: readonly Step[];
  /** The step that creates the library. */
  readonly link: Step;
  /** The linker's list of exported symbols, written before the link. */
  readonly exports: GeneratedFile;
}

/** Returns the folder name of a variant, such as `linux-x86_64` or `linux-x86_64-debug`. */
function variantName(platform: Platform, variant: Variant): string {
  const kinds = variant.debug ? ["debug", ...variant.sanitizers] : variant.sanitizers;
  return [platformName(platform), ...kinds].join("-");
}

/** Returns the folder of a variant's libraries. */
export function outputFolder(platform: Platform, variant: Variant): string {
  return join("build", variantName(platform, variant));
}

/** Returns the folder of a library's objects and records, or of those that libraries share. */
export function objectFolder(
  platform: Platform,
  variant: Variant,
  name: LibraryName | "shared",
): string {
  return join("build", "obj", variantName(platform, variant), name);
}

/** Returns the source files below `folder` in a fixed order; none if it does not exist. */
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

/** True if the tree contains sources of the library. */
export function hasSources(root: string, library: Library): boolean {
  return listSources(root, library.folder, library.extensions).length > 0;
}

/** Common parameters of a library's steps. */
interface Context {
  readonly library: Library;
  readonly platform: Platform;
  readonly variant: Variant;
  readonly compiler: Compiler;
  /** Folder of objects and records. */
  readonly objectFolder: string;
}

/** Makes sanitized code call the checks of accesses, which halves the time of compilation. */
function outlinedChecks({ identity }: Compiler): string[] {
  const option = "asan-instrumentation-with-call-threshold=0";
  return identity.includes("clang") ? ["-mllvm", `-${option}`] : ["--param", option];
}

function variantCompileFlags(variant: Variant, compiler: Compiler): string[] {
  const flags: string[] = [];
  if (variant.debug) flags.push("-Og", "-g", "-D_GLIBCXX_ASSERTIONS");
  else if (variant.sanitizers.length === 0) flags.push("-DNDEBUG", "-ffunction-sections");
  if (variant.sanitizers.length > 0) {
    flags.push(
      // Sanitized kernels with unrolled loops take three times as long to optimize fully.
      ...(variant.debug ? [] : ["-O1"]),
      `-fsanitize=${variant.sanitizers.join(",")}`,
      "-fno-sanitize-recover=all",
      "-fno-omit-frame-pointer",
      "-g",
      ...(variant.sanitizers.includes("address") ? outlinedChecks(compiler) : []),
    );
  }
  return flags;
}

/** Maximum number of files per command. */
const mostBundled = 13;

/**
 * Divides sources, sorted by folder, into bundles for one command each. Most files are small, and a
 * compiler spends its time on their common headers, which a bundle reads once.
 */
export function bundles(
  sources: readonly string[],
  isAlone: (source: string) => boolean,
): string[][] {
  const byFolder = Map.groupBy(
    sources,
    (source) => isAlone(source) ? source : dirname(source),
  );
  return [...byFolder.values()].flatMap((files) => {
    const n = Math.ceil(files.length / mostBundled);
    const size = Math.ceil(files.length / n);
    return Array.from({ length: n }, (_, i) => files.slice(i * size, (i + 1) * size));
  });
}

/** Returns the compilation of a bundle for the baseline, or for a kernel target. */
function compileStep(context: Context, bundle: readonly string[], target?: KernelTarget): Step {
  const { library, platform, compiler, variant } = context;
  const [first = "", ...more] = bundle;
  const isShared = library.shared.some((folder) => first.startsWith(`${folder}/`));
  const objects = isShared ? objectFolder(platform, variant, "shared") : context.objectFolder;
  const last = more.at(-1) ?? first;
  const suffix = target === undefined ? "" : `.${target.name}`;
  const inFolder = first.startsWith(`${objects}/`)
    ? first.slice(objects.length + 1)
    : first.slice("csrc/".length);
  const output = join(objects, `${inFolder}${suffix}.o`);
  const name = more.length === 0 ? first : `${first} to ${basename(last)}`;
  return {
    label: target === undefined ? name : `${name} (${target.name})`,
    output,
    record: `${output}.json`,
    command: [
      ...compiler.command,
      ...commonCompileFlags,
      ...systemFlags[platform.os],
      ...(isShared ? sharedFlags : library.compileFlags),
      ...variantCompileFlags(variant, compiler),
      ...(variant.flags ?? []),
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
    // The sanitizer's own symbols are resolved at run time.
    return [
      ...common.filter((flag) => flag !== "-Wl,-z,defs"),
      `-fsanitize=${variant.sanitizers.join(",")}`,
      ...library.linkFlags,
    ];
  }
  return [...common, ...staticRuntimeFlags[platform.os], ...library.linkFlags];
}

/** Returns the flags that write a library's own name into it. */
function nameFlags({ os }: Platform, fileName: string): string[] {
  if (os === "windows") return [];
  return [os === "darwin" ? `-Wl,-install_name,@rpath/${fileName}` : `-Wl,-soname,${fileName}`];
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
      ...nameFlags(platform, fileName),
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

/** Returns the source with a library's embedded files, if it has any. */
function generatedSources(root: string, { library, objectFolder }: Context): GeneratedFile[] {
  if (library.embedded === undefined) return [];
  const { folders, extensions } = library.embedded;
  const files = folders.flatMap((folder) => listSources(root, folder, extensions))
    .map((path) => ({ name: basename(path), text: Deno.readTextFileSync(join(root, path)) }));
  return [{ path: join(objectFolder, "embedded.cpp"), text: embeddedSource(files) }];
}

/**
 * Returns the build graph of one library.
 *
 * Objects are linked from the least to the most capable instruction set. The linker takes a
 * function that several objects define (an inline function, a template of the standard library)
 * from the first object, so code shared with the baseline never uses instructions that some
 * machines lack.
 */
export function libraryGraph(
  root: string,
  library: Library,
  platform: Platform,
  variant: Variant,
  compiler: Compiler,
): LibraryGraph {
  const folder = objectFolder(platform, variant, library.name);
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
  // Debug builds compile each file alone, which detects missing includes.
  const isAlone = (source: string) =>
    variant.debug || library.slow.includes(source) || !source.endsWith(".cpp") ||
    !source.startsWith("csrc/");
  const common = bundles(sources.filter((source) => !isKernel(source)), isAlone);
  const kernels = sources.filter(isKernel);
  const kernelsOf = ({ base, name }: KernelTarget) => {
    const folder = base === undefined ? library.kernels : `${library.kernels}/${name}`;
    return bundles(kernels.filter((source) => dirname(source) === folder), isAlone);
  };
  const compiles = [
    ...common.map((bundle) => compileStep(context, bundle)),
    ...targets.flatMap((target) =>
      kernelsOf(target).map((bundle) => compileStep(context, bundle, target))
    ),
  ];
  const header = headerText(join(root, library.header));
  const exports = {
    path: join(folder, platform.os === "windows" ? "exports.def" : "exports.txt"),
    text: exportList(platform, exportedFunctions(header)),
  };
  const link = linkStep(context, compiles.map((step) => step.output), exports.path);
  return { library, sources: generated, compiles, exports, link };
}

/** A file to embed. */
interface EmbeddedFile {
  /** Name for lookups in the library. */
  readonly name: string;
  readonly text: string;
}

/** Delimiter of the raw string literals; no embedded text may contain `)embedded"`. */
const delimiter = "embedded";

/**
 * Returns a C++ source that defines `forge::embedded_files`: names and texts in turn, then null.
 *
 * @throws {ForgeError} `unsupported` for a text that a raw string literal cannot contain
 */
export function embeddedSource(files: readonly EmbeddedFile[]): string {
  const entries = files.map(({ name, text }) => {
    if (text.includes(`)${delimiter}"`) || text.includes("\0")) {
      throw new ForgeError(
        "unsupported",
        `${name} cannot be embedded: it contains )${delimiter}" or NUL`,
      );
    }
    return `    ${JSON.stringify(name)}, R"${delimiter}(${text})${delimiter}",\n`;
  });
  return `namespace forge {
extern const char* const embedded_files[];
const char* const embedded_files[] = {
${entries.join("")}    nullptr,
};
}  // namespace forge
`;
}
