/** Files under `build/` that tests of several processes make and use concurrently. */
import { dirname } from "@std/path";
import { isFile } from "../../src/formats/file.ts";

/**
 * Makes a file or folder unless it exists. Waits while another process makes it; unfinished results
 * never appear under the final name.
 */
export async function makeOnce(
  path: string,
  make: (unfinished: string) => Promise<void>,
): Promise<void> {
  if (exists(path)) return;
  await Deno.mkdir(dirname(path), { recursive: true });
  const lock = await Deno.open(`${path}.lock`, { create: true, write: true });
  try {
    await lock.lock(true);
    if (exists(path)) return;
    const unfinished = `${path}.${crypto.randomUUID()}`;
    await make(unfinished);
    await Deno.rename(unfinished, path);
  } finally {
    lock.close();
  }
}

/** Writes a file unless it already has that text; concurrent readers never see a partial file. */
export async function writeWhole(path: string, text: string): Promise<void> {
  if (isFile(path) && Deno.readTextFileSync(path) === text) return;
  const unfinished = `${path}.${crypto.randomUUID()}`;
  await Deno.writeTextFile(unfinished, text);
  await Deno.rename(unfinished, path);
}

function exists(path: string): boolean {
  try {
    Deno.statSync(path);
    return true;
  } catch (error) {
    if (error instanceof Deno.errors.NotFound) return false;
    throw error;
  }
}
