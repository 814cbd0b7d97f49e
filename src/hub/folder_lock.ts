import { join } from "@std/path";

const NAME = "lock";

/** Whether a name in a folder of the store is that of its lock. */
export function isLock(name: string): boolean {
  return name === NAME;
}

/**
 * Keeps other processes from the files of a folder that exists, until it is disposed of or this process
 * ends. Where the file system knows no locks there is none to wait for.
 *
 * @returns undefined while another has it
 */
export function tryLockFolder(folder: string): Disposable | undefined {
  const file = Deno.openSync(join(folder, NAME), { create: true, write: true });
  let isMine = true;
  try {
    isMine = file.tryLockSync(true);
  } catch {
    // What cannot be locked is used as it is: a mixed-up download fails its checksum.
  }
  if (isMine) return file;
  file.close();
  return undefined;
}
