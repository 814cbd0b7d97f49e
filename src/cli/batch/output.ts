/** Output of a batch: opening, resuming and writing it. */
import { ForgeError } from "../../errors.ts";
import { type FileIdentity, isSameFile, reasonOf, Replacement } from "../../formats/file.ts";
import { isJsonObject, parseJsonObject } from "../../formats/json.ts";
import { quote } from "../../formats/quote.ts";
import type { BatchId } from "../../mod.ts";
import { type Line, readLines } from "../input/jsonl_lines.ts";
import { writeBytes, writeStdout } from "../output/streams.ts";
import { fileChunks, standardStream } from "../input/text_source.ts";
import { IdSet } from "./id_set.ts";

/** Limit of a line when an output is read again. Log-probabilities make long lines. */
const MAX_OUTPUT_LINE = 256 * 2 ** 20;

/** Handling of an existing file. */
interface OutputOptions {
  /** The input file, which must not be overwritten. */
  readonly input: FileIdentity;
  /** Continue an existing file. */
  readonly resume: boolean;
  /** Replace an existing file. */
  readonly overwrite: boolean;
  /** With `resume`, keep error lines, to preserve the order. */
  readonly keepErrors: boolean;
}

/** Results of an earlier run. */
export class Done {
  /** Ids of answered requests. */
  readonly ids = new IdSet();
  /** Numbers of input lines whose errors are kept. */
  readonly errorLines = new IdSet();
}

/** Receives answers line by line. */
interface BatchOutput extends Disposable {
  /** Name for messages. */
  readonly name: string;
  readonly done: Done;
  /**
   * Writes an object as a line; resolves when the system has accepted it.
   *
   * @throws {ForgeError} `device` if it cannot be written, such as on a full disk
   */
  write(line: Readonly<Record<string, unknown>>): Promise<void>;
}

/**
 * Opens a file for the answers, or stdout.
 *
 * @param path `undefined` or `-` for stdout
 * @throws {ForgeError} `usage` if a file would be lost; `bad_input` if the file to resume has other
 * contents; `device` if it cannot be written, or another process writes it.
 */
export async function openBatchOutput(
  path: string | undefined,
  options: OutputOptions,
): Promise<BatchOutput> {
  if (path === undefined || isStdout(path)) {
    if (isSameFile(options.input, standardStream(1))) throw overInput("stdout");
    if (!options.resume) return new StdoutOutput();
    throw new ForgeError("usage", "--resume needs the file to continue: -o FILE");
  }
  const file = openFile(path, options);
  try {
    if (isSameFile(options.input, file.statSync())) throw overInput("-o");
    lock(file, path);
    const done = new Done();
    if (!file.statSync().isFile) return new FileOutput(path, file, done);
    if (!options.resume) file.truncateSync();
    const { end, errors } = await scan(file, path, done, options.keepErrors);
    file.truncateSync(end);
    if (errors === 0) {
      file.seekSync(end, Deno.SeekMode.Start);
      return new FileOutput(path, file, done);
    }
    const rewritten = await withoutErrors(file, path);
    file.close();
    return new FileOutput(path, rewritten, done);
  } catch (error) {
    file.close();
    throw error;
  }
}

/** True if a path means stdout. Deno does not open these paths itself. */
function isStdout(path: string): boolean {
  return path === "-" || /^\/dev\/(stdout|fd\/1)$|^\/proc\/self\/fd\/1$/.test(path);
}

function overInput(name: string): ForgeError {
  return new ForgeError(
    "usage",
    `${name} is the batch file itself; name another file for the answers`,
  );
}

class StdoutOutput implements BatchOutput {
  readonly name = "stdout";
  readonly done = new Done();

  async write(line: Readonly<Record<string, unknown>>): Promise<void> {
    await writeStdout(`${JSON.stringify(line)}\n`);
  }

  [Symbol.dispose](): void {}
}

class FileOutput implements BatchOutput {
  readonly name: string;
  readonly done: Done;
  readonly #file: Deno.FsFile;

  constructor(path: string, file: Deno.FsFile, done: Done) {
    this.name = quote(path);
    this.#file = file;
    this.done = done;
  }

  async write(line: Readonly<Record<string, unknown>>): Promise<void> {
    try {
      await writeBytes(this.#file, `${JSON.stringify(line)}\n`);
    } catch (error) {
      throw cannot("write", this.name, error);
    }
  }

  [Symbol.dispose](): void {
    this.#file.close();
  }
}

function openFile(path: string, { resume, overwrite }: OutputOptions): Deno.FsFile {
  let file: Deno.FsFile;
  try {
    file = Deno.openSync(path, { read: isRegular(path), write: true, create: true });
  } catch (error) {
    throw cannot("write", quote(path), error);
  }
  const { isFile, size } = file.statSync();
  if (!resume && !overwrite && isFile && size > 0) {
    file.close();
    const ways = "--resume continues it, --overwrite replaces it";
    throw new ForgeError("usage", `${quote(path)} exists already; ${ways}`);
  }
  return file;
}

/** True if a path is a file or does not exist. Pipes and devices may not be readable. */
function isRegular(path: string): boolean {
  try {
    return Deno.statSync(path).isFile;
  } catch (error) {
    return error instanceof Deno.errors.NotFound;
  }
}

/** Locks the file against other processes until it is closed, if the file system supports it. */
function lock(file: Deno.FsFile, path: string): void {
  let isOurs = true;
  try {
    isOurs = file.tryLockSync(true);
  } catch (error) {
    if (!(error instanceof Error)) throw error;
  }
  if (isOurs) return;
  throw new ForgeError("device", `${quote(path)} is being written by another process`);
}

/**
 * Reads the answers in the file.
 *
 * @returns end of the last complete line, and the number of error lines to remove
 */
async function scan(file: Deno.FsFile, path: string, done: Done, keepErrors: boolean) {
  let end = 0;
  let errors = 0;
  for await (const line of readLines(fileChunks(file), { maxBytes: MAX_OUTPUT_LINE })) {
    if (!line.isWhole) break;
    const answer = readAnswer(line, path);
    if (answer.errorLine === undefined) done.ids.add(answer.id);
    else if (keepErrors) done.errorLines.add(answer.errorLine);
    else errors++;
    end = line.end;
  }
  return { end, errors };
}

/** Reads the id of an answer, and for an error the number of the input line. */
function readAnswer(line: Line, path: string): { id: BatchId; errorLine: number | undefined } {
  const name = `line ${line.number} of ${quote(path)}`;
  let problem = line.error?.message;
  if (line.text !== undefined) {
    try {
      const { id, text, completions, error, line: place } = parseJsonObject(line.text, name);
      const hasId = typeof id === "string" || typeof id === "number";
      const isAnswer = typeof text === "string" || Array.isArray(completions);
      if (hasId && isAnswer) return { id, errorLine: undefined };
      if (hasId && isJsonObject(error) && typeof place === "number") {
        return { id, errorLine: place };
      }
    } catch (error) {
      if (!(error instanceof ForgeError)) throw error;
      problem = error.message;
    }
  }
  const what = problem ?? `${name} is not an answer of a batch`;
  throw new ForgeError("bad_input", `--resume cannot continue: ${what}`);
}

/**
 * Replaces the file by one without error lines. The old file stays until the new one is complete.
 *
 * @returns the new file, open and locked
 */
async function withoutErrors(file: Deno.FsFile, path: string): Promise<Deno.FsFile> {
  try {
    using replacement = new Replacement(path);
    const copy = replacement.file;
    lock(copy, path);
    file.seekSync(0, Deno.SeekMode.Start);
    for await (const line of readLines(fileChunks(file), { maxBytes: MAX_OUTPUT_LINE })) {
      if (readAnswer(line, path).errorLine === undefined) await writeBytes(copy, `${line.text}\n`);
    }
    return replacement.commit();
  } catch (error) {
    throw error instanceof ForgeError ? error : cannot("write", quote(path), error);
  }
}

function cannot(verb: string, name: string, error: unknown): ForgeError {
  return new ForgeError("device", `cannot ${verb} ${name}: ${reasonOf(error)}`, { cause: error });
}
