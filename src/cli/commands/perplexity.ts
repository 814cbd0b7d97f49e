/** `forge perplexity`: measures how well a model predicts a text. */
import { drawScores } from "../../bench/plot.ts";
import { ForgeError } from "../../errors.ts";
import { ImportanceMeter } from "../../engine/quantize/importance_meter.ts";
import { writeImportance } from "../../formats/gguf/importance.ts";
import { type LoadOptions, openCheckpoint, type Tokenizer } from "../../mod.ts";
import type { Context } from "../command.ts";
import { formatRows, plural } from "../output/format.ts";
import { withModelDefaults } from "../model/config_file.ts";
import { resolveModel } from "../model/model_path.ts";
import { ensureLibrary, openModel } from "../model/open_model.ts";
import { loadOptions } from "../options/library_options.ts";
import type { Options } from "../options/options.ts";
import {
  checkPicture,
  checkWritable,
  writeNotes,
  writePicture,
  writeStdout,
} from "../output/streams.ts";
import { Progress } from "../output/progress.ts";
import { describeDevice } from "../output/run_report.ts";
import { readTextFile } from "../input/text_source.ts";

const DEFAULT_WINDOW = 512;

type PerplexityOptions = Options<
  | "text"
  | "model"
  | "device"
  | "threads"
  | "windowSize"
  | "quantize"
  | "kvType"
  | "kvMemory"
  | "memory"
  | "attention"
  | "products"
  | "numa"
  | "lora"
  | "importanceOutput"
  | "json"
  | "plot"
>;

export async function run(
  options: PerplexityOptions,
  _operands: readonly string[],
  context: Context,
): Promise<number> {
  if (options.text === undefined) {
    throw new ForgeError("usage", "no text; give it with -f FILE");
  }
  if (options.plot !== undefined) checkPicture(options.plot, [options.text]);
  if (options.importanceOutput !== undefined && options.lora !== undefined) {
    throw new ForgeError(
      "usage",
      "--imatrix measures the model without adapters; leave --lora out",
    );
  }
  const signal = context.interruptSignal();
  const path = await resolveModel(options.model, signal);
  const text = await readTextFile(options.text, signal);

  using progress = new Progress();
  const defaults = withModelDefaults(options, options.model);
  if (options.importanceOutput !== undefined) {
    checkWritable(options.importanceOutput, [options.text, path, ...openCheckpoint(path).files]);
  }
  const settings = loadOptions({ ...defaults, ctx: options.windowSize });
  using meter = options.importanceOutput === undefined
    ? undefined
    : await openMeter(path, settings, progress);
  await using loaded = meter === undefined
    ? await openModel(path, { ...settings, parallel: 1 }, progress)
    : undefined;
  const model = (meter ?? loaded)!;
  if (context.verbose && loaded) {
    await writeNotes(formatRows(describeDevice(loaded), Deno.stderr));
  }
  const windowSize = Math.min(model.contextLength, options.windowSize ?? DEFAULT_WINDOW);
  const windows = cutWindows(text, model.tokenizer, windowSize);
  const scores: Float32Array[] = [];
  for (const [done, window] of windows.entries()) {
    progress.update("scoring windows", done, windows.length);
    scores.push(await model.score(window, signal));
  }
  progress.clear();
  const summary = summarize(scores.flatMap((of) => [...of]));
  if (meter !== undefined) {
    writeImportance(options.importanceOutput!, meter.importance(), {
      dataset: options.text,
      chunks: windows.length,
      chunkTokens: windowSize,
    });
  }
  const result = { ...summary, windows: windows.length, window_size: windowSize };
  if (options.plot !== undefined) {
    await writePicture(options.plot, drawScores(scores), "forge perplexity");
  }
  await writeStdout(options.json ? `${JSON.stringify(result)}\n` : describe(result));
  return 0;
}

/** Opens a model that measures importances as it scores. */
async function openMeter(
  path: string,
  settings: LoadOptions,
  progress: Progress,
): Promise<ImportanceMeter> {
  await ensureLibrary(settings.device ?? "auto", progress);
  const { contextLength = DEFAULT_WINDOW } = settings;
  return await ImportanceMeter.open(path, { ...settings, contextLength });
}

/**
 * Cuts the tokens of a text into windows of at most `size` tokens that do not overlap. Each begins
 * with BOS if the model uses it. A window without tokens to score is left out.
 *
 * @throws {ForgeError} `bad_input` if there is no token to score
 */
function cutWindows(text: string, tokenizer: Tokenizer, size: number): Int32Array[] {
  const tokens = tokenizer.encode(text, { addSpecial: false, parseSpecial: false });
  const bos = tokenizer.addBos && tokenizer.bosId !== undefined ? [tokenizer.bosId] : [];
  const step = size - bos.length;
  const windows: Int32Array[] = [];
  for (let start = 0; start < tokens.length; start += step) {
    const window = Int32Array.from([...bos, ...tokens.subarray(start, start + step)]);
    if (window.length > 1) windows.push(window);
  }
  if (windows.length === 0) {
    throw new ForgeError(
      "bad_input",
      `the text has ${plural(tokens.length, "token")}, too few to score`,
    );
  }
  return windows;
}

/** Mean negative log-likelihood and perplexity, with the keys of `--json`. */
export interface Likelihood {
  readonly perplexity: number;
  /** By the delta method. */
  readonly perplexity_error: number;
  /** In nats per token. */
  readonly nll: number;
  /** Standard error of the mean; 0 for a single token. */
  readonly nll_error: number;
  readonly tokens: number;
}

/** @param scores natural log-probabilities, at least one */
function summarize(scores: readonly number[]): Likelihood {
  const n = scores.length;
  const nll = -scores.reduce((sum, score) => sum + score, 0) / n;
  const squares = scores.reduce((sum, score) => sum + (score + nll) ** 2, 0);
  const nll_error = n > 1 ? Math.sqrt(squares / (n - 1) / n) : 0;
  const perplexity = Math.exp(nll);
  return { perplexity, perplexity_error: perplexity * nll_error, nll, nll_error, tokens: n };
}

function describe(result: Likelihood & { windows: number; window_size: number }): string {
  const { perplexity, perplexity_error, nll, nll_error, tokens, windows, window_size } = result;
  return formatRows([
    ["perplexity", `${perplexity.toFixed(4)} ± ${perplexity_error.toFixed(4)}`],
    ["nll", `${nll.toFixed(5)} ± ${nll_error.toFixed(5)} nats per token`],
    ["scored", `${plural(tokens, "token")} in ${plural(windows, "window")} of ${window_size}`],
  ]);
}
