/** Lines of a JSONL file or pipe, read on demand. */
import { ForgeError } from "../../errors.ts";
import { decodeUtf8 } from "./text_source.ts";

/**
 * Default limit of a line. It exceeds every prompt that fits a context, and bounds the memory of a
 * line.
 */
const MAX_LINE_BYTES = 16 * 2 ** 20;

const NEWLINE = 0x0a;

/** A line with its text, or the error of reading it. */
export type Line =
  & {
    /** From 1. */
    readonly number: number;
    /** Offset of the first byte after the line and its newline. */
    readonly end: number;
    /** True if a newline ends it. */
    readonly isWhole: boolean;
  }
  & (
    | { readonly text: string; readonly error: undefined }
    | { readonly text: undefined; readonly error: ForgeError }
  );

/** Selection and limits of lines. */
export interface LineOptions {
  /** Selects lines by number; others are neither kept nor decoded. @default all */
  readonly isWanted?: (number: number) => boolean;
  /** True if blank lines are yielded too. @default false */
  readonly keepBlank?: boolean;
  /** @default 16 MiB */
  readonly maxBytes?: number;
}

/**
 * Yields the lines of a stream. Blank lines are counted but left out, and a byte order mark is
 * dropped. A line that is not UTF-8 or too long has an error in place of its text.
 */
export async function* readLines(
  stream: AsyncIterable<Uint8Array<ArrayBuffer>>,
  { isWanted = () => true, keepBlank = false, maxBytes = MAX_LINE_BYTES }: LineOptions = {},
): AsyncGenerator<Line, void, undefined> {
  let parts: Uint8Array<ArrayBuffer>[] = [];
  let length = 0;
  let number = 1;
  let end = 0;
  const add = (part: Uint8Array<ArrayBuffer>) => {
    length += part.length;
    // A copy, because the stream may reuse its buffer.
    if (length > maxBytes) parts = [];
    else if (part.length > 0 && isWanted(number)) parts.push(part.slice());
  };
  const finish = (isWhole: boolean): Line | undefined => {
    const place = { number, end, isWhole };
    const line = isWanted(number)
      ? { ...place, ...decodeLine(parts, length, number, maxBytes) }
      : undefined;
    parts = [];
    length = 0;
    number++;
    return !keepBlank && line?.text?.trim() === "" ? undefined : line;
  };
  for await (const chunk of stream) {
    let start = 0;
    for (let at = chunk.indexOf(NEWLINE); at >= 0; at = chunk.indexOf(NEWLINE, start)) {
      add(chunk.subarray(start, at));
      end += at + 1 - start;
      start = at + 1;
      const line = finish(true);
      if (line !== undefined) yield line;
    }
    add(chunk.subarray(start));
    end += chunk.length - start;
  }
  const last = length > 0 ? finish(false) : undefined;
  if (last !== undefined) yield last;
}

function decodeLine(
  parts: readonly Uint8Array<ArrayBuffer>[],
  length: number,
  number: number,
  maxBytes: number,
) {
  if (length > maxBytes) {
    const limit = `the limit is ${maxBytes / 2 ** 20} MiB`;
    return {
      text: undefined,
      error: new ForgeError("bad_input", `line ${number} has ${length} bytes; ${limit}`),
    };
  }
  const bytes = new Uint8Array(length);
  let at = 0;
  for (const part of parts) {
    bytes.set(part, at);
    at += part.length;
  }
  try {
    return { text: decodeUtf8(bytes, `line ${number}`), error: undefined };
  } catch (error) {
    if (!(error instanceof ForgeError)) throw error;
    return { text: undefined, error };
  }
}
