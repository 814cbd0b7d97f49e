/** forge against llama.cpp: the same file, threads and prompt, in turns. */
import { join } from "@std/path";
import { openCheckpoint } from "../src/formats/checkpoint.ts";
import { summarizeModel } from "../src/bench/model_summary.ts";
import { Random } from "../src/bench/random.ts";
import { median } from "../src/bench/statistics.ts";
import { plural } from "../src/cli/format.ts";
import { ForgeError } from "../src/errors.ts";
import { type BenchOptions, benchSubject, subjectPath } from "./bench_options.ts";
import { describeLimits, type Machine, readShare } from "./limits.ts";
import { installPeer, PEER_VERSION } from "./peers/node_llama_cpp.ts";
import { parseRoundResult, type RoundResult, type RoundTask } from "./peers/round.ts";
import { root } from "./root.ts";

/** Ids that synthetic and real vocabularies have, and that are no special tokens of theirs. */
const FIRST_ID = 300;
const LAST_ID = 1000;

/** The load average up to which a machine counts as idle. */
const IDLE_LOAD = 0.3;

/** A program that is measured. */
interface Contender {
  readonly name: string;
  readonly command: readonly string[];
  readonly rounds: RoundResult[];
}

/**
 * Prints the comparison and adds it to `bench/results/`; where llama.cpp cannot be had, says why and
 * does nothing.
 */
export async function benchPeers(options: BenchOptions, machine: Machine): Promise<void> {
  if (options.nGen < 2) throw new ForgeError("usage", "peers decodes at least 2 tokens: -n 2");
  const peer = await peerModule();
  if (peer === undefined) return;
  using subject = benchSubject(options);
  const model = subjectPath(subject);
  const checkpoint = openCheckpoint(model);
  if (checkpoint.kind !== "gguf") {
    throw new ForgeError("usage", "peers needs a GGUF file (-m FILE.gguf), or --synthetic SHAPE");
  }
  const { decodeBytes } = summarizeModel(checkpoint, [...checkpoint.tensors.values()]);
  const deno = [Deno.execPath(), "run", "--quiet", "--allow-all"];
  const folder = join(root, "bench", "peers");
  const contenders: readonly Contender[] = [
    { name: "forge", command: [...deno, join(folder, "forge_round.ts")], rounds: [] },
    { name: "llama.cpp", command: ["node", join(folder, "llama_cpp_round.mjs"), peer], rounds: [] },
  ];
  const random = new Random(1);
  const task: RoundTask = {
    model: await Deno.realPath(model),
    threads: options.threads,
    prompt: Array.from(
      { length: options.nPrompt },
      () => FIRST_ID + random.below(LAST_ID - FIRST_ID),
    ),
    nGen: options.nGen,
  };
  for (let round = 0; round < options.rounds; round++) {
    for (const contender of contenders) contender.rounds.push(await runRound(contender, task));
  }
  const report = describeComparison(subject.name, task, contenders, decodeBytes, machine);
  console.log(report);
  const results = join(root, "bench", "results");
  Deno.mkdirSync(results, { recursive: true });
  const path = join(results, `${new Date().toISOString().slice(0, 10)}-peers.md`);
  Deno.writeTextFileSync(path, `${report}\n`, { append: true });
  console.log(`added to ${path}`);
}

/** The module of llama.cpp, or `undefined` where it cannot be installed. */
async function peerModule(): Promise<string | undefined> {
  try {
    return await installPeer();
  } catch (error) {
    if (!(error instanceof ForgeError)) throw error;
    console.log(`skipping peers: ${error.message}`);
    return undefined;
  }
}

async function runRound({ name, command }: Contender, task: RoundTask): Promise<RoundResult> {
  const [program = "", ...args] = command;
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
  const { success, stdout, stderr } = await process.output();
  const decoder = new TextDecoder();
  if (!success) throw new ForgeError("device", `${name} failed: ${decoder.decode(stderr).trim()}`);
  return parseRoundResult(decoder.decode(stdout));
}

/** The comparison as Markdown. */
function describeComparison(
  model: string,
  { threads, prompt, nGen }: RoundTask,
  contenders: readonly Contender[],
  decodeBytes: number,
  { limits, load }: Machine,
): string {
  const speeds = contenders.map(({ name, rounds }) => ({
    name,
    prefill: rounds.map(({ prefill_ms }) => prompt.length / prefill_ms * 1e3),
    decode: rounds.map(({ decode_ms }) => (nGen - 1) / decode_ms * 1e3),
  }));
  const base = speeds.at(-1)!;
  const rows = speeds.map(({ name, prefill, decode }) => {
    const read = median(decode) * decodeBytes / 1e9;
    const cells = [
      spread(prefill),
      ratio(prefill, base.prefill),
      spread(decode),
      ratio(decode, base.decode),
      `${read.toFixed(2)}${readShare(read, limits)}`,
    ];
    return `| ${name} | ${cells.join(" | ")} |`;
  });
  return [
    `## ${model}, ${plural(threads, "thread")}`,
    "",
    ...(limits === undefined ? [] : [describeLimits(limits)]),
    `| tokens/s | prefill ${prompt.length} | ratio | decode ${nGen - 1} | ratio | weights GB/s |`,
    "|---|---|---|---|---|---|",
    ...rows,
    "",
    `Medians (lowest–highest) of ${
      contenders[0]!.rounds.length
    } rounds, the programs taking turns, ` +
    "each round a process of its own that does the work twice and times the second. Both read the " +
    "same file and the same prompt, on the processor alone, with an F16 KV cache; both choose " +
    "greedily, and that choice is timed. Decoding goes on behind the prompt. llama.cpp is the " +
    `prebuilt library of node-llama-cpp ${PEER_VERSION}, driven through that package: its JavaScript ` +
    "is part of the time, as forge's is of forge's.",
    "",
    `The load average was ${load.toFixed(2)} before anything ran${
      load > IDLE_LOAD
        ? ": THE MACHINE WAS BUSY, which slows programs unequally; measure again"
        : ""
    }.`,
    "",
  ].join("\n");
}

/** `71.2 (70.1–71.9)` */
function spread(values: readonly number[]): string {
  const [low, high] = [Math.min(...values), Math.max(...values)];
  return `${median(values).toFixed(1)} (${low.toFixed(1)}–${high.toFixed(1)})`;
}

function ratio(values: readonly number[], base: readonly number[]): string {
  return `${(median(values) / median(base)).toFixed(2)}×`;
}
