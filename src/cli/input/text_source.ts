/** Reading of bytes and texts from files and stdin. */
import { fstatSync } from "node:fs";
import { ForgeError } from "../../errors.ts";
import { type FileIdentity, reasonOf } from "../../formats/file.ts";
import { quote } from "../../formats/quote.ts";

/** Limit of a text. It exceeds every context, and bounds the memory for an endless pipe. */
const MAX_BYTES = 256 * 2 ** 20;

const CHUNK_BYTES = 256 * 2 ** 10;

/** Bytes that can be read once. */
interface Input extends Disposable {
  /** A chunk is valid until the next one is requested. */
  readonly chunks: AsyncIterable<Uint8Array<ArrayBuffer>>;
  readonly identity: FileIdentity;
  /** Name for errors: `stdin`, or the quoted path. */
  readonly name: string;
}

/** True if a path means stdin. Deno does not open these paths itself. */
export function isStdin(path: string): boolean {
  return path === "-" || /^\/dev\/(stdin|fd\/0)$|^\/proc\/self\/fd\/0$/.test(path);
}

/**
 * Opens a file, or stdin for the paths that mean it.
 *
 * @throws {ForgeError} `not_found` if the file cannot be read, `usage` if stdin is a terminal or
 * was opened before, `cancelled` if the signal is aborted before a pipe has a writer.
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
  if (isStdinTaken) {
    throw new ForgeError("usage", "stdin can be read only once; name a file instead");
  }
  isStdinTaken = true;
  return {
    chunks: Deno.stdin.readable,
    identity: standardStream(0),
    name: "stdin",
    [Symbol.dispose]: () => {},
  };
}

/** Returns the identity of stdin (0) or stdout (1). A closed stream is not a file. */
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

/**
 * Yields the bytes of a file from its current position. A chunk is valid until the next is
 * requested.
 */
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
 * Reads the text of a file or stdin.
 *
 * @throws {ForgeError} as {@linkcode openInput}; `bad_input` if it is not UTF-8 or too large,
 * `cancelled` if the signal is aborted.
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

/** Removes a newline at the end of a text. */
export function withoutFinalNewline(text: string): string {
  return text.replace(/\r?\n$/, "");
}

/** Decodes UTF-8. @throws {ForgeError} `bad_input` with the offset of the first invalid byte */
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

/** Returns the offset of the first invalid or incomplete character. */
function firstInvalidByte(bytes: Uint8Array<ArrayBuffer>): number {
  // Binary search for the longest valid prefix.
  let valid = 0;
  let invalid = bytes.length;
  while (valid + 1 < invalid) {
    const middle = (valid + invalid) >> 1;
    if (decodePrefix(bytes.subarray(0, middle)) !== undefined) valid = middle;
    else invalid = middle;
  }
  return new TextEncoder().encode(decodePrefix(bytes.subarray(0, valid))).length;
}

/** Decodes the complete characters of bytes; returns `undefined` if the bytes are invalid. */
function decodePrefix(bytes: Uint8Array<ArrayBuffer>): string | undefined {
  try {
    const decoder = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });
    return decoder.decode(bytes, { stream: true });
  } catch {
    return undefined;
  }
}
