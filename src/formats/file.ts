import { join } from "node:path";
import { ForgeError } from "../errors.ts";
import { quote } from "./quote.ts";

/**
 * First line of the files that Git LFS stores in place of large ones: https://git-lfs.com/spec/v1
 */
const POINTER_START = "version https://git-lfs";
const MAX_POINTER_BYTES = 1024;

/**
 * A regular file opened for reading at any offset. All errors are `ForgeError`s that name the file.
 */
export class InputFile implements Disposable {
  readonly path: string;
  /** Size in bytes when the file was opened. */
  readonly size: number;
  readonly #file: Deno.FsFile;

  private constructor(path: string, file: Deno.FsFile, size: number) {
    this.path = path;
    this.#file = file;
    this.size = size;
  }

  /**
   * Opens `path`.
   *
   * @throws {ForgeError} `not_found` if it is missing or cannot be read; `bad_model` if it is not a
   * regular file (a folder, a pipe, a device), is empty, or is a Git LFS pointer
   */
  static open(path: string): InputFile {
    // Check the kind before opening, because opening a pipe waits for its writer.
    const { isFile, size } = statPath(path);
    if (!isFile) throw new ForgeError("bad_model", `${quote(path)} is not a regular file`);
    if (size === 0) throw new ForgeError("bad_model", `${quote(path)} is empty (0 bytes)`);
    let file: InputFile;
    try {
      file = new InputFile(path, Deno.openSync(path, { read: true }), size);
    } catch (error) {
      throw ioError(path, error);
    }
    if (size <= MAX_POINTER_BYTES) rejectPointer(file);
    return file;
  }

  /**
   * Fills `target` with the bytes at `offset`.
   *
   * @throws {ForgeError} `bad_model` if the file ends before `target` is full
   */
  readAt(offset: number, target: Uint8Array<ArrayBuffer>): void {
    let done = 0;
    try {
      this.#file.seekSync(offset, Deno.SeekMode.Start);
      while (done < target.length) {
        const count = this.#file.readSync(target.subarray(done));
        if (count === null) break;
        done += count;
      }
    } catch (error) {
      throw ioError(this.path, error);
    }
    if (done < target.length) {
      const wanted = `${target.length} bytes at offset ${offset}`;
      throw new ForgeError(
        "bad_model",
        `${quote(this.path)} ends at byte ${offset + done} while reading ${wanted}`,
      );
    }
  }

  /** Closes the file. */
  [Symbol.dispose](): void {
    this.#file.close();
  }
}

/** Closes and rejects a Git LFS pointer. @throws {ForgeError} `bad_model` */
function rejectPointer(file: InputFile): void {
  const start = new Uint8Array(Math.min(file.size, POINTER_START.length));
  file.readAt(0, start);
  if (new TextDecoder().decode(start) !== POINTER_START) return;
  file[Symbol.dispose]();
  throw new ForgeError(
    "bad_model",
    `${quote(file.path)} is a Git LFS pointer, not the file itself; fetch it with git lfs pull`,
  );
}

/**
 * A file that replaces another one once it is complete. Until then it has an unused name in the
 * same folder. It keeps the permissions and the owner of the replaced file, and links to it stay
 * valid.
 *
 * System errors are thrown unchanged; paths that are not regular files are rejected.
 */
export class Replacement implements Disposable {
  /** The new file, open for writing. */
  readonly file: Deno.FsFile;
  readonly #target: string;
  readonly #temporary: string;
  #isCommitted = false;

  /**
   * Creates the new file.
   *
   * @param path the file to replace, or to create
   * @throws {ForgeError} `usage` if `path` is a folder, a pipe or a device
   */
  constructor(path: string) {
    const old = regularFile(path);
    this.#target = old === undefined ? path : Deno.realPathSync(path);
    this.#temporary = `${this.#target}.${crypto.randomUUID().slice(0, 8)}.part`;
    // Others must not open the new file before it has the permissions of the old one.
    const mode = old?.mode == null ? {} : { mode: old.mode & 0o600 };
    this.file = Deno.openSync(this.#temporary, { write: true, createNew: true, ...mode });
    if (old !== undefined) copyAccess(old, this.#temporary);
  }

  /** Renames the new file into place and returns it, still open. The caller closes it. */
  commit(): Deno.FsFile {
    Deno.renameSync(this.#temporary, this.#target);
    this.#isCommitted = true;
    return this.file;
  }

  /** Closes and removes the new file unless it was committed. */
  [Symbol.dispose](): void {
    if (this.#isCommitted) return;
    this.file.close();
    try {
      Deno.removeSync(this.#temporary);
    } catch (error) {
      if (!(error instanceof Deno.errors.NotFound)) throw error;
    }
  }
}

/**
 * Returns the file at `path`, following links, or `undefined` if there is none.
 *
 * @throws {ForgeError} `usage` if it is not a regular file
 */
function regularFile(path: string): Deno.FileInfo | undefined {
  try {
    const info = Deno.statSync(path);
    if (info.isFile) return info;
  } catch (error) {
    if (error instanceof Deno.errors.NotFound) return undefined;
    throw error;
  }
  throw new ForgeError("usage", `${quote(path)} is not a regular file and cannot be replaced`);
}

/** Copies the permissions of another file, and its owner if the system allows it. */
function copyAccess({ mode, uid, gid }: Deno.FileInfo, path: string): void {
  if (uid !== null && gid !== null) {
    try {
      Deno.chownSync(path, uid, gid);
    } catch (error) {
      if (!(error instanceof Error)) throw error;
    }
  }
  if (mode !== null) Deno.chmodSync(path, mode & 0o777);
}

/** Fields that identify a file, whatever its path. */
export type FileIdentity = Pick<Deno.FileInfo, "isFile" | "dev" | "ino">;

/** True if both are the same regular file. */
export function isSameFile(one: FileIdentity, other: FileIdentity): boolean {
  return one.isFile && other.isFile && one.ino !== null && one.dev === other.dev &&
    one.ino === other.ino;
}

/**
 * Rejects an output that is one of the files read, under any name.
 *
 * @param sources files, and folders whose files are read except for GGUF files
 * @throws {ForgeError} `usage`
 */
export function checkNotRead(path: string, sources: readonly string[]): void {
  const output = tryStat(path);
  if (output === undefined) return;
  const isRead = sources.some((source) => {
    const info = tryStat(source);
    const files = info?.isDirectory
      ? listFolder(source).filter((name) => !name.endsWith(".gguf"))
        .map((name) => tryStat(join(source, name)))
      : [info];
    return files.some((file) => file !== undefined && isSameFile(file, output));
  });
  if (!isRead) return;
  throw new ForgeError("usage", `${quote(path)} is a file that is read; name another one to write`);
}

/** Returns the file information of `path`, or `undefined` if the system gives none. */
function tryStat(path: string): Deno.FileInfo | undefined {
  try {
    return Deno.statSync(path);
  } catch {
    return undefined;
  }
}

/**
 * Returns the file information of `path`, following links.
 *
 * @throws {ForgeError} `not_found` if it is missing or cannot be read
 */
export function statPath(path: string): Deno.FileInfo {
  try {
    return Deno.statSync(path);
  } catch (error) {
    throw ioError(path, error);
  }
}

/** True if `path` is a regular file, following links. */
export function isFile(path: string): boolean {
  return tryStat(path)?.isFile ?? false;
}

/** Returns a key that differs between files, and between versions of one file. */
export function fileIdentity(path: string): string {
  const { dev, ino, size, mtime } = statPath(path);
  return [dev, ino, size, mtime?.getTime()].join(":");
}

/** Returns the user's home folder, if it is known. */
export function homeFolder(): string | undefined {
  return Deno.env.get("HOME") || Deno.env.get("USERPROFILE");
}

/** Replaces `~` at the start of a path by the home folder, as a shell would. */
export function expandHome(path: string): string {
  const home = homeFolder();
  return home !== undefined && /^~(\/|$)/.test(path) ? join(home, path.slice(1)) : path;
}

/** True if anything is at `path`: a file, a folder, a pipe, a broken link. */
export function exists(path: string): boolean {
  try {
    Deno.lstatSync(path);
    return true;
  } catch (error) {
    return !(error instanceof Deno.errors.NotFound || error instanceof Deno.errors.NotADirectory);
  }
}

/** Returns the names in a folder, sorted. */
export function listFolder(path: string): string[] {
  try {
    return Array.from(Deno.readDirSync(path), (entry) => entry.name).sort();
  } catch (error) {
    throw ioError(path, error);
  }
}

/** Returns the error of a path, or one about a missing permission of Deno as it is. */
function ioError(path: string, error: unknown): Error {
  if (isNotPermitted(error)) return error;
  if (error instanceof Deno.errors.NotFound || error instanceof Deno.errors.NotADirectory) {
    return new ForgeError("not_found", `no such file or folder: ${quote(path)}`);
  }
  const reason = error instanceof Deno.errors.PermissionDenied
    ? "permission denied"
    : reasonOf(error);
  return new ForgeError("not_found", `cannot read ${quote(path)}: ${reason}`, { cause: error });
}

/** True if a flag of Deno permits what failed; none permits devices such as /dev/full. */
function isNotPermitted(error: unknown): error is Deno.errors.NotCapable {
  return error instanceof Deno.errors.NotCapable && !/^Requires all access/.test(error.message);
}

/**
 * Returns the system's reason for an error in one line, without the call and path that Deno
 * appends.
 */
export function reasonOf(error: unknown): string {
  if (error instanceof Deno.errors.NotCapable && !isNotPermitted(error)) {
    return "Deno does not allow programs to open it";
  }
  const text = error instanceof Error ? error.message : String(error);
  return text.split("\n", 1)[0]!.replace(/: \w+ '.*$/, "").replace(/ \(os error \d+\)$/, "");
}
