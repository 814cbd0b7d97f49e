import { ForgeError } from "../../errors.ts";
import { checkNotRead, reasonOf, Replacement } from "../../formats/file.ts";
import { quote } from "../../formats/quote.ts";
import { chartPage } from "../../bench/chart.ts";
import { columnsOf, styled, wrap } from "./terminal_text.ts";

/** Writes to stdout, which has only results. */
export async function writeStdout(text: string): Promise<void> {
  await writeAll(Deno.stdout, "stdout", text);
}

/** Writes to stderr, which has everything else. */
export async function writeStderr(text: string): Promise<void> {
  await writeAll(Deno.stderr, "stderr", text);
}

/**
 * @throws {Deno.errors.BrokenPipe} if the reader closed the stream
 * @throws {ForgeError} `device` if the text cannot be written, such as on a full disk
 */
async function writeAll(
  stream: typeof Deno.stdout | typeof Deno.stderr,
  name: string,
  text: string,
): Promise<void> {
  try {
    await writeBytes(stream, text);
  } catch (error) {
    if (error instanceof Deno.errors.BrokenPipe || !(error instanceof Error)) throw error;
    throw new ForgeError("device", `cannot write to ${name}: ${error.message}`, { cause: error });
  }
}

/** Writes a report or a remark to stderr; on a terminal dimmed and broken between words. */
export async function writeNotes(text: string): Promise<void> {
  const lines = wrap(text, columnsOf(Deno.stderr) ?? Infinity);
  await writeStderr(styled(Deno.stderr, "dim", lines.join("\n")));
}

/** Writes all of a text as UTF-8. */
export async function writeBytes(
  stream: { write(bytes: Uint8Array): Promise<number> },
  text: string,
): Promise<void> {
  const bytes = new TextEncoder().encode(text);
  for (let done = 0; done < bytes.length;) done += await stream.write(bytes.subarray(done));
}

/**
 * Checks that a file can be written, before the work for it begins.
 *
 * @param sources files and folders of models that are read, and must stay
 */
export function checkWritable(path: string, sources: readonly string[] = []): void {
  checkNotRead(path, sources);
  try {
    using _probe = new Replacement(path);
  } catch (error) {
    if (error instanceof ForgeError) throw error;
    throw new ForgeError("not_found", `cannot write ${quote(path)}: ${reasonOf(error)}`, {
      cause: error,
    });
  }
}

/** Writes a whole file in one step. @throws {ForgeError} `device` if it cannot be written */
export async function replaceFile(path: string, text: string): Promise<void> {
  try {
    using replacement = new Replacement(path);
    await writeBytes(replacement.file, text);
    replacement.commit().close();
  } catch (error) {
    if (error instanceof ForgeError) throw error;
    throw new ForgeError("device", `cannot write ${quote(path)}: ${reasonOf(error)}`, {
      cause: error,
    });
  }
}

/** Checks that the file of `--plot` can be written, before the work for it begins. */
export function checkPicture(path: string, sources: readonly string[] = []): void {
  if (!/\.(svg|html)$/.test(path)) {
    throw new ForgeError(
      "usage",
      `--plot is ${quote(path)}; valid is a name ending in .svg or .html`,
    );
  }
  checkWritable(path, sources);
}

/** Writes a picture as SVG, or in a page if the name ends in `.html`. */
export async function writePicture(path: string, svg: string, title: string): Promise<void> {
  await replaceFile(path, path.endsWith(".html") ? chartPage(svg, title) : svg);
}
