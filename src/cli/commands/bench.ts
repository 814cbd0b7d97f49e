/** `forge bench`: measures the speed of prefill and decoding. */
import { type BenchModel, openBenchModel } from "../../bench/bench_model.ts";
import {
  BATCHED_PRINTERS,
  LINE_PRINTERS,
  PRINTERS,
  type RecordPrinter,
} from "../../bench/bench_output.ts";
import { benchRecord } from "../../bench/bench_record.ts";
import { measure, type Sample } from "../../bench/measure.ts";
import { drawPlot, parseResults, type PlotPoint, pointsOf } from "../../bench/plot.ts";
import { SyntheticModel } from "../../bench/synthetic/model.ts";
import { parseSyntheticSpec, type SyntheticSpec } from "../../bench/synthetic/spec.ts";
import {
  parallelWorkloads,
  type Workload,
  workloadLength,
  workloadName,
  workloads,
} from "../../bench/workload.ts";
import { openBackend } from "../../engine/load/open_backend.ts";
import { ForgeError } from "../../errors.ts";
import type { Checkpoint } from "../../formats/checkpoint.ts";
import { quote } from "../../formats/quote.ts";
import type { Context } from "../command.ts";
import { INTERRUPTED } from "../output/error_text.ts";
import { resolveModel } from "../model/model_path.ts";
import { ensureLibrary } from "../model/open_model.ts";
import type { Options } from "../options/options.ts";
import { readTextFile } from "../input/text_source.ts";
import { checkPicture, writePicture, writeStdout } from "../output/streams.ts";
import { columnsOf, wrap } from "../output/terminal_text.ts";
import { Progress } from "../output/progress.ts";
import { VERSION } from "../version.ts";

type BenchOptions = Options<
  | "benchModel"
  | "synthetic"
  | "device"
  | "benchThreads"
  | "quantize"
  | "kvType"
  | "attention"
  | "products"
  | "numa"
  | "nPrompt"
  | "nGen"
  | "pair"
  | "nDepth"
  | "nBatch"
  | "parallel"
  | "repetitions"
  | "benchOutput"
  | "plot"
  | "compare"
>;

const DEFAULT_REPETITIONS = 5;
const DEFAULT_PROMPT = 512;
const DEFAULT_GENERATION = 128;

/** Model to measure: a path, or a synthetic model to create. */
type Subject = string | SyntheticSpec;

export async function run(
  options: BenchOptions,
  _operands: readonly string[],
  context: Context,
): Promise<number> {
  const lists = {
    prompts: options.nPrompt ?? [DEFAULT_PROMPT],
    generations: options.nGen ?? [DEFAULT_GENERATION],
    pairs: (options.pair ?? []).map(parsePair),
    depths: options.nDepth ?? [0],
    batches: options.nBatch ?? [undefined],
  };
  const { parallel } = options;
  const tests = parallel === undefined ? workloads(lists) : parallelWorkloads(lists, parallel);
  if (tests.length === 0) {
    throw new ForgeError("usage", "nothing to measure: -p, -n and --pg are all 0");
  }
  const synthetic = (options.synthetic ?? []).map(parseSyntheticSpec);
  const signal = context.interruptSignal();
  const compared = await readCompared(options, signal);
  const isPlain = options.benchModel === undefined && synthetic.length === 0;
  const paths: string[] = [];
  for (const name of isPlain ? [undefined] : options.benchModel ?? []) {
    paths.push(await resolveModel(name, signal));
  }
  const bench = new Bench(options, tests, signal);
  const code = await bench.run([...paths, ...synthetic]);
  const points = [...bench.points, ...compared];
  if (options.plot !== undefined && points.length > 0) {
    await writePicture(options.plot, drawPlot(points), "forge bench");
  }
  return code;
}

/** Returns the points of earlier results, and checks that a picture can be written. */
async function readCompared(
  { plot, compare = [] }: Pick<BenchOptions, "plot" | "compare">,
  signal: AbortSignal,
): Promise<PlotPoint[]> {
  if (plot === undefined) {
    if (compare.length > 0) throw new ForgeError("usage", "--compare needs --plot FILE");
    return [];
  }
  checkPicture(plot);
  const lists: PlotPoint[][] = [];
  for (const path of compare) lists.push(parseResults(await readTextFile(path, signal), path));
  return lists.flat();
}

/** Parses `512,128`: the lengths of a prefill and of the decoding after it. */
function parsePair(text: string): readonly [number, number] {
  const [, prompt, generated] = /^(\d{1,9}),(\d{1,9})$/.exec(text) ?? [];
  if (prompt === undefined || generated === undefined) {
    throw new ForgeError(
      "usage",
      `--pg is ${quote(text)}; valid are two whole numbers, such as 512,128`,
    );
  }
  return [Number(prompt), Number(generated)];
}

/** One run of the command. */
class Bench {
  readonly #options: BenchOptions;
  readonly #tests: readonly Workload[];
  readonly #signal: AbortSignal;
  readonly #device: string;
  readonly #printer: RecordPrinter;
  #nPrinted = 0;
  /** Points of the records so far. */
  readonly points: PlotPoint[] = [];

  constructor(options: BenchOptions, tests: readonly Workload[], signal: AbortSignal) {
    this.#options = options;
    this.#tests = tests;
    this.#signal = signal;
    this.#device = options.device ?? "auto";
    const isBatched = options.parallel !== undefined;
    const { md, ...others } = isBatched ? BATCHED_PRINTERS : PRINTERS;
    const { benchOutput: format = "md" } = options;
    this.#printer = format === "md"
      ? fitting(
        md,
        isBatched ? LINE_PRINTERS.batched : LINE_PRINTERS.single,
        columnsOf(Deno.stdout),
      )
      : others[format];
  }

  /** Measures every model. Completed measurements are printed even if an error ends the run. */
  async run(subjects: readonly Subject[]): Promise<number> {
    using progress = new Progress();
    await ensureLibrary(this.#device, progress);
    let code = 0;
    try {
      for (const subject of subjects) await this.#measureModel(subject, progress);
    } catch (error) {
      const isCancelled = error instanceof ForgeError && error.code === "cancelled";
      if (!isCancelled) {
        if (this.#nPrinted > 0) await writeStdout(this.#printer.end());
        throw error;
      }
      code = INTERRUPTED;
    }
    progress.clear();
    if (this.#nPrinted === 0) await writeStdout(this.#printer.begin());
    await writeStdout(this.#printer.end());
    return code;
  }

  async #measureModel(subject: Subject, progress: Progress): Promise<void> {
    if (typeof subject === "string") return await this.#measureFile(subject, subject, progress);
    progress.update(`writing ${subject.name}`);
    using file = this.#synthesize(subject);
    await this.#measureFile(file.model, `synthetic ${subject.name}`, progress);
  }

  #synthesize(spec: SyntheticSpec): SyntheticModel {
    const device = openBackend(this.#device);
    try {
      return new SyntheticModel(spec, device);
    } finally {
      device.close();
    }
  }

  async #measureFile(
    source: string | Checkpoint,
    name: string,
    progress: Progress,
  ): Promise<void> {
    const contextLength = Math.max(...this.#tests.map(workloadLength));
    for (const threads of this.#options.benchThreads ?? [0]) {
      progress.update(`loading ${name}`);
      const { quantize, kvType, attention, products, numa } = this.#options;
      using model = await openBenchModel(source, {
        name,
        device: this.#device,
        threads,
        contextLength,
        maxSequences: Math.max(...this.#tests.map(({ nParallel = 1 }) => nParallel)),
        quantize,
        kvType,
        attention,
        products,
        numa,
        measuresLimits: true,
      });
      progress.clear();
      for (const test of this.#tests) await this.#measureTest(model, name, test, progress);
    }
  }

  /** Measures and prints one test; if interrupted, prints the samples so far. */
  async #measureTest(
    model: BenchModel,
    name: string,
    test: Workload,
    progress: Progress,
  ): Promise<void> {
    const repetitions = this.#options.repetitions ?? DEFAULT_REPETITIONS;
    const samples: Sample[] = [];
    progress.update(`${workloadName(test)}: warming up`);
    try {
      for await (const sample of measure(model.runner, test, repetitions, this.#signal)) {
        samples.push(sample);
        progress.update(workloadName(test), samples.length, repetitions);
      }
    } finally {
      if (samples.length > 0) await this.#print(model, name, test, samples, progress);
    }
  }

  async #print(
    model: BenchModel,
    name: string,
    test: Workload,
    samples: readonly Sample[],
    progress: Progress,
  ): Promise<void> {
    const session = { version: VERSION, time: new Date(), peakMemory: model.peakMemory() };
    const record = benchRecord(model, name, test, samples, session);
    progress.clear();
    this.points.push(...pointsOf({ ...record }));
    if (this.#nPrinted === 0) await writeStdout(this.#printer.begin());
    await writeStdout(this.#printer.record(record, this.#nPrinted++));
  }
}

/**
 * Returns the printer of a table, or on a terminal that is too narrow for it that of broken lines.
 *
 * @param columns of the terminal; `undefined` without one
 */
export function fitting(
  table: RecordPrinter,
  lines: RecordPrinter,
  columns: number | undefined,
): RecordPrinter {
  if (columns === undefined || table.begin().indexOf("\n") <= columns) return table;
  return {
    ...lines,
    record: (record, index) => {
      const broken = wrap(lines.record(record, index).trimEnd(), columns - 2);
      return `${broken.join("\n  ")}\n`;
    },
  };
}
