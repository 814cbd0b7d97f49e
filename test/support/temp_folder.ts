import { join } from "@std/path";

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
