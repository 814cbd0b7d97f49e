import { createRequire } from "node:module";
import { dirname, join } from "node:path";
import config from "../deno.json" with { type: "json" };
import type { BackendKind } from "../src/backend.ts";
import { ForgeError } from "../src/errors.ts";
import { isFile } from "../src/formats/file.ts";
import { ABI_VERSION, librarySymbols, type Symbols, versionSymbol } from "./abi.ts";
import { checkStatus, readText } from "./status.ts";

/** Environment variable with a folder of libraries that is searched first. */
export const LIBRARY_PATH_VARIABLE = "FORGE_LIBRARY_PATH";

/** Returns `<os>-<arch>` of this machine, the name of its library folder. */
export function platform(): string {
  return `${Deno.build.os}-${Deno.build.arch}`;
}

/** Returns the file name of a backend's library on this platform. */
export function libraryFileName(kind: BackendKind): string {
  const { os } = Deno.build;
  const extension = os === "darwin" ? "dylib" : os === "windows" ? "dll" : "so";
  return `libforge_${kind}.${extension}`;
}

/** Returns the npm package that contains a backend's library for this machine. */
function libraryPackage(kind: BackendKind): string {
  const os = Deno.build.os === "windows" ? "win32" : Deno.build.os;
  const arch = Deno.build.arch === "x86_64" ? "x64" : "arm64";
  return `@forge-llm/${os}-${arch}${kind === "cuda" ? "-cuda" : ""}`;
}

/** Folder of `main.ts`; `undefined` if the sources were loaded from the network. */
const projectRoot: string | undefined = import.meta.dirname && dirname(import.meta.dirname);

/**
 * Path at which `deno task build` writes a backend's library. `root` is the folder of `main.ts`.
 */
export function builtLibrary(kind: BackendKind, root = projectRoot): string | undefined {
  return root && join(root, "build", platform(), libraryFileName(kind));
}

/** Paths at which a backend's library is searched, in order. `root` is the folder of `main.ts`. */
export function* libraryCandidates(kind: BackendKind, root = projectRoot): Generator<string> {
  const fileName = libraryFileName(kind);
  const named = Deno.env.get(LIBRARY_PATH_VARIABLE);
  if (named) yield join(named, fileName);
  if (root !== undefined) {
    yield join(root, "build", platform(), fileName);
    yield join(root, "lib", platform(), fileName);
  }
  const folder = packageFolders.get(libraryPackage(kind)) ?? installedPackage(kind);
  if (folder !== undefined) yield join(folder, fileName);
}

/** Returns the folder of an npm package that was installed with forge. */
function installedPackage(kind: BackendKind): string | undefined {
  if (projectRoot === undefined) return undefined;
  try {
    return dirname(createRequire(import.meta.url).resolve(`${libraryPackage(kind)}/package.json`));
  } catch {
    return undefined;
  }
}

/** Folders of packages that {@linkcode fetchLibraries} found, by name. */
const packageFolders = new Map<string, string>();

/**
 * Has Deno install the npm packages of the libraries, if the sources themselves were loaded from
 * the network. Otherwise the libraries are on disk or can be built there.
 *
 * @throws {ForgeError} `not_found` if the CPU library's package cannot be installed
 */
export async function fetchLibraries(): Promise<void> {
  if (projectRoot !== undefined) return;
  for (const kind of ["cpu", "cuda"] as const) {
    const name = libraryPackage(kind);
    if (packageFolders.has(name) || (kind === "cuda" && Deno.build.os === "darwin")) continue;
    try {
      const { folder } = await import(`npm:${name}@${config.version}`);
      packageFolders.set(name, folder);
    } catch (error) {
      if (kind === "cuda") continue;
      throw new ForgeError(
        "not_found",
        `cannot install the npm package ${name}@${config.version} ` +
          `(${error instanceof Error ? error.message : error}); or set ` +
          `${LIBRARY_PATH_VARIABLE} to a folder with ${libraryFileName(kind)}`,
        { cause: error },
      );
    }
  }
}

/** True if this tree contains the sources of the libraries. */
export function canBuildLibraries(): boolean {
  return projectRoot !== undefined && isFile(join(projectRoot, "csrc", "forge.h"));
}

/** Returns the advice with which a missing or wrong library ends. */
function advice(kind: BackendKind, verb: "build" | "rebuild"): string {
  return canBuildLibraries()
    ? `${verb} it with: deno task build`
    : `install it with: npm install ${libraryPackage(kind)}@${config.version}`;
}

/** Returns the first existing candidate, or `undefined`. */
export function findLibrary(kind: BackendKind): string | undefined {
  return libraryCandidates(kind).find((path) => {
    try {
      return Deno.statSync(path).isFile;
    } catch (error) {
      if (error instanceof Deno.errors.NotFound) return false;
      throw error;
    }
  });
}

/**
 * True if a library has another ABI version than this source tree, which has changed since the
 * build.
 *
 * @throws {ForgeError} `device` if it cannot be loaded
 */
export function isOutdated(kind: BackendKind, path: string): boolean {
  return libraryVersion(kind, path) !== ABI_VERSION;
}

/** Loads only the version symbol, because a library of another version may lack other symbols. */
function libraryVersion(kind: BackendKind, path: string): number {
  const probe = load(kind, path, versionSymbol);
  const version = probe.symbols.forge_abi_version();
  probe.close();
  return version;
}

/** Build information of a library. */
export interface LibraryInfo {
  readonly backend: string;
  readonly version: string;
  readonly compiler: string;
  readonly types: readonly string[];
}

/** An open library. Its symbols are not available after closing. */
export class Library {
  readonly kind: BackendKind;
  readonly path: string;
  readonly #symbols: Symbols;
  #library: Deno.DynamicLibrary<typeof librarySymbols> | undefined;

  private constructor(
    kind: BackendKind,
    path: string,
    library: Deno.DynamicLibrary<typeof librarySymbols>,
  ) {
    this.kind = kind;
    this.path = path;
    this.#library = library;
    this.#symbols = keepArguments(library.symbols);
  }

  /**
   * Finds and opens a backend's library.
   *
   * @throws {ForgeError} `not_found`, listing every path tried, if there is none; `device` if it
   * cannot be loaded or has another ABI version
   */
  static open(kind: BackendKind, path: string | undefined = findLibrary(kind)): Library {
    if (path === undefined) {
      throw new ForgeError(
        "not_found",
        `the ${kind} library was not found; tried ${[...libraryCandidates(kind)].join(", ")}; ` +
          advice(kind, "build"),
      );
    }
    const version = libraryVersion(kind, path);
    if (version !== ABI_VERSION) {
      throw new ForgeError(
        "device",
        `${path} implements ABI version ${version}, this forge needs ${ABI_VERSION}; ` +
          advice(kind, "rebuild"),
      );
    }
    return new Library(kind, path, load(kind, path, librarySymbols));
  }

  /** The library's functions. */
  get symbols(): Symbols {
    if (this.#library === undefined) {
      throw new ForgeError("device", `the ${this.kind} library is closed`);
    }
    return this.#symbols;
  }

  info(): LibraryInfo {
    const text = readText((buffer, capacity) => {
      checkStatus(this.symbols.forge_library_info(buffer, capacity), "library_info", () => "");
    });
    return JSON.parse(text) as LibraryInfo;
  }

  /** Returns the devices of this machine that the library can open. */
  devices(): readonly { readonly selector: string; readonly name: string }[] {
    const text = readText((buffer, capacity) => {
      checkStatus(this.symbols.forge_list_devices(buffer, capacity), "list_devices", () => "");
    });
    return JSON.parse(text) as { selector: string; name: string }[];
  }

  close(): void {
    this.#library?.close();
    this.#library = undefined;
  }

  [Symbol.dispose](): void {
    this.close();
  }
}

/**
 * Returns a library's functions, of which those that do not block keep their arguments in memory
 * until they return. Deno does not: a buffer that only a call in progress refers to may be freed
 * by a garbage collection while the library reads or writes it.
 */
function keepArguments(symbols: Symbols): Symbols {
  const inProgress = new Set<readonly unknown[]>();
  const keeping =
    (call: (...args: readonly unknown[]) => Promise<number>) =>
    async (...args: readonly unknown[]): Promise<number> => {
      inProgress.add(args);
      try {
        return await call(...args);
      } finally {
        inProgress.delete(args);
      }
    };
  const entries = Object.entries(librarySymbols).map(([name, definition]) => {
    const call = symbols[name as keyof Symbols];
    return [name, "nonblocking" in definition ? keeping(call as () => Promise<number>) : call];
  });
  return Object.fromEntries(entries) as Symbols;
}

function load<T extends Deno.ForeignLibraryInterface>(
  kind: BackendKind,
  path: string,
  interface_: T,
): Deno.DynamicLibrary<T> {
  try {
    return Deno.dlopen(path, interface_);
  } catch (error) {
    if (error instanceof Deno.errors.NotCapable) throw error;
    const message = error instanceof Error ? error.message : String(error);
    const reason = message.replace(/^(Could not open library: )+/, "").replace(`${path}: `, "");
    throw new ForgeError(
      "device",
      `cannot load ${path}: ${reason}; ${advice(kind, "rebuild")}`,
      { cause: error },
    );
  }
}
