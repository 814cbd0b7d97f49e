import { ForgeError } from "../errors.ts";
import { quote } from "./quote.ts";

/** Git LFS puts files such as these in the place of large ones: https://git-lfs.com/spec/v1 */
const POINTER_START = "version https://git-lfs";
const MAX_POINTER_BYTES = 1024;

/**
 * A regular file opened for reading at any offset. Close it with `using`. Every failure is a
 * `ForgeError` that names the file.
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
   * @throws {ForgeError} `not_found` when it is missing or may not be read; `bad_model` when it is no
   * regular file (a folder, a pipe, a device), is empty, or stands for one that Git LFS did not fetch.
   */
  static open(path: string): InputFile {
    // The kind is checked before opening: to open a pipe is to wait for its writer.
    const { isFile, size } = statPath(path);
    if (!isFile) throw new ForgeError("bad_model", `${quote(path)} is not a regular file`);
    if (size === 0) throw new ForgeError("bad_model", `${quote(path)} is empty (0 bytes)`);
    let file: InputFile;
    try {
      file = new InputFile(path, Deno.openSync(path, { read: true }), size);
    } catch (error) {
      throw ioError(path, error);
    }
    if (size <= MAX_POINTER_BYTES) refusePointer(file);
    return file;
  }

  /**
   * Fills `target` with the bytes from `offset` on.
   *
   * @throws {ForgeError} `bad_model` when the file ends before `target` is full.
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

/** @throws {ForgeError} `bad_model` for a file of Git LFS, which closes it */
function refusePointer(file: InputFile): void {
  const start = new Uint8Array(Math.min(file.size, POINTER_START.length));
  file.readAt(0, start);
  if (new TextDecoder().decode(start) !== POINTER_START) return;
  file[Symbol.dispose]();
  throw new ForgeError(
    "bad_model",
    `${
      quote(file.path)
    } is a pointer of Git LFS and not the file itself, which git lfs pull fetches`,
  );
}

/**
 * The file information of `path`, links followed.
 *
 * @throws {ForgeError} `not_found` when there is nothing there or it may not be looked at.
 */
export function statPath(path: string): Deno.FileInfo {
  try {
    return Deno.statSync(path);
  } catch (error) {
    throw ioError(path, error);
  }
}

/** Whether `path` is a regular file (links followed). */
export function isFile(path: string): boolean {
  try {
    return Deno.statSync(path).isFile;
  } catch {
    return false;
  }
}

/** The names in a folder, sorted. */
export function listFolder(path: string): string[] {
  try {
    return Array.from(Deno.readDirSync(path), (entry) => entry.name).sort();
  } catch (error) {
    throw ioError(path, error);
  }
}

function ioError(path: string, error: unknown): ForgeError {
  if (error instanceof Deno.errors.NotFound || error instanceof Deno.errors.NotADirectory) {
    return new ForgeError("not_found", `no such file or folder: ${quote(path)}`);
  }
  const denied = error instanceof Deno.errors.PermissionDenied ||
    error instanceof Deno.errors.NotCapable;
  const reason = denied ? "permission denied" : reasonOf(error);
  return new ForgeError("not_found", `cannot read ${quote(path)}: ${reason}`, { cause: error });
}

/** Why the system refused, in one line, without the call and path that Deno puts behind it. */
export function reasonOf(error: unknown): string {
  const text = error instanceof Error ? error.message : String(error);
  return text.split("\n", 1)[0]!.replace(/: \w+ '.*$/, "");
}
