/** `forge rerank`: prints documents in the order of their relevance to a query. */
import { ForgeError } from "../../errors.ts";
import type { Context } from "../command.ts";
import { textOperands } from "../input/operands.ts";
import { openInput } from "../input/text_source.ts";
import { resolveModel } from "../model/model_path.ts";
import { openModel } from "../model/open_model.ts";
import type { EncoderFlags } from "../options/flags.ts";
import { loadOptions } from "../options/library_options.ts";
import type { Options } from "../options/options.ts";
import { formatRows } from "../output/format.ts";
import { Progress } from "../output/progress.ts";
import { describeDevice } from "../output/run_report.ts";
import { writeNotes, writeStdout } from "../output/streams.ts";
import { withModelDefaults } from "../model/config_file.ts";
import { type Source, sources } from "./embed.ts";

type RerankFlags =
  & EncoderFlags
  & Options<"documents" | "instruction" | "top" | "embeddingOutput">;

export async function run(
  given: RerankFlags,
  operands: readonly string[],
  context: Context,
): Promise<number> {
  const signal = context.interruptSignal();
  const { model: name, text: query } = textOperands(operands, {
    model: given.model,
    hasText: false,
    noun: "query",
    takesWords: true,
  });
  if (query === undefined || query === "-") {
    throw new ForgeError(
      "usage",
      "no query; give it as an argument, and the documents with --lines",
    );
  }
  if (given.documents === undefined) {
    throw new ForgeError(
      "usage",
      "no documents; give a file with a document on each line by --lines",
    );
  }
  const options = withModelDefaults(given, name);
  const path = await resolveModel(name, signal);
  const documents: Source[] = [];
  {
    using input = await openInput(given.documents, signal);
    for await (const source of sources(input.chunks)) documents.push(source);
  }
  using progress = new Progress();
  const settings = loadOptions(options);
  await using model = await openModel(path, settings, progress);
  if (context.verbose) await writeNotes(formatRows(describeDevice(model), Deno.stderr));
  const texts = documents.map(({ text }) => text);
  const scores = await model.rerank(query, texts, { instruction: options.instruction, signal });
  progress.clear();
  const best = scores.toSorted((a, b) => b.logit - a.logit).slice(0, options.top);
  const objects = best.map(({ index, score, logit, tokens }) => {
    const { line, text } = documents[index]!;
    return JSON.stringify({ line, score, logit, tokens, text });
  });
  if (options.embeddingOutput === "json") await writeStdout(`[${objects.join(",\n")}]\n`);
  else for (const object of objects) await writeStdout(`${object}\n`);
  return 0;
}
