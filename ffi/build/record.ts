/**
 * Whether a step's output is what the step would make now. The object folder holds a record of how
 * every output was made: the command, the compiler, and the size and time of every file that was
 * read. Any difference means that the step must run again.
 */
import { join } from "@std/path";
import type { Step } from "./graph.ts";

/** How an output was made. */
interface BuildRecord {
  readonly command: readonly string[];
  readonly checks: readonly string[];
  readonly compiler: string;
  /** Signatures of the output and of every input by path. */
  readonly files: Readonly<Record<string, string>>;
}

/** The signature of a file that changed while it was being read: equal to no file's. */
const unstable = "unstable";

/**
 * The prerequisites of a makefile rule as compilers write it (`-MMD`): separated by blanks, with
 * `\` before a line end, a blank or `#`, and `$$` for `$`.
 */
export function parseDepfile(text: string): string[] {
  const colon = text.search(/:(?=\s)/);
  const names = text.slice(colon + 1).replace(/\\\r?\n/g, " ").match(/(?:\\[ #]|[^\s])+/g) ?? [];
  return names.map((name) => name.replace(/\\([ #])/g, "$1").replaceAll("$$", "$"));
}

/** Looks at each file once: the same headers are inputs of nearly every step. */
export class FileSignatures {
  #root: string;
  #known = new Map<string, string | undefined>();

  constructor(root: string) {
    this.#root = root;
  }

  /** A file's time and size; undefined where there is none. */
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
    // A record that was cut short says as little as one that is missing.
    if (error instanceof Deno.errors.NotFound || error instanceof SyntaxError) return undefined;
    throw error;
  }
}

function isSame(a: readonly string[], b: readonly string[]): boolean {
  return a.length === b.length && a.every((text, i) => text === b[i]);
}

/** Whether running the step would change nothing. */
export function isCurrent(root: string, step: Step, signatures: FileSignatures): boolean {
  const record = readRecord(join(root, step.record));
  return record !== undefined &&
    isSame(record.command, step.command) &&
    record.compiler === step.compiler &&
    step.checks.every((check) => record.checks.includes(check)) &&
    Object.entries(record.files).every(([path, signature]) => signatures.get(path) === signature);
}

/**
 * Puts a finished output in its place and records how it was made. A crash between leaves an output
 * without a record, which is made again.
 *
 * @param temporary where the command wrote the output.
 * @param dependencies the inputs the command reported.
 * @param startTime when the command started, in milliseconds since the epoch.
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
