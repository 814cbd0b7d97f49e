/** Builds the native libraries incrementally; requires only a C++ compiler. */
import { dirname, join } from "node:path";
import { type Compiler, findCompiler } from "./compiler.ts";
import { execute } from "./execute.ts";
import {
  hasSources,
  libraryGraph,
  outputFolder,
  type Sanitizer,
  type Step,
  type Variant,
} from "./graph.ts";
import { libraries, type Library, type LibraryName } from "./libraries.ts";
import { findNvcc, howToInstallNvcc, nvccGraph } from "./nvcc.ts";
import { FileSignatures, isCurrent } from "./record.ts";
import { hostPlatform, type Platform, platformName } from "./targets.ts";
import { ForgeError } from "../../src/errors.ts";
import { reasonOf } from "../../src/formats/file.ts";

/** Options of `buildLibraries`. */
export interface BuildOptions {
  /** Libraries to build. @default all libraries with sources in the tree */
  readonly only?: readonly LibraryName[] | undefined;
  /** Target platform. @default this machine */
  readonly platform?: Platform | undefined;
  /** Disables optimization and adds debug information. @default false */
  readonly debug?: boolean;
  /** Sanitizers; compilers reject some combinations. @default none */
  readonly sanitizers?: readonly Sanitizer[] | undefined;
  /** Turns warnings into errors. @default false */
  readonly strict?: boolean;
  /** Flags that override those of the build. @default none */
  readonly flags?: readonly string[];
  /** Number of concurrent compilers. @default one per core */
  readonly jobs?: number | undefined;
  /** Compiler command. @default the variable CXX, else c++, g++ or clang++ */
  readonly cxx?: string | undefined;
  /** Environment of the compiler. @default this process's variables that matter to compilers */
  readonly environment?: Readonly<Record<string, string>> | undefined;
  /** Folder that contains `csrc/` and receives `build/`. @default the root of forge itself */
  readonly root?: string;
  /** Receives a line for each compiled or linked file. */
  readonly log?: (line: string) => void;
}

/** Result of `buildLibraries`. */
export interface BuildReport {
  /** Folder of the libraries. */
  readonly folder: string;
  readonly libraries: readonly BuiltLibrary[];
  /** Number of compiled files. */
  readonly compiled: number;
}

/** A library that is up to date. */
export interface BuiltLibrary {
  readonly name: LibraryName;
  readonly path: string;
  /** True if it was linked again, false if no input had changed. */
  readonly built: boolean;
}

/**
 * Returns the folder of forge's own sources.
 *
 * @throws {ForgeError} `unsupported` if they were not loaded from disk
 */
export function forgeRoot(): string {
  const folder = import.meta.dirname;
  if (folder === undefined) {
    throw new ForgeError("unsupported", "forge can build its libraries only from a folder on disk");
  }
  return dirname(dirname(folder));
}

/** Returns the libraries in `only`, or all that can be built. */
function selectLibraries(
  root: string,
  platform: Platform,
  only: readonly LibraryName[] | undefined,
): Library[] {
  return libraries.filter((library) => {
    if (only !== undefined && !only.includes(library.name)) return false;
    const isSupported = library.systems.includes(platform.os);
    if (isSupported && hasSources(root, library)) return true;
    if (only === undefined) return false;
    if (isSupported) {
      throw new ForgeError(
        "not_found",
        `no sources of the ${library.name} library in ${library.folder}/`,
      );
    }
    throw new ForgeError(
      "unsupported",
      `the ${library.name} library can be built only on ${library.systems.join(" and ")}`,
    );
  });
}

/**
 * Finds nvcc if a library needs it. Without nvcc, skips these libraries with a message, unless
 * `only` names them.
 */
async function resolveNvcc(
  selected: readonly Library[],
  platform: Platform,
  variant: Variant,
  options: BuildOptions,
): Promise<{ buildable: readonly Library[]; nvcc: Compiler | undefined }> {
  const needy = selected.filter(({ compiler }) => compiler === "nvcc");
  if (needy.length === 0) return { buildable: selected, nvcc: undefined };
  const nvcc = await nvccFor(platform, variant, options);
  if (typeof nvcc !== "string") return { buildable: selected, nvcc };
  for (const { name } of needy) {
    if (options.only !== undefined) {
      throw new ForgeError("not_found", `cannot build the ${name} library: ${nvcc}`);
    }
    options.log?.(`skipping the ${name} library: ${nvcc}`);
  }
  return { buildable: selected.filter((library) => !needy.includes(library)), nvcc: undefined };
}

/** Returns nvcc, or the reason why it is unavailable: no sanitizers and no cross compilation. */
async function nvccFor(
  platform: Platform,
  variant: Variant,
  options: BuildOptions,
): Promise<Compiler | string> {
  if (variant.sanitizers.length > 0) return "sanitizers do not support GPU code";
  if (platformName(platform) !== platformName(hostPlatform())) {
    return "nvcc builds only for this machine";
  }
  return await findNvcc({ environment: options.environment }) ?? howToInstallNvcc;
}

/** Locks a tree against concurrent builds; closing the file releases the lock. */
async function lockBuild(root: string, log: (line: string) => void): Promise<Deno.FsFile> {
  const folder = join(root, "build", "obj");
  try {
    Deno.mkdirSync(folder, { recursive: true });
    const file = Deno.openSync(join(folder, "lock"), { create: true, write: true });
    if (!await file.tryLock(true)) {
      log("waiting for another build of this tree");
      await file.lock(true);
    }
    return file;
  } catch (error) {
    if (!(error instanceof Error)) throw error;
    throw new ForgeError(
      "device",
      `cannot build here, since ${folder} cannot be written (${reasonOf(error)}); ` +
        `build in a copy of this tree and name its build/<os>-<arch> in FORGE_LIBRARY_PATH`,
      { cause: error },
    );
  }
}

/** Writes a file unless it already has that text, because a new modification time reruns steps. */
function writeIfChanged(path: string, text: string): void {
  try {
    if (Deno.readTextFileSync(path) === text) return;
  } catch (error) {
    if (!(error instanceof Deno.errors.NotFound)) throw error;
  }
  Deno.mkdirSync(dirname(path), { recursive: true });
  Deno.writeTextFileSync(path, text);
}

/**
 * Brings the libraries up to date: compiles changed files and links the libraries that contain
 * them. Safe to call from several processes at once, and while a library is in use.
 *
 * @throws {ForgeError} `not_found` without a usable compiler or without the sources of a library in
 * `only`; `device` with the compiler's output if it fails; `unsupported` for a library of another
 * system
 */
export async function buildLibraries(options: BuildOptions = {}): Promise<BuildReport> {
  const root = options.root ?? forgeRoot();
  const platform = options.platform ?? hostPlatform();
  const variant: Variant = {
    debug: options.debug ?? false,
    sanitizers: options.sanitizers ?? [],
    strict: options.strict ?? false,
    flags: options.flags ?? [],
  };
  const log = options.log ?? (() => {});
  const environment = options.environment;
  const cxx = options.cxx ?? Deno.env.get("CXX");
  const compiler = await findCompiler(platform, { cxx, environment });
  const selected = selectLibraries(root, platform, options.only);
  const { buildable, nvcc } = await resolveNvcc(selected, platform, variant, options);

  using _lock = await lockBuild(root, log);
  const graphs = buildable.map((library) =>
    library.compiler === "nvcc" && nvcc !== undefined
      ? nvccGraph(root, library, platform, variant, nvcc)
      : libraryGraph(root, library, platform, variant, compiler)
  );
  for (const { sources } of graphs) {
    for (const { path, text } of sources) writeIfChanged(join(root, path), text);
  }
  const signatures = new FileSignatures(root);
  const isStale = (step: Step) => !isCurrent(root, step, signatures);
  const steps = new Map<string, Step>();
  for (const step of graphs.flatMap((graph) => graph.compiles)) steps.set(step.output, step);
  // Slow files first, so that all cores are busy until the end.
  const compiles = [...steps.values()].filter(isStale)
    .sort((a, b) => Number(b.isSlow) - Number(a.isSlow));
  const jobs = options.jobs ?? navigator.hardwareConcurrency;
  let started = 0;
  await execute(compiles, {
    root,
    signatures,
    jobs,
    environment,
    onStart: (step) => log(`[${++started}/${compiles.length}] ${step.label}`),
  });
  for (const { exports } of graphs) writeIfChanged(join(root, exports.path), exports.text);
  const links = graphs.map((graph) => graph.link).filter(isStale);
  await execute(links, {
    root,
    signatures,
    jobs,
    environment,
    onStart: (step) => log(`linking ${step.label}`),
  });
  return {
    folder: join(root, outputFolder(platform, variant)),
    libraries: graphs.map(({ library, link }) => ({
      name: library.name,
      path: join(root, link.output),
      built: links.includes(link),
    })),
    compiled: compiles.length,
  };
}
