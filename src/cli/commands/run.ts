/** `forge run`: generates from one prompt and prints a stream or one JSON object. */
import { ForgeError } from "../../errors.ts";
import { isFile } from "../../formats/file.ts";
import type { GenerateOptions, GenerationEnd, Model, Profile } from "../../mod.ts";
import type { BatchFlags } from "../batch/run_batch.ts";
import type { Context } from "../command.ts";
import { completionJson } from "../output/completion_json.ts";
import { INTERRUPTED } from "../output/error_text.ts";
import { withModelDefaults } from "../model/config_file.ts";
import { resolveModel } from "../model/model_path.ts";
import { openModel } from "../model/open_model.ts";
import { textOperands } from "../input/operands.ts";
import { constraintOptions } from "../options/constraint_options.ts";
import { BATCH_FLAGS } from "../options/flags.ts";
import {
  fileOptions,
  generationOptions,
  loadOptions,
  namedSources,
} from "../options/library_options.ts";
import { OPTIONS, type Options } from "../options/options.ts";
import { longFlag } from "../options/types.ts";
import { checkWritable, replaceFile, writeNotes, writeStdout } from "../output/streams.ts";
import { Progress } from "../output/progress.ts";
import { describeProfile } from "../output/profile_report.ts";
import {
  type AnswerDisplay,
  ProbabilityDisplay,
  TerminalDisplay,
  ThoughtDisplay,
} from "../output/answer_display.ts";
import { findThoughts, thinkingVariables, thoughtOptions } from "../output/thoughts.ts";
import { describeSession, describeSpeed } from "../output/run_report.ts";
import { isStdin, readTextFile, withoutFinalNewline } from "../input/text_source.ts";

type RunOptions =
  & Options<"prompt" | "file" | "promptCache" | "json" | "colour" | "profile" | "thinking">
  & BatchFlags;

export async function run(
  given: RunOptions,
  operands: readonly string[],
  context: Context,
): Promise<number> {
  const { prompt: text, file, batch } = given;
  const { model: name, text: operand } = textOperands(operands, {
    model: given.model,
    hasText: text !== undefined || file !== undefined || batch !== undefined,
    noun: "prompt",
    takesWords: false,
  });
  if (batch !== undefined) {
    checkNoPrompt(given, operand);
    const { runBatchFile } = await import("../batch/run_batch.ts");
    return await runBatchFile(batch, { ...given, model: name }, context);
  }
  checkNoBatchFlags(given);
  const options = withModelDefaults(given, name);
  const { logprobs, completions = 1, json } = options;
  if (logprobs !== undefined && !json) throw needsJson("--logprobs");
  if (completions > 1 && !json) throw needsJson("--completions");
  if (json && options.colour) {
    throw new ForgeError("usage", "--colour and --json exclude each other; --logprobs has numbers");
  }
  const signal = context.interruptSignal();
  const constraint = await constraintOptions(options, signal);
  const path = await resolveModel(name, signal);
  const files = await fileOptions(options, signal);
  const { promptCache } = options;
  const isSaved = promptCache !== undefined && isFile(promptCache);
  if (promptCache !== undefined && !isSaved) checkWritable(promptCache);
  if (options.profile) {
    checkWritable(options.profile, [path, options.file ?? [], namedSources(options)].flat());
  }
  const prompt = await readPrompt(options, operand, signal);

  using progress = new Progress();
  await using model = await openModel(
    path,
    // A config file may have replicas for the model, which one prompt has no use for.
    { ...loadOptions(options), ...files, dataParallel: undefined, parallel: completions },
    progress,
  );
  const generation = generationOptions(options, model.tokenizer);
  const asked: GenerateOptions = {
    ...generation,
    // Resolved here so that --verbose shows the values in use.
    ...model.resolveSampling(generation),
    ...constraint,
    ...thinkingVariables(model, options.thinking),
    raw: options.raw,
    system: options.system,
    logprobs,
    signal,
    onPrefill: (done, total) => progress.update("reading the prompt", done, total),
  };
  const thoughts = findThoughts(model, prompt, asked);
  const request = { ...asked, ...thoughtOptions(model, thoughts, options.thinking) };
  const styles = options.colour && !Deno.noColor
    ? new ProbabilityDisplay()
    : new ThoughtDisplay(thoughts, !Deno.noColor);
  const display = Deno.stdout.isTerminal()
    ? new TerminalDisplay(styles)
    : options.colour
    ? styles
    : undefined;
  if (context.verbose) await writeNotes(describeSession(model, prompt, request));
  if (isSaved) {
    progress.update(`loading ${promptCache}`);
    await model.loadPrompt(promptCache);
  }
  const profile = options.profile === undefined ? undefined : model.startProfile();
  progress.update("reading the prompt");
  const code = json
    ? await printCompletions(model, prompt, completions, request)
    : await streamText(model, prompt, request, display, progress, context.verbose);
  if (promptCache !== undefined && !isSaved && code === 0) {
    progress.update(`writing ${promptCache}`);
    await model.savePrompt(promptCache, prompt, request);
  }
  if (profile !== undefined) await reportProfile(profile, options.profile, model);
  return code;
}

/** Prints a profile, and writes its trace to a file unless the path is empty. */
async function reportProfile(profile: Profile, path = "", model: Model): Promise<void> {
  if (path !== "") await replaceFile(path, JSON.stringify(profile.trace()));
  await writeNotes(`\n${describeProfile(profile, model.readBandwidth())}`);
}

function needsJson(flag: string): ForgeError {
  return new ForgeError("usage", `${flag} needs --json`);
}

function checkNoPrompt(options: RunOptions, text: string | undefined): void {
  const single = (["colour", "profile", "thinking"] as const).find((name) =>
    options[name] !== undefined && options[name] !== false
  );
  if (single !== undefined) {
    throw new ForgeError("usage", `${longFlag(OPTIONS[single])} cannot be used with --batch`);
  }
  const given = (["prompt", "file", "promptCache"] as const).find((name) =>
    options[name] !== undefined
  );
  const flag = given === undefined ? text : longFlag(OPTIONS[given]);
  if (flag === undefined) return;
  throw new ForgeError(
    "usage",
    `${flag} cannot be used with --batch, whose lines have the prompts`,
  );
}

function checkNoBatchFlags(options: RunOptions): void {
  const given = BATCH_FLAGS.find((name) => options[name] !== undefined && options[name] !== false);
  if (given === undefined) return;
  throw new ForgeError("usage", `${longFlag(OPTIONS[given])} needs --batch FILE`);
}

/** Returns the prompt. @throws {ForgeError} `usage` if it is missing or given twice */
async function readPrompt(
  options: Pick<RunOptions, "prompt" | "file">,
  operand: string | undefined,
  signal: AbortSignal,
): Promise<string> {
  const { prompt, file } = options;
  const given = [prompt, file, operand].filter((source) => source !== undefined).length;
  if (given > 1) throw new ForgeError("usage", "give the prompt once: with -p, -f or an argument");
  if (prompt !== undefined) return prompt;
  if (operand !== undefined && operand !== "-") return operand;
  if (file !== undefined && !isStdin(file)) {
    return withoutFinalNewline(await readTextFile(file, signal));
  }
  if (operand === undefined && file === undefined && Deno.stdin.isTerminal()) {
    throw new ForgeError(
      "usage",
      "no prompt; give it with -p TEXT or -f FILE, or pipe it in; for a conversation, use forge chat",
    );
  }
  const text = withoutFinalNewline(await readTextFile("-", signal));
  if (text === "") {
    throw new ForgeError("usage", 'no prompt: stdin is empty; use -p "" for an empty prompt');
  }
  return text;
}

/** Prints one object: the completion, or a list of several completions. */
async function printCompletions(
  model: Model,
  prompt: string,
  n: number,
  request: GenerateOptions,
): Promise<number> {
  const completions = await model.completeMany(prompt, n, request);
  const [first, ...others] = completions.map(completionJson);
  const printed = others.length === 0 ? first : { completions: [first, ...others] };
  await writeStdout(`${JSON.stringify(printed)}\n`);
  const isCut = completions.some(({ finishReason }) => finishReason === "cancelled");
  return isCut ? INTERRUPTED : 0;
}

async function streamText(
  model: Model,
  prompt: string,
  request: GenerateOptions,
  display: AnswerDisplay | undefined,
  progress: Progress,
  verbose: boolean,
): Promise<number> {
  let end: GenerationEnd | undefined;
  let last = "";
  for await (const piece of model.generate(prompt, request)) {
    progress.clear();
    const text = display === undefined ? piece.text : display.show(piece);
    if (text !== "") {
      await writeStdout(text);
      last = text;
    }
    end = piece.end;
  }
  // On a terminal the shell's prompt needs a new line; a file gets exactly the text.
  if (Deno.stdout.isTerminal() && !last.endsWith("\n")) await writeStdout("\n");
  if (verbose && end !== undefined) {
    await writeNotes(describeSpeed(end, model.constraintCost));
  }
  return end?.finishReason === "cancelled" ? INTERRUPTED : 0;
}
