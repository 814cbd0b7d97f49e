/** `forge run --batch`: answers every line of a JSONL file. */
import { ForgeError } from "../../errors.ts";
import { checkNotRead } from "../../formats/file.ts";
import { type BatchResult, describeSampling } from "../../mod.ts";
import { BatchReader, countLines } from "./input.ts";
import { BatchMeter } from "./meter.ts";
import { openBatchOutput } from "./output.ts";
import { parseShard, type Shard } from "./shard.ts";
import type { Context } from "../command.ts";
import { completionJson } from "../output/completion_json.ts";
import { formatRows } from "../output/format.ts";
import { withModelDefaults } from "../model/config_file.ts";
import { resolveModel } from "../model/model_path.ts";
import { openModel } from "../model/open_model.ts";
import { constraintOptions } from "../options/constraint_options.ts";
import type {
  BATCH_FLAGS,
  ConstraintFlags,
  GenerationFlags,
  ModelFlags,
} from "../options/flags.ts";
import {
  fileOptions,
  generationOptions,
  loadOptions,
  namedSources,
} from "../options/library_options.ts";
import type { Options } from "../options/options.ts";
import { writeNotes } from "../output/streams.ts";
import { Progress } from "../output/progress.ts";
import { describeDevice } from "../output/run_report.ts";
import { markOptions } from "../output/thoughts.ts";
import { isStdin, openInput } from "../input/text_source.ts";

/** Flags of `forge run --batch`. */
export type BatchFlags =
  & Options<(typeof BATCH_FLAGS)[number] | "system" | "raw" | "logprobs" | "completions">
  & ModelFlags
  & GenerationFlags
  & ConstraintFlags;

const WHOLE: Shard = { index: 1, count: 1 };

/**
 * Answers the requests of the file that `--batch` names.
 *
 * @returns the exit code
 * @throws {ForgeError} `bad_input` at the end if requests failed; as {@linkcode openBatchOutput}
 * and as loading the model, before anything is answered
 */
export async function runBatchFile(
  path: string,
  given: BatchFlags,
  context: Context,
): Promise<number> {
  const options = withModelDefaults(given, given.model);
  const signal = context.interruptSignal();
  const { resume, overwrite, ordered, shard: shardText } = options;
  if (resume && overwrite) throw new ForgeError("usage", "give --resume or --overwrite, not both");
  const shard = shardText === undefined
    ? WHOLE
    : parseShard(shardText, (name) => Deno.env.get(name));
  const constraint = await constraintOptions(options, signal);
  const modelPath = await resolveModel(options.model, signal);
  const files = await fileOptions(options, signal);
  using input = await openInput(path, signal);
  if (options.output !== undefined) {
    checkNotRead(options.output, [modelPath, ...namedSources(options)]);
  }
  using output = await openBatchOutput(options.output, {
    input: input.identity,
    resume,
    overwrite,
    keepErrors: ordered,
  });

  using progress = new Progress();
  const settings = {
    ...loadOptions(options),
    ...files,
    parallel: options.batchParallel,
  };
  await using model = await openModel(modelPath, settings, progress);
  const { system, raw, logprobs, completions: n } = options;
  const defaults = {
    ...generationOptions(options, model.tokenizer),
    ...constraint,
    ...markOptions(model),
    system,
    raw,
    logprobs,
  };
  if (context.verbose) {
    const sampling = describeSampling(model.resolveSampling(defaults), defaults);
    await writeNotes(
      formatRows([...describeDevice(model), ["sampling", sampling]], Deno.stderr),
    );
  }

  // A generation has no option for the number of completions; requests do.
  const ofRequests = { ...defaults, n };
  const reader = new BatchReader(ofRequests, shard, output.done);
  const total = Deno.stderr.isTerminal() && input.identity.isFile && !isStdin(path)
    ? await countLines(path, shard)
    : undefined;
  const meter = new BatchMeter(progress, total, output.done.errorLines.size);
  try {
    const results = model.batch(reader.requests(input.chunks), { ordered, signal });
    const sharesTerminal = output.name === "stdout" && Deno.stdout.isTerminal();
    for await (const result of results) {
      if (sharesTerminal) progress.clear();
      await output.write(describeResult(result, reader.takeLine(result.index)));
      meter.count(result.completions, reader.skipped);
    }
  } finally {
    progress.clear();
    if (context.verbose || Deno.stderr.isTerminal()) {
      await writeNotes(meter.describe(reader.skipped));
    }
  }
  if (meter.errors === 0) return 0;
  throw new ForgeError(
    "bad_input",
    `${meter.errors} of ${meter.done} requests failed; see the error lines in ${output.name}`,
  );
}

/** Returns a line of the output. */
function describeResult({ id, completion, completions, error }: BatchResult, line: number) {
  if (error !== undefined) return { id, error: { code: error.code, message: error.message }, line };
  return completions.length === 1
    ? { id, ...completionJson(completion) }
    : { id, completions: completions.map(completionJson) };
}
