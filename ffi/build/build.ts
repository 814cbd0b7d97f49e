/**
 * Brings the shared libraries of native code up to date, with a C++ compiler and nothing else.
 */
import { dirname, join } from "@std/path";
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
import { findNvcc, howToInstallNvcc } from "./nvcc.ts";
import { nvccGraph } from "./nvcc_graph.ts";
import { FileSignatures, isCurrent } from "./record.ts";
import { hostPlatform, type Platform } from "./targets.ts";
import { ForgeError } from "../../src/errors.ts";
import { reasonOf } from "../../src/formats/file.ts";

/** How `buildLibraries` builds. */
export interface BuildOptions {
  /** The libraries to build. @default all that the tree has sources of */
  readonly only?: readonly LibraryName[] | undefined;
  /** What the libraries run on. @default this machine */
  readonly platform?: Platform | undefined;
  /** Without optimisation and with debug information. @default false */
  readonly debug?: boolean;
  /** Compilers refuse some combinations. @default none */
  readonly sanitizers?: readonly Sanitizer[] | undefined;
  /** Make warnings errors. @default false */
  readonly strict?: boolean;
  /** How many compilers run at a time. @default one per core */
  readonly jobs?: number | undefined;
  /** The compiler's command. @default the variable CXX, else c++, g++ or clang++ */
  readonly cxx?: string | undefined;
  /** The compiler's environment. @default this process's variables that matter to compilers */
  readonly environment?: Readonly<Record<string, string>> | undefined;
  /** The folder that holds `csrc/` and receives `build/`. @default the root of forge itself */
  readonly root?: string;
  /** Receives a line for every file that is compiled or linked. */
  readonly log?: (line: string) => void;
}

/** What `buildLibraries` did. */
export interface BuildReport {
  /** The folder of the libraries. */
  readonly folder: string;
  readonly libraries: readonly BuiltLibrary[];
  /** How many files were compiled. */
  readonly compiled: number;
}

/** One library that is now up to date. */
export interface BuiltLibrary {
  readonly name: LibraryName;
  readonly path: string;
  /** Whether it was linked anew; otherwise nothing it is made of had changed. */
  readonly built: boolean;
}

/**
 * The folder that holds forge's own sources.
 *
 * @throws {ForgeError} `unsupported` where they were not loaded from a disk.
 */
export function forgeRoot(): string {
  const folder = import.meta.dirname;
  if (folder === undefined) {
    throw new ForgeError("unsupported", "forge builds its libraries from a folder on disk only");
  }
  return dirname(dirname(folder));
}

/** The libraries to build: those asked for, or all that can be. */
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
      `the ${library.name} library is built on ${library.systems.join(" and ")} only`,
    );
  });
}

/**
 * CUDA's compiler, and the libraries that can be built. Without one those that need it are left
 * out, with a message, unless they were asked for by name.
 */
async function settleNvcc(
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
    options.log?.(`leaving out the ${name} library: ${nvcc}`);
  }
  return { buildable: selected.filter((library) => !needy.includes(library)), nvcc: undefined };
}

/** CUDA's compiler, or why it cannot be had: it serves no sanitizers and no other processor. */
async function nvccFor(
  platform: Platform,
  variant: Variant,
  options: BuildOptions,
): Promise<Compiler | string> {
  if (variant.sanitizers.length > 0) return "sanitizers do not reach into a GPU";
  if (platform.arch !== hostPlatform().arch) return "nvcc builds for this machine's processor only";
  return await findNvcc({ environment: options.environment }) ?? howToInstallNvcc;
}

/** Takes the lock that keeps two builds of one tree apart; it is released with the file. */
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

/** Writes a file unless it has that text already: its time is what makes steps run again. */
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
 * Brings the libraries up to date: compiles what changed, and links what that is part of. Safe to
 * call from several processes at once, and while a library is in use.
 *
 * @throws {ForgeError} `not_found` without a usable compiler or without the sources of a library in
 * `only`; `device` with the compiler's own words where it fails; `unsupported` for a library of
 * another system.
 */
export async function buildLibraries(options: BuildOptions = {}): Promise<BuildReport> {
  const root = options.root ?? forgeRoot();
  const platform = options.platform ?? hostPlatform();
  const variant: Variant = {
    debug: options.debug ?? false,
    sanitizers: options.sanitizers ?? [],
    strict: options.strict ?? false,
  };
  const log = options.log ?? (() => {});
  const environment = options.environment;
  const cxx = options.cxx ?? Deno.env.get("CXX");
  const compiler = await findCompiler(platform, { cxx, environment });
  const selected = selectLibraries(root, platform, options.only);
  const { buildable, nvcc } = await settleNvcc(selected, platform, variant, options);

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
  // The slow ones first, so that all cores are busy to the end.
  const compiles = graphs.flatMap((graph) => graph.compiles).filter(isStale)
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
