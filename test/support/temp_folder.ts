import { dirname, join } from "@std/path";

/**
 * A temporary folder that is removed at the end of the scope: `using folder = new TempFolder()`.
 */
export class TempFolder implements Disposable {
  readonly path: string = Deno.makeTempDirSync({ prefix: "forge-test-" });

  /** The path of an entry in the folder. */
  at(...parts: string[]): string {
    return join(this.path, ...parts);
  }

  /** Writes a file (text, bytes, or anything else as JSON) and returns its path. */
  write(name: string, content: unknown): string {
    const path = this.at(name);
    Deno.mkdirSync(dirname(path), { recursive: true });
    // Replace the file: overwriting one waits for the disk on some file systems.
    try {
      Deno.removeSync(path);
    } catch (error) {
      if (!(error instanceof Deno.errors.NotFound)) throw error;
    }
    if (content instanceof Uint8Array) Deno.writeFileSync(path, content);
    else {Deno.writeTextFileSync(
        path,
        typeof content === "string" ? content : JSON.stringify(content),
      );}
    return path;
  }

  [Symbol.dispose](): void {
    Deno.removeSync(this.path, { recursive: true });
  }
}

/** Returns the descriptors and mappings of the process that belong to files of a folder. */
export function heldFiles(folder: string): string[] {
  const descriptors = Array.from(Deno.readDirSync("/proc/self/fd"), ({ name }) => {
    try {
      return Deno.readLinkSync(`/proc/self/fd/${name}`);
    } catch {
      return ""; // The descriptor of the listing itself.
    }
  });
  const mappings = Deno.readTextFileSync("/proc/self/maps").split("\n");
  return [...descriptors, ...mappings].filter((name) => name.includes(folder));
}
