import { ForgeError } from "../../errors.ts";

/** Writes to stdout: the answer, and nothing else. */
export async function writeStdout(text: string): Promise<void> {
  await writeAll(Deno.stdout, "stdout", text);
}

/** Writes to stderr: everything that is not the answer. */
export async function writeStderr(text: string): Promise<void> {
  await writeAll(Deno.stderr, "stderr", text);
}

/**
 * @throws {Deno.errors.BrokenPipe} when nobody reads any more.
 * @throws {ForgeError} `device` when the text cannot be written, as on a full disk.
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

/** Writes a text as UTF-8, however many calls that takes. */
export async function writeBytes(
  stream: { write(bytes: Uint8Array): Promise<number> },
  text: string,
): Promise<void> {
  const bytes = new TextEncoder().encode(text);
  for (let done = 0; done < bytes.length;) done += await stream.write(bytes.subarray(done));
}
