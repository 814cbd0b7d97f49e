/** Text that a user hands in: from a file or from stdin. */
import { ForgeError } from "../errors.ts";
import { reasonOf } from "../formats/file.ts";
import { quote } from "../formats/quote.ts";

/** More than any model's context, and a bound for what an endless pipe can make us hold. */
const MAX_BYTES = 256 * 2 ** 20;

/**
 * The text of a file.
 *
 * @throws {ForgeError} `not_found` when it cannot be read, `bad_input` when it is no UTF-8 or too
 * large, `cancelled` when the signal is raised.
 */
export async function readTextFile(path: string, signal?: AbortSignal): Promise<string> {
  return await readText(openTextFile(path).readable, quote(path), signal);
}

/** Opens a file to be read. @throws {ForgeError} `not_found` */
export function openTextFile(path: string): Deno.FsFile {
  try {
    if (Deno.statSync(path).isDirectory) throw new Error("it is a folder");
    return Deno.openSync(path);
  } catch (error) {
    const isMissing = error instanceof Deno.errors.NotFound;
    throw new ForgeError(
      "not_found",
      isMissing ? `no such file: ${quote(path)}` : `cannot read ${quote(path)}: ${reasonOf(error)}`,
      { cause: error },
    );
  }
}

/**
 * All of stdin.
 *
 * @throws {ForgeError} as {@linkcode readTextFile}; `usage` when stdin is a terminal, which would
 * have to be waited for.
 */
export async function readStdin(signal?: AbortSignal): Promise<string> {
  if (Deno.stdin.isTerminal()) {
    throw new ForgeError("usage", "stdin is a terminal; pipe the text in, or give it as an option");
  }
  return await readText(Deno.stdin.readable, "stdin", signal);
}

/** Takes off the newline that ends a text file. */
export function withoutFinalNewline(text: string): string {
  return text.replace(/\r?\n$/, "");
}

async function readText(
  stream: ReadableStream<Uint8Array<ArrayBuffer>>,
  name: string,
  signal: AbortSignal | undefined,
): Promise<string> {
  const chunks: Uint8Array<ArrayBuffer>[] = [];
  let size = 0;
  const sink = new WritableStream<Uint8Array<ArrayBuffer>>({
    write(chunk) {
      chunks.push(chunk);
      size += chunk.length;
      if (size > MAX_BYTES) {
        throw new ForgeError("bad_input", `${name} holds more than ${MAX_BYTES / 2 ** 20} MiB`);
      }
    },
  });
  try {
    await stream.pipeTo(sink, signal === undefined ? {} : { signal });
  } catch (error) {
    if (!signal?.aborted) throw error;
    throw new ForgeError("cancelled", "stopped on request", { cause: error });
  }
  return decodeUtf8(new Uint8Array(await new Blob(chunks).arrayBuffer()), name);
}

/** @throws {ForgeError} `bad_input`, saying where, when the bytes are no UTF-8. */
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
