/** What the benchmarks are given on the command line, and the model they share. */
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
  /** Sequences that peers decodes at once; 0 for no such test. */
  readonly nParallel: number;
  /** Tokens in the cache before another test of peers; 0 for no such test. */
  readonly nDepth: number;
  /** Whether peers measures the models of its table, with settings of its own. */
  readonly table: boolean;
  /** Whether peers measures on a machine that others keep busy. */
  readonly busy: boolean;
  /** Another program for peers: `NAME=COMMAND`, a `llama-bench` with its options, apart by spaces. */
  readonly llamaBench: string | undefined;
  /** A text for the tokenizer. */
  readonly file: string | undefined;
}

export const OPTIONS_HELP = `Options:
  -m, --model MODEL             model folder or .gguf file (default: the bundled demo model)
      --synthetic SHAPE[:TYPE]  a model with random weights, as of forge bench
      --device NAME             as of forge bench; peers: auto, or the kernels of another processor,
                                cpu:avx2 or cpu:avx2_vnni, beside llama.cpp's build for such a one
  -t, --threads N               threads that compute (default: one a core)
  -r, --rounds N                how often to measure (default: 5)
  -p, --n-prompt N              tokens of the prompt (default: 512)
  -n, --n-gen N                 tokens to decode (default: 128)
      --parallel N              peers: sequences to decode at once, 0 for none (default: 8)
  -d, --n-depth N               peers: tokens in the cache before another test (default: 0, none)
      --table                   peers: all models of the table in README; takes less than 25 minutes
      --busy                    peers: measure although others keep the machine busy
      --llama-bench NAME=COMMAND
                                peers: also this llama-bench with its options, under that name
  -f, --file FILE               text for the tokenizer (default: README.md)
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

function namedCommand(text: string | undefined): string | undefined {
  if (text === undefined || /^[^=]+=[^ ]/.test(text)) return text;
  const valid = 'valid is NAME=COMMAND, such as "mine=bin/llama-bench -mmp 0"';
  throw new ForgeError("usage", `--llama-bench is "${text}"; ${valid}`);
}

/** A model for the length of a benchmark; a synthetic one is removed at the end. */
export interface BenchSubject extends Disposable {
  readonly name: string;
  /** A path, or a checkpoint where it is no file that programs can open. */
  readonly model: string | Checkpoint;
}

/** The model that the options name. @throws {ForgeError} as `forge bench` */
export function benchSubject({ model, synthetic }: BenchOptions): BenchSubject {
  if (synthetic !== undefined) return syntheticSubject(synthetic);
  const path = resolve(model ?? bundledModel());
  return { name: basename(path), model: path, [Symbol.dispose]: () => {} };
}

/** A synthetic model, which Ctrl-C removes as well. @throws {ForgeError} as `forge bench` */
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

/** The path of a model, for what other programs open. @throws {ForgeError} `usage` without one */
export function subjectPath({ name, model }: BenchSubject): string {
  if (typeof model === "string") return model;
  throw new ForgeError("usage", `${name} is no file that other programs could open`);
}
