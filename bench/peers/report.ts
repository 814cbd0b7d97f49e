/** The comparison as Markdown. */
import { median } from "../../src/bench/statistics.ts";
import { plural } from "../../src/cli/output/format.ts";
import { describeLimits, type Limits } from "../limits.ts";
import { PEER_VERSION } from "./node_llama_cpp.ts";
import type { RoundResult, RoundTask } from "./round.ts";

/** The results of a program. */
export interface Measured {
  readonly name: string;
  readonly rounds: readonly RoundResult[];
}

/** The results for one model. */
export interface Comparison {
  readonly model: string;
  readonly task: RoundTask;
  /** forge first, then its peers. */
  readonly contenders: readonly [forge: Measured, ...peers: Measured[]];
  /** Load of the machine before the measurement. */
  readonly machine: string;
}

/** A measured quantity of a round and its format. */
interface Quantity {
  readonly title: string;
  readonly of: (result: RoundResult) => number | undefined;
  readonly text: (value: number) => string;
  /** True if smaller is better. */
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

/**
 * Formats a table for a model: a row per program, and a row of ratios in forge's favour per peer.
 */
export function describeComparison(comparison: Comparison): string {
  const { model, task, contenders, machine } = comparison;
  const [forge, ...peers] = contenders;
  const measured = quantities(task).filter(({ of }) =>
    forge.rounds.every((round) => of(round) !== undefined)
  );
  const row = (measurement: Measured) => {
    const cells = measured.map((quantity) => spread(values(measurement, quantity), quantity.text));
    return tableRow([measurement.name, ...cells, weightsRead(measurement, task)]);
  };
  const ratios = (peer: Measured) => {
    const cells = measured.map((quantity) => {
      const [ours, theirs] = [values(forge, quantity), values(peer, quantity)];
      if (theirs.length === 0) return "";
      const ratio = median(ours) / median(theirs);
      return `**${(quantity.isCost ? 1 / ratio : ratio).toFixed(2)}×**`;
    });
    return tableRow([`better than ${peer.name} by`, ...cells, ""]);
  };
  return [
    `### ${model}, ${plural(task.threads, "thread")}${
      task.device === "auto" ? "" : `, ${task.device} and its like`
    }`,
    "",
    tableRow(["tokens/s", ...measured.map(({ title }) => title), "weights read in decode"]),
    tableRow(Array.from({ length: measured.length + 2 }, () => "---")),
    ...contenders.map(row),
    ...peers.map(ratios),
    "",
    `${plural(forge.rounds.length, "round")}; weights of ${
      (task.decodeBytes / 1e6).toFixed(0)
    } MB a token; ${machine}.`,
    "",
  ].join("\n");
}

/** Returns the values of a quantity in the rounds that have it. */
function values({ rounds }: Measured, { of }: Quantity): number[] {
  return rounds.map(of).filter((value) => value !== undefined);
}

function weightsRead({ rounds }: Measured, { nGen, decodeBytes }: RoundTask): string {
  const rate = median(rounds.map(({ decode_ms }) => (nGen - 1) / decode_ms * 1e3));
  const read = `${(rate * decodeBytes / 1e9).toFixed(1)} GB/s`;
  const shares = rounds.map(({ read_share }) => read_share).filter((share) => share !== undefined);
  return shares.length === 0 ? read : `${read}, ${(median(shares) * 100).toFixed(0)}%`;
}

/** Describes the date, the limits and the method, which are the same for all tables. */
export function describeMethod(limits: Limits | undefined): string {
  return [
    `## forge and llama.cpp, ${new Date().toISOString().slice(0, 16).replace("T", " ")} UTC`,
    "",
    ...(limits === undefined ? [] : [describeLimits(limits)]),
    "Medians (lowest–highest) of rounds in which the programs alternate, each in its own process. All " +
    "programs read the same file and the same token ids on the CPU, with the same number of threads and " +
    "an F16 KV cache. They sample greedily; sampling is part of the time. Prefill and decode run twice; " +
    'the second run counts. "At once" is the decoding of several sequences together in one context, ' +
    'tokens of all of them. "@ d" is after that many tokens in the cache. First token is the time from ' +
    "the start of the process to the first token after a prompt of 8 tokens, including loading of model " +
    "and vocabulary. Peak memory is the resident memory by the end of the first decoding. The share of " +
    "weights read is relative to the bandwidth of the same threads right before and after another " +
    "decoding of the round. llama.cpp is the " +
    `prebuilt library of node-llama-cpp ${PEER_VERSION}, with flash attention, driven through that ` +
    "package's native addon; its slower JavaScript API is not used in timed code.",
    "",
  ].join("\n");
}

function tableRow(cells: readonly string[]): string {
  return `| ${cells.join(" | ")} |`;
}

/** `71.2 (70.1–71.9)` */
function spread(values: readonly number[], text: (value: number) => string): string {
  if (values.length === 0) return "";
  const middle = text(median(values));
  if (values.length === 1) return middle;
  return `${middle} (${text(Math.min(...values))}–${text(Math.max(...values))})`;
}
