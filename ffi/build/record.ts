/**
 * Detection of outdated outputs. The object folder holds a record of each output: the command, the
 * compiler, and the size and time of every file that was read. Any difference makes the step run
 * again.
 */
import { join } from "node:path";
import type { Step } from "./graph.ts";

/** Record of an output. */
interface BuildRecord {
  readonly command: readonly string[];
  readonly checks: readonly string[];
  readonly compiler: string;
  /** Signatures of the output and of all inputs, by path. */
  readonly files: Readonly<Record<string, string>>;
}

/** Signature of a file that changed while it was read; equal to no other. */
const unstable = "unstable";

/**
 * Parses the prerequisites of a makefile rule as compilers write it (`-MMD`): separated by blanks,
 * with `\` before a line end, a blank or `#`, and `$$` for `$`.
 */
export function parseDepfile(text: string): string[] {
  const colon = text.search(/:(?=\s)/);
  const names = text.slice(colon + 1).replace(/\\\r?\n/g, " ").match(/(?:\\[ #]|[^\s])+/g) ?? [];
  return names.map((name) => name.replace(/\\([ #])/g, "$1").replaceAll("$$", "$"));
}

/** Caches file signatures, because nearly all steps share their headers. */
export class FileSignatures {
  #root: string;
  #known = new Map<string, string | undefined>();

  constructor(root: string) {
    this.#root = root;
  }

  /** Returns a file's time and size, or `undefined` for a missing file. */
  get(path: string): string | undefined {
    if (!this.#known.has(path)) this.#known.set(path, this.#read(path));
    return this.#known.get(path);
  }

  /** Forgets a file that was written. */
  forget(path: string): void {
    this.#known.delete(path);
  }

  #read(path: string): string | undefined {
    try {
      const { mtime, size } = Deno.statSync(join(this.#root, path));
      return `${mtime?.getTime() ?? 0}:${size}`;
    } catch (error) {
      if (error instanceof Deno.errors.NotFound) return undefined;
      throw error;
    }
  }
}

function readRecord(path: string): BuildRecord | undefined {
  try {
    return JSON.parse(Deno.readTextFileSync(path));
  } catch (error) {
    // A truncated record counts as missing.
    if (error instanceof Deno.errors.NotFound || error instanceof SyntaxError) return undefined;
    throw error;
  }
}

function isSame(a: readonly string[], b: readonly string[]): boolean {
  return a.length === b.length && a.every((text, i) => text === b[i]);
}

/** True if the output of the step is up to date. */
export function isCurrent(root: string, step: Step, signatures: FileSignatures): boolean {
  const record = readRecord(join(root, step.record));
  return record !== undefined &&
    isSame(record.command, step.command) &&
    record.compiler === step.compiler &&
    step.checks.every((check) => record.checks.includes(check)) &&
    Object.entries(record.files).every(([path, signature]) => signatures.get(path) === signature);
}

/**
 * Renames a finished output into place and writes its record. A crash in between leaves an output
 * without a record, which is built again.
 *
 * @param temporary path of the finished output
 * @param dependencies inputs reported by the command
 * @param startTime start of the command in milliseconds since the epoch
 */
export function commit(
  root: string,
  step: Step,
  signatures: FileSignatures,
  temporary: string,
  dependencies: readonly string[],
  startTime: number,
): void {
  const path = join(root, step.record);
  Deno.writeTextFileSync(path, "");
  Deno.renameSync(temporary, join(root, step.output));

  const files: Record<string, string> = {};
  signatures.forget(step.output);
  files[step.output] = signatures.get(step.output) ?? unstable;
  for (const input of new Set([...step.inputs, ...dependencies])) {
    signatures.forget(input);
    const signature = signatures.get(input) ?? unstable;
    files[input] = parseInt(signature) > startTime ? unstable : signature;
  }
  const record: BuildRecord = {
    command: step.command,
    checks: step.checks,
    compiler: step.compiler,
    files,
  };
  Deno.writeTextFileSync(`${path}.tmp`, JSON.stringify(record, undefined, 1));
  Deno.renameSync(`${path}.tmp`, path);
}
