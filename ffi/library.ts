import { join } from "@std/path";
import type { BackendKind } from "../src/backend.ts";
import { ForgeError } from "../src/errors.ts";
import { ABI_VERSION, type Symbols, symbols, versionSymbol } from "./abi.ts";
import { checkStatus, readText } from "./status.ts";

/** Environment variable with a folder of libraries that is searched first. */
export const LIBRARY_PATH_VARIABLE = "FORGE_LIBRARY_PATH";

/** Returns `<os>-<arch>` of this machine, the name of its library folder. */
export function platform(): string {
  return `${Deno.build.os}-${Deno.build.arch}`;
}

/** Returns the file name of a backend's library on this platform. */
export function libraryFileName(kind: BackendKind): string {
  return `libforge_${kind}.${Deno.build.os === "darwin" ? "dylib" : "so"}`;
}

/**
 * Path at which `deno task build` writes a backend's library. `root` is the folder of `main.ts`.
 */
export function builtLibrary(kind: BackendKind, root: string = projectRoot()): string {
  return join(root, "build", platform(), libraryFileName(kind));
}

/** Paths at which a backend's library is searched, in order. `root` is the folder of `main.ts`. */
export function libraryCandidates(kind: BackendKind, root: string = projectRoot()): string[] {
  const prebuilt = join(root, "lib", platform(), libraryFileName(kind));
  const named = Deno.env.get(LIBRARY_PATH_VARIABLE);
  const first = named ? [join(named, libraryFileName(kind))] : [];
  return [...first, builtLibrary(kind, root), prebuilt];
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
export function isOutdated(path: string): boolean {
  return libraryVersion(path) !== ABI_VERSION;
}

/** Loads only the version symbol, because a library of another version may lack other symbols. */
function libraryVersion(path: string): number {
  const probe = load(path, versionSymbol);
  const version = probe.symbols.forge_abi_version();
  probe.close();
  return version;
}

function projectRoot(): string {
  const folder = import.meta.dirname;
  if (folder === undefined) {
    throw new ForgeError(
      "not_found",
      `forge was not started from a local folder; set ${LIBRARY_PATH_VARIABLE} to its libraries`,
    );
  }
  return join(folder, "..");
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
  #library: Deno.DynamicLibrary<typeof symbols> | undefined;

  private constructor(
    kind: BackendKind,
    path: string,
    library: Deno.DynamicLibrary<typeof symbols>,
  ) {
    this.kind = kind;
    this.path = path;
    this.#library = library;
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
        `the ${kind} library was not found; tried ${libraryCandidates(kind).join(", ")}; ` +
          `build it with: deno task build`,
      );
    }
    const version = libraryVersion(path);
    if (version !== ABI_VERSION) {
      throw new ForgeError(
        "device",
        `${path} implements ABI version ${version}, this forge needs ${ABI_VERSION}; ` +
          `rebuild it with: deno task build`,
      );
    }
    return new Library(kind, path, load(path, symbols));
  }

  /** The library's functions. */
  get symbols(): Symbols {
    if (this.#library === undefined) {
      throw new ForgeError("device", `the ${this.kind} library is closed`);
    }
    return this.#library.symbols;
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

function load<T extends Deno.ForeignLibraryInterface>(
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
      `cannot load ${path}: ${reason}; rebuild it with: deno task build`,
      { cause: error },
    );
  }
}
