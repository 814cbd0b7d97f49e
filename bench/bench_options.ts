/** Command-line options of the benchmarks, and the model that they share. */
import { basename, resolve } from "@std/path";
import { parseArgs } from "node:util";
import { SyntheticModel } from "../src/bench/synthetic/model.ts";
import { parseSyntheticSpec } from "../src/bench/synthetic/spec.ts";
import { bundledModel } from "../src/cli/model/model_path.ts";
import { openBackend } from "../src/engine/load/open_backend.ts";
import { ForgeError } from "../src/errors.ts";
import type { Checkpoint } from "../src/formats/checkpoint.ts";

/** The settings of all benchmarks. */
export interface BenchOptions {
  readonly names: readonly string[];
  readonly model: string | undefined;
  readonly synthetic: string | undefined;
  readonly device: string;
  readonly threads: number;
  readonly rounds: number;
  readonly nPrompt: number;
  readonly nGen: number;
  /** Sequences that peers decodes at once; 0 to skip this test. */
  readonly nParallel: number;
  /** Tokens in the cache for another test of peers; 0 to skip this test. */
  readonly nDepth: number;
  /** True if peers measures the models of its table, with fixed settings. */
  readonly table: boolean;
  /** True if peers measures on a busy machine. */
  readonly busy: boolean;
  /**
   * Another program for peers: `NAME=COMMAND`, a `llama-bench` and its options, separated by
   * spaces.
   */
  readonly llamaBench: string | undefined;
  /** Text file for the tokenizer. */
  readonly file: string | undefined;
  /** Format of gpu-model's report. */
  readonly output: "text" | "json";
  /** Path of the picture that gpu-model draws. */
  readonly plot: string | undefined;
  /** True if gpu-model lists the kernels of each step. */
  readonly kernels: boolean;
}

export const OPTIONS_HELP = `Options:
  -m, --model MODEL             model folder or .gguf file (default: the bundled demo model)
      --synthetic SHAPE[:TYPE]  a model with random weights, as in forge bench
      --device NAME             as in forge bench; gpu-model: one GPU instead of all; peers: auto,
                                or the kernels of another processor, cpu:avx2 or cpu:avx2_vnni,
                                against llama.cpp's build for it
  -t, --threads N               threads that compute (default: one per core)
  -r, --rounds N                how often to measure (default: 5)
  -p, --n-prompt N              tokens of the prompt (default: 512)
  -n, --n-gen N                 tokens to decode (default: 128)
      --parallel N              peers: sequences to decode at once, 0 for none (default: 8)
  -d, --n-depth N               peers: tokens in the cache before another test (default: 0, none)
      --table                   peers: all models of the table in README; takes less than 25 minutes
      --busy                    peers: measure even on a busy machine
      --llama-bench NAME=COMMAND
                                peers: also run this llama-bench command, reported as NAME
  -f, --file FILE               text for the tokenizer (default: README.md)
  -o, --output FORMAT           gpu-model: text or json (default: text)
      --plot FILE.svg           gpu-model: draw the roofline
      --kernels                 gpu-model: list the kernels of each step
`;

/** @throws {ForgeError} `usage` */
export function parseBenchOptions(args: readonly string[]): BenchOptions {
  const { values, positionals } = parse(args);
  if (values.model !== undefined && values.synthetic !== undefined) {
    throw new ForgeError("usage", "give --model or --synthetic, not both");
  }
  return {
    names: positionals,
    model: values.model,
    synthetic: values.synthetic,
    device: values.device ?? "auto",
    threads: count("threads", values.threads) ?? navigator.hardwareConcurrency,
    rounds: count("rounds", values.rounds) ?? 5,
    nPrompt: count("n-prompt", values["n-prompt"]) ?? 512,
    nGen: count("n-gen", values["n-gen"]) ?? 128,
    nParallel: count("parallel", values.parallel, 0) ?? 8,
    nDepth: count("n-depth", values["n-depth"], 0) ?? 0,
    table: values.table ?? false,
    busy: values.busy ?? false,
    llamaBench: namedCommand(values["llama-bench"]),
    file: values.file,
    output: outputFormat(values.output),
    plot: values.plot,
    kernels: values.kernels ?? false,
  };
}

function parse(args: readonly string[]) {
  try {
    return parseArgs({
      args: [...args],
      allowPositionals: true,
      options: {
        model: { type: "string", short: "m" },
        synthetic: { type: "string" },
        device: { type: "string" },
        threads: { type: "string", short: "t" },
        rounds: { type: "string", short: "r" },
        "n-prompt": { type: "string", short: "p" },
        "n-gen": { type: "string", short: "n" },
        parallel: { type: "string" },
        "n-depth": { type: "string", short: "d" },
        table: { type: "boolean" },
        busy: { type: "boolean" },
        "llama-bench": { type: "string" },
        file: { type: "string", short: "f" },
        output: { type: "string", short: "o" },
        plot: { type: "string" },
        kernels: { type: "boolean" },
      },
    });
  } catch (error) {
    if (!(error instanceof TypeError)) throw error;
    throw new ForgeError("usage", error.message, { cause: error });
  }
}

function count(name: string, text: string | undefined, min = 1): number | undefined {
  if (text === undefined) return undefined;
  if (/^\d{1,6}$/.test(text) && Number(text) >= min) return Number(text);
  const valid = `valid is a whole number from ${min} to 999999`;
  throw new ForgeError("usage", `--${name} is "${text}"; ${valid}`);
}

function outputFormat(text = "text"): "text" | "json" {
  if (text === "text" || text === "json") return text;
  throw new ForgeError("usage", `--output is "${text}"; valid are text, json`);
}

function namedCommand(text: string | undefined): string | undefined {
  if (text === undefined || /^[^=]+=[^ ]/.test(text)) return text;
  const valid = 'valid is NAME=COMMAND, such as "mine=bin/llama-bench -mmp 0"';
  throw new ForgeError("usage", `--llama-bench is "${text}"; ${valid}`);
}

/** The model of a benchmark; a synthetic one is deleted at the end. */
export interface BenchSubject extends Disposable {
  readonly name: string;
  /** A path, or a checkpoint if it is not a file that other programs can open. */
  readonly model: string | Checkpoint;
}

/** The model that the options name. @throws {ForgeError} like `forge bench` */
export function benchSubject({ model, synthetic }: BenchOptions): BenchSubject {
  if (synthetic !== undefined) return syntheticSubject(synthetic);
  const path = resolve(model ?? bundledModel());
  return { name: basename(path), model: path, [Symbol.dispose]: () => {} };
}

/** A synthetic model, also deleted on Ctrl-C. @throws {ForgeError} like `forge bench` */
function syntheticSubject(synthetic: string): BenchSubject {
  const spec = parseSyntheticSpec(synthetic);
  const device = openBackend("cpu");
  try {
    const file = new SyntheticModel(spec, device);
    const interrupted = () => {
      file[Symbol.dispose]();
      Deno.exit(130);
    };
    Deno.addSignalListener("SIGINT", interrupted);
    return {
      name: `synthetic ${spec.name}`,
      model: file.model,
      [Symbol.dispose]: () => {
        Deno.removeSignalListener("SIGINT", interrupted);
        file[Symbol.dispose]();
      },
    };
  } finally {
    device.close();
  }
}

/** The path of a model, for other programs. @throws {ForgeError} `usage` if it has no path */
export function subjectPath({ name, model }: BenchSubject): string {
  if (typeof model === "string") return model;
  throw new ForgeError("usage", `${name} is not a file that other programs can open`);
}
