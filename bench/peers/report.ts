/** The comparison as Markdown. */
import { median } from "../../src/bench/statistics.ts";
import { plural } from "../../src/cli/format.ts";
import { describeLimits, type Limits } from "../limits.ts";
import { PEER_VERSION } from "./node_llama_cpp.ts";
import type { RoundResult, RoundTask } from "./round.ts";

/** A program that was measured. */
export interface Measured {
  readonly name: string;
  readonly rounds: readonly RoundResult[];
}

/** What was measured of one model. */
export interface Comparison {
  readonly model: string;
  readonly task: RoundTask;
  /** Bytes of weights that a decoded token reads. */
  readonly decodeBytes: number;
  /** forge first, then what it is compared with. */
  readonly contenders: readonly [forge: Measured, peer: Measured];
  /** What else the machine did before it was measured. */
  readonly machine: string;
}

/** One quantity: of a round, and how it is written. */
interface Quantity {
  readonly title: string;
  readonly of: (result: RoundResult) => number | undefined;
  readonly text: (value: number) => string;
  /** Whether more is worse. */
  readonly isCost?: boolean;
}

function quantities({ nPrompt, nGen, nParallel, nDepth }: RoundTask): Quantity[] {
  const rate = (tokens: number, ms: number | undefined) => ms && tokens / ms * 1e3;
  const speed = (value: number) => value.toFixed(1);
  return [
    {
      title: `prefill ${nPrompt}`,
      of: ({ prefill_ms }) => rate(nPrompt, prefill_ms),
      text: speed,
    },
    { title: `decode ${nGen - 1}`, of: ({ decode_ms }) => rate(nGen - 1, decode_ms), text: speed },
    {
      title: `${nParallel} at once`,
      of: ({ parallel_ms }) => rate(nParallel * nGen, parallel_ms),
      text: speed,
    },
    {
      title: `prefill ${nPrompt} @ d${nDepth}`,
      of: ({ depth_prefill_ms }) => rate(nPrompt, depth_prefill_ms),
      text: speed,
    },
    {
      title: `decode @ d${nDepth}`,
      of: ({ depth_decode_ms }) => rate(nGen - 1, depth_decode_ms),
      text: speed,
    },
    {
      title: "first token",
      of: ({ first_token_ms }) => first_token_ms,
      text: (ms) => `${(ms / 1e3).toFixed(2)} s`,
      isCost: true,
    },
    {
      title: "peak memory",
      of: ({ peak_bytes }) => peak_bytes,
      text: (bytes) => `${(bytes / 1e9).toFixed(2)} GB`,
      isCost: true,
    },
  ];
}

/** A table for each model: a row for each program, and the ratio in forge's favour. */
export function describeComparison(comparison: Comparison, limits: Limits | undefined): string {
  const { model, task, contenders, decodeBytes, machine } = comparison;
  const [forge, peer] = contenders;
  const measured = quantities(task).filter(({ of }) =>
    contenders.every(({ rounds }) => rounds.every((round) => of(round) !== undefined))
  );
  const values = ({ rounds }: Measured, { of }: Quantity) => rounds.map((round) => of(round) ?? 0);
  const row = (measurement: Measured) => {
    const cells = measured.map((quantity) => spread(values(measurement, quantity), quantity.text));
    return tableRow([measurement.name, ...cells, weightsRead(measurement, comparison, limits)]);
  };
  const ratios = measured.map((quantity) => {
    const ratio = median(values(forge, quantity)) / median(values(peer, quantity));
    return `**${(quantity.isCost ? 1 / ratio : ratio).toFixed(2)}×**`;
  });
  return [
    `### ${model}, ${plural(task.threads, "thread")}`,
    "",
    tableRow(["tokens/s", ...measured.map(({ title }) => title), "weights read in decode"]),
    tableRow(Array.from({ length: measured.length + 2 }, () => "---")),
    row(forge),
    row(peer),
    tableRow(["better by", ...ratios, ""]),
    "",
    `${plural(forge.rounds.length, "round")}; weights of ${
      (decodeBytes / 1e6).toFixed(0)
    } MB a token; ${machine}.`,
    "",
  ].join("\n");
}

function weightsRead(
  { rounds }: Measured,
  { task, decodeBytes }: Comparison,
  limits: Limits | undefined,
): string {
  const rate = median(rounds.map(({ decode_ms }) => (task.nGen - 1) / decode_ms * 1e3));
  const read = rate * decodeBytes / 1e9;
  const share = limits && `, ${(read / limits.read_gb_s * 100).toFixed(0)}%`;
  return `${read.toFixed(1)} GB/s${share ?? ""}`;
}

/** What all tables have in common: the date, the limits, and how it was measured. */
export function describeMethod(limits: Limits | undefined): string {
  return [
    `## forge and llama.cpp, ${new Date().toISOString().slice(0, 16).replace("T", " ")} UTC`,
    "",
    ...(limits === undefined ? [] : [describeLimits(limits)]),
    "Medians (lowest–highest) of rounds in which the programs take turns, each a process of its own. " +
    "Both read the same file and the same token ids, on the processor alone, with the same number of " +
    "threads and an F16 KV cache; both choose greedily, and that choice is timed. Prefill and decode are " +
    'done twice and the second time is taken. "At once" is the decoding of several sequences together in ' +
    'one context, tokens of all of them. "@ d" is behind that many tokens in the cache. First token is from ' +
    "the start of the process to the choice after a prompt of 8 tokens, model and vocabulary loaded; peak " +
    "memory is what the process held resident by the end of the first decoding. llama.cpp is the " +
    `prebuilt library of node-llama-cpp ${PEER_VERSION}, with flash attention, driven through that ` +
    "package's native addon; its JavaScript API, which is slower, is not used for what is timed.",
    "",
  ].join("\n");
}

function tableRow(cells: readonly string[]): string {
  return `| ${cells.join(" | ")} |`;
}

/** `71.2 (70.1–71.9)` */
function spread(values: readonly number[], text: (value: number) => string): string {
  const middle = text(median(values));
  if (values.length === 1) return middle;
  return `${middle} (${text(Math.min(...values))}–${text(Math.max(...values))})`;
}
