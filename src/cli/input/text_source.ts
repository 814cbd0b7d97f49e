/** What a user hands in: the bytes and texts of files and of stdin. */
import { fstatSync } from "node:fs";
import { ForgeError } from "../../errors.ts";
import { type FileIdentity, reasonOf } from "../../formats/file.ts";
import { quote } from "../../formats/quote.ts";

/** More than any model's context, and a bound for what an endless pipe can make us hold. */
const MAX_BYTES = 256 * 2 ** 20;

const CHUNK_BYTES = 256 * 2 ** 10;

/** Bytes that can be read once. */
interface Input extends Disposable {
  /** A chunk is valid until the next one is asked for. */
  readonly chunks: AsyncIterable<Uint8Array<ArrayBuffer>>;
  readonly identity: FileIdentity;
  /** The input as error messages call it: `stdin`, or the quoted path. */
  readonly name: string;
}

/** True if a path stands for stdin. Deno itself refuses to open the paths of the system. */
export function isStdin(path: string): boolean {
  return path === "-" || /^\/dev\/(stdin|fd\/0)$|^\/proc\/self\/fd\/0$/.test(path);
}

/**
 * Opens a file, or stdin for the paths that stand for it.
 *
 * @throws {ForgeError} `not_found` when the file cannot be read, `usage` when stdin is a terminal or is
 * taken already, `cancelled` when the signal is raised before a pipe has a writer.
 */
export async function openInput(path: string, signal?: AbortSignal): Promise<Input> {
  if (isStdin(path)) return openStdin();
  try {
    const info = await Deno.stat(path);
    if (info.isDirectory) throw new Error("it is a folder");
    const file = await unlessAborted(Deno.open(path), signal);
    return {
      chunks: fileChunks(file),
      identity: info,
      name: quote(path),
      [Symbol.dispose]: () => file.close(),
    };
  } catch (error) {
    if (error instanceof ForgeError) throw error;
    const isMissing = error instanceof Deno.errors.NotFound;
    throw new ForgeError(
      "not_found",
      isMissing ? `no such file: ${quote(path)}` : `cannot read ${quote(path)}: ${reasonOf(error)}`,
      { cause: error },
    );
  }
}

let isStdinTaken = false;

function openStdin(): Input {
  if (Deno.stdin.isTerminal()) {
    throw new ForgeError("usage", "stdin is a terminal; pipe the text in, or give it as an option");
  }
  if (isStdinTaken) throw new ForgeError("usage", "stdin can be read once; name a file instead");
  isStdinTaken = true;
  return {
    chunks: Deno.stdin.readable,
    identity: standardStream(0),
    name: "stdin",
    [Symbol.dispose]: () => {},
  };
}

/** The identity of stdin (0) or stdout (1); of no file when it is closed. */
export function standardStream(descriptor: 0 | 1): FileIdentity {
  try {
    const info = fstatSync(descriptor);
    return { isFile: info.isFile(), dev: info.dev, ino: info.ino };
  } catch {
    return { isFile: false, dev: 0, ino: null };
  }
}

async function unlessAborted<T>(result: Promise<T>, signal: AbortSignal | undefined): Promise<T> {
  if (signal === undefined) return await result;
  const { promise, reject } = Promise.withResolvers<never>();
  const stop = () => reject(new ForgeError("cancelled", "stopped on request"));
  signal.addEventListener("abort", stop, { once: true });
  try {
    return await Promise.race([result, promise]);
  } finally {
    signal.removeEventListener("abort", stop);
  }
}

/** The bytes of an open file from its current position. A chunk is valid until the next is asked for. */
export async function* fileChunks(
  file: Deno.FsFile,
): AsyncGenerator<Uint8Array<ArrayBuffer>, void, undefined> {
  const buffer = new Uint8Array(CHUNK_BYTES);
  for (;;) {
    const size = await file.read(buffer);
    if (size === null) return;
    yield buffer.subarray(0, size);
  }
}

/**
 * The text of a file, or of stdin.
 *
 * @throws {ForgeError} as {@linkcode openInput}; `bad_input` when it is not UTF-8 or too large,
 * `cancelled` when the signal is raised.
 */
export async function readTextFile(path: string, signal?: AbortSignal): Promise<string> {
  using input = await openInput(path, signal);
  const chunks: Uint8Array<ArrayBuffer>[] = [];
  let size = 0;
  const iterator = input.chunks[Symbol.asyncIterator]();
  for (;;) {
    const { done, value: chunk } = await unlessAborted(iterator.next(), signal);
    if (done) break;
    chunks.push(chunk.slice());
    size += chunk.length;
    if (size > MAX_BYTES) {
      throw new ForgeError("bad_input", `${input.name} holds more than ${MAX_BYTES / 2 ** 20} MiB`);
    }
  }
  return decodeUtf8(new Uint8Array(await new Blob(chunks).arrayBuffer()), input.name);
}

/** Takes off the newline that ends a text file. */
export function withoutFinalNewline(text: string): string {
  return text.replace(/\r?\n$/, "");
}

/** @throws {ForgeError} `bad_input`, saying where, when the bytes are not UTF-8. */
export function decodeUtf8(bytes: Uint8Array<ArrayBuffer>, name: string): string {
  try {
    return new TextDecoder("utf-8", { fatal: true }).decode(bytes);
  } catch (error) {
    throw new ForgeError(
      "bad_input",
      `${name} is not valid UTF-8: the byte at offset ${firstInvalidByte(bytes)} cannot be read`,
      { cause: error },
    );
  }
}

/** Where the first character begins that is damaged or cut off. */
function firstInvalidByte(bytes: Uint8Array<ArrayBuffer>): number {
  // Valid prefixes are those up to some length, of which the largest is searched.
  let valid = 0;
  let invalid = bytes.length;
  while (valid + 1 < invalid) {
    const middle = (valid + invalid) >> 1;
    if (isValidPrefix(bytes.subarray(0, middle))) valid = middle;
    else invalid = middle;
  }
  return valid;
}

/** Whether bytes are valid UTF-8, but for a character that may go on. */
function isValidPrefix(bytes: Uint8Array<ArrayBuffer>): boolean {
  try {
    new TextDecoder("utf-8", { fatal: true }).decode(bytes, { stream: true });
    return true;
  } catch {
    return false;
  }
}
