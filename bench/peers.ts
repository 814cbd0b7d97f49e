/** forge compared with llama.cpp and its forks: the same file, threads and prompts, in turns. */
import { join } from "@std/path";
import { summarizeModel } from "../src/bench/model_summary.ts";
import { Random } from "../src/bench/random.ts";
import { ForgeError } from "../src/errors.ts";
import { openCheckpoint } from "../src/formats/checkpoint.ts";
import {
  type BenchOptions,
  type BenchSubject,
  benchSubject,
  subjectPath,
} from "./bench_options.ts";
import { watchMachine } from "./busy.ts";
import { type Machine, measureLimits } from "./limits.ts";
import { installPeer } from "./peers/node_llama_cpp.ts";
import { type Comparison, describeComparison, describeMethod } from "./peers/report.ts";
import { FIRST_TOKEN, parseRoundTimes, type RoundResult, type RoundTask } from "./peers/round.ts";
import { root } from "./root.ts";

/** From here on, ids exist in synthetic and real vocabularies and are not special tokens. */
const FIRST_ID = 300;
const LAST_ID = 1000;

/** Tokens in the prompt of each of several sequences. */
const PARALLEL_PROMPT = 64;

/** The models of the README's table, and the depth measured for each. */
const TABLE: readonly { readonly synthetic: string; readonly nDepth: number }[] = [
  { synthetic: "llama-3.2-1b:Q4_0", nDepth: 4096 },
  { synthetic: "llama-3.2-1b:Q8_0", nDepth: 0 },
  { synthetic: "llama-3.2-1b:Q4_K", nDepth: 0 },
  { synthetic: "llama-3.2-1b:Q6_K", nDepth: 0 },
  { synthetic: "llama-3.2-1b:F16", nDepth: 0 },
  { synthetic: "llama-3.2-1b:BF16", nDepth: 0 },
  { synthetic: "smollm2-135m:Q4_0", nDepth: 0 },
  { synthetic: "smollm2-135m:Q8_0", nDepth: 0 },
  { synthetic: "smollm2-135m:F16", nDepth: 0 },
  { synthetic: "smollm2-135m:BF16", nDepth: 0 },
];

/** The settings of the table, which takes less than 30 minutes on two cores. */
const TABLE_SETTINGS = { nPrompt: 512, nGen: 65, nParallel: 8, rounds: 3 } as const;

/** A program to measure. */
interface Contender {
  readonly name: string;
  readonly command: readonly string[];
  readonly rounds: RoundResult[];
}

/**
 * Prints the comparison and adds it to `bench/results/`, a model at a time. Prints the reason if
 * llama.cpp is not available.
 *
 * @throws {ForgeError} `usage` for a model that is not a GGUF file; `device` on a busy machine,
 * unless `busy` is set.
 */
export async function benchPeers(options: BenchOptions, machine: Machine): Promise<void> {
  if (options.nGen < 2) throw new ForgeError("usage", "peers decodes at least 2 tokens: -n 2");
  const peer = await peerModule(options.device);
  if (peer === undefined) return;
  const limits = machine.limits ??
    (options.table ? await measureLimits(options.threads) : undefined);
  const rows = options.table
    ? TABLE.map((row) => ({ ...options, ...TABLE_SETTINGS, ...row, model: undefined }))
    : [options];
  for (const [i, row] of rows.entries()) {
    using subject = benchSubject(row);
    const comparison = describeComparison(await compare(subject, row, peer));
    publish(i === 0 ? `${describeMethod(limits)}\n${comparison}` : comparison);
  }
}

/** Prints a part of the results and appends it to the file of the day. */
function publish(text: string): void {
  console.log(text);
  const results = join(root, "bench", "results");
  Deno.mkdirSync(results, { recursive: true });
  const path = join(results, `${new Date().toISOString().slice(0, 10)}-peers.md`);
  Deno.writeTextFileSync(path, `${text}\n`, { append: true });
}

/** Returns the llama.cpp module for a device, or `undefined` if it cannot be installed. */
async function peerModule(device: string): Promise<string | undefined> {
  try {
    return await installPeer(device);
  } catch (error) {
    if (!(error instanceof ForgeError)) throw error;
    console.log(`skipping peers: ${error.message}`);
    return undefined;
  }
}

async function compare(
  subject: BenchSubject,
  options: BenchOptions,
  peer: string,
): Promise<Comparison> {
  const model = subjectPath(subject);
  const checkpoint = openCheckpoint(model);
  if (checkpoint.kind !== "gguf") {
    throw new ForgeError("usage", "peers needs a GGUF file (-m FILE.gguf), or --synthetic NAME");
  }
  const { text, isBusy } = await watchMachine();
  if (isBusy && !options.busy) {
    throw new ForgeError(
      "device",
      `${text}, which slows programs unequally: measure when it is quiet, or give --busy`,
    );
  }
  const { decodeBytes } = summarizeModel(checkpoint, [...checkpoint.tensors.values()]);
  const task = roundTask(await Deno.realPath(model), decodeBytes, options);
  const [forge, ...peers] = contenders(peer, options.llamaBench);
  for (let round = 0; round < options.rounds; round++) {
    for (const contender of [forge, ...peers]) {
      contender.rounds.push(await runRound(contender, task));
    }
  }
  const warning = isBusy ? ": THE MACHINE WAS BUSY, measure again" : "";
  return {
    model: subject.name,
    task,
    contenders: [forge, ...peers],
    machine: `before it, ${text}${warning}`,
  };
}

function roundTask(model: string, decodeBytes: number, options: BenchOptions): RoundTask {
  const { device, threads, nPrompt, nGen, nParallel, nDepth } = options;
  const random = new Random(1);
  const count = nDepth + Math.max(nPrompt, PARALLEL_PROMPT + nParallel);
  return {
    model,
    decodeBytes,
    device,
    threads,
    tokens: Array.from({ length: count }, () => FIRST_ID + random.below(LAST_ID - FIRST_ID)),
    nPrompt,
    nGen,
    nParallel,
    nParallelPrompt: PARALLEL_PROMPT,
    nDepth,
  };
}

function contenders(
  peer: string,
  llamaBench: string | undefined,
): [forge: Contender, ...peers: Contender[]] {
  const deno = [Deno.execPath(), "run", "--quiet", "--allow-all"];
  const folder = join(root, "bench", "peers");
  const contender = (name: string, ...command: string[]) => ({ name, command, rounds: [] });
  const forge = contender("forge", ...deno, join(folder, "forge_round.ts"));
  const peers = [contender("llama.cpp", "node", join(folder, "llama_cpp_round.mjs"), peer)];
  if (llamaBench !== undefined) {
    const [name = "", command = ""] = llamaBench.split(/=(.*)/s);
    const round = join(folder, "llama_bench_round.ts");
    peers.push(contender(name, ...deno, round, ...command.split(" ")));
  }
  return [forge, ...peers];
}

async function runRound({ name, command }: Contender, task: RoundTask): Promise<RoundResult> {
  const [program = "", ...args] = command;
  const start = performance.now();
  const process = new Deno.Command(program, {
    args,
    cwd: root,
    stdin: "piped",
    stdout: "piped",
    stderr: "piped",
  }).spawn();
  const writer = process.stdin.getWriter();
  await writer.write(new TextEncoder().encode(JSON.stringify(task)));
  await writer.close();
  const errors = new Response(process.stderr).text();
  let output = "";
  let first_token_ms = 0;
  for await (const part of process.stdout.pipeThrough(new TextDecoderStream())) {
    output += part;
    if (first_token_ms === 0 && output.includes(FIRST_TOKEN)) {
      first_token_ms = performance.now() - start;
    }
  }
  const { success } = await process.status;
  if (!success) throw new ForgeError("device", `${name} failed: ${(await errors).trim()}`);
  const times = parseRoundTimes(output.trimEnd().split("\n").at(-1) ?? "");
  return first_token_ms === 0 ? times : { ...times, first_token_ms };
}
