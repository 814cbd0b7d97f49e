/** `forge embed`: prints embeddings of texts. */
import { ForgeError } from "../../errors.ts";
import { quote } from "../../formats/quote.ts";
import type { EmbedOptions, Model } from "../../mod.ts";
import { floatsOf } from "../../requests/values.ts";
import type { Context } from "../command.ts";
import { formatRows } from "../output/format.ts";
import { readLines } from "../input/jsonl_lines.ts";
import { withModelDefaults } from "../model/config_file.ts";
import { resolveModel } from "../model/model_path.ts";
import { openModel } from "../model/open_model.ts";
import { textOperands } from "../input/operands.ts";
import type { EncoderFlags } from "../options/flags.ts";
import { loadOptions } from "../options/library_options.ts";
import type { Options } from "../options/options.ts";
import { writeNotes, writeStdout } from "../output/streams.ts";
import { Progress } from "../output/progress.ts";
import { describeDevice } from "../output/run_report.ts";
import { openInput, readTextFile, withoutFinalNewline } from "../input/text_source.ts";

type EmbedFlags =
  & EncoderFlags
  & Options<"wholeText" | "lines" | "pooling" | "dimensions" | "normalize" | "embeddingOutput">;

/** A text, with its line number if it is a line of a file. */
export interface Source {
  readonly text: string;
  readonly line?: number;
}

export async function run(
  given: EmbedFlags,
  operands: readonly string[],
  context: Context,
): Promise<number> {
  const signal = context.interruptSignal();
  const { model: name, text } = textOperands(operands, {
    model: given.model,
    hasText: given.wholeText !== undefined || given.lines !== undefined,
    noun: "text",
    takesWords: true,
  });
  const options = withModelDefaults(given, name);
  const path = await resolveModel(name, signal);
  using input = await openTexts(options, text, signal);

  using progress = new Progress();
  const settings = loadOptions(options);
  await using model = await openModel(path, settings, progress);
  if (context.verbose) await writeNotes(formatRows(describeDevice(model), Deno.stderr));
  const { pooling, dimensions, normalize } = options;
  const how = {
    pooling,
    dimensions,
    normalize: normalize === undefined ? undefined : normalize === "yes",
    signal,
  };
  const isArray = options.embeddingOutput === "json";
  let count = 0;
  for await (const object of embedAll(model, input.texts, how)) {
    const before = count === 0 ? "[" : ",\n";
    await writeStdout(isArray ? before + object : `${object}\n`);
    progress.update(`embedding: ${++count} done`);
  }
  progress.clear();
  if (isArray) await writeStdout(count === 0 ? "[]\n" : "]\n");
  return 0;
}

/** Opens the texts. @throws {ForgeError} `usage` if they are missing or given twice */
async function openTexts(
  { wholeText, lines }: EmbedFlags,
  operand: string | undefined,
  signal: AbortSignal,
): Promise<Disposable & { readonly texts: AsyncIterable<Source> }> {
  if ([wholeText, lines, operand].filter((given) => given !== undefined).length > 1) {
    throw new ForgeError("usage", "give the text once: as an argument, with -f, --lines or as -");
  }
  if (lines !== undefined) {
    const input = await openInput(lines, signal);
    return { texts: sources(input.chunks), [Symbol.dispose]: () => input[Symbol.dispose]() };
  }
  const text = operand === undefined || operand === "-"
    ? await readText(wholeText, signal)
    : operand;
  return { texts: ReadableStream.from([{ text }]), [Symbol.dispose]: () => {} };
}

/**
 * Returns the text of a file or stdin. An empty text is an error, because it is likely a mistake.
 */
async function readText(file: string | undefined, signal: AbortSignal): Promise<string> {
  if (file === undefined && Deno.stdin.isTerminal()) {
    throw new ForgeError(
      "usage",
      "no text; give it as an argument, with -f or --lines, or pipe it in",
    );
  }
  const text = withoutFinalNewline(await readTextFile(file ?? "-", signal));
  if (text !== "") return text;
  const name = file === undefined ? "stdin" : quote(file);
  throw new ForgeError(
    "usage",
    `no text: ${name} is empty`,
  );
}

/**
 * Yields the non-blank lines of a file. @throws the errors of lines that are not UTF-8 or too long
 */
export async function* sources(
  chunks: AsyncIterable<Uint8Array<ArrayBuffer>>,
): AsyncGenerator<Source> {
  for await (const { number, text, error } of readLines(chunks)) {
    if (error !== undefined) throw error;
    yield { text: text.replace(/\r$/, ""), line: number };
  }
}

/** Embeds several texts at a time; yields the objects in the order of the texts. */
async function* embedAll(
  model: Model,
  texts: AsyncIterable<Source>,
  how: EmbedOptions,
): AsyncGenerator<string> {
  // Enough to fill every step.
  const window = 2 * model.parallel;
  const underway: Promise<string>[] = [];
  try {
    for await (const source of texts) {
      const object = embedOne(model, source, how);
      // The first failure in order is reported; later failures are ignored.
      object.catch(() => {});
      underway.push(object);
      if (underway.length === window) yield await underway.shift()!;
    }
    while (underway.length > 0) yield await underway.shift()!;
  } finally {
    await Promise.allSettled(underway);
  }
}

async function embedOne(model: Model, { text, line }: Source, how: EmbedOptions): Promise<string> {
  try {
    const [embedding] = await model.embed([text], how);
    const { vector, tokens } = embedding!;
    return JSON.stringify({ line, tokens, embedding: floatsOf(vector) });
  } catch (error) {
    if (line === undefined || !(error instanceof ForgeError) || error.code !== "bad_input") {
      throw error;
    }
    throw new ForgeError("bad_input", `line ${line}: ${error.message}`, { cause: error });
  }
}
