/**
 * Pictures: tokens per second of benchmark records over depth, batch or length of the prompt, and
 * the loss over a text.
 */
import { drawChart, type Panel } from "./chart.ts";
import { ForgeError } from "../errors.ts";
import { isJsonObject, type JsonValue } from "../formats/json.ts";
import { quote } from "../formats/quote.ts";

/** A point of a picture. */
export interface PlotPoint {
  /** Model, backend and, for a record of a file, its name. */
  readonly series: string;
  readonly phase: "prefill" | "decode";
  /** Sizes of the workload, of which one is the axis. */
  readonly parallel: number;
  readonly depth: number;
  readonly prompt: number;
  /** Tokens per second, of all sequences. */
  readonly rate: number;
}

/**
 * Reads the points of a record of `forge bench` or llama-bench.
 *
 * @param source name of the record's file; `undefined` for one of this run
 * @throws {ForgeError} `bad_input` for an object that is no record
 */
export function pointsOf(record: Readonly<Record<string, unknown>>, source?: string): PlotPoint[] {
  const number = (name: string, otherwise?: number): number => {
    const value = record[name] ?? otherwise;
    if (typeof value === "number" && Number.isFinite(value)) return value;
    const where = source === undefined ? "" : ` in ${quote(source)}`;
    throw new ForgeError(
      "bad_input",
      `${name} of a record${where} is ${
        JSON.stringify(value) ?? "missing"
      }; valid is a number, as ` +
        "in the output of forge bench -o json",
    );
  };
  const [prompt, generated] = [number("n_prompt"), number("n_gen")];
  const [depth, parallel] = [number("n_depth", 0), number("n_parallel", 1)];
  const names = [record.model_type, record.backends, source].filter((part) => part !== undefined);
  const sizes = { series: names.join(", "), depth, parallel, prompt };
  const rate = number("avg_ts");
  if (generated === 0) return [{ ...sizes, phase: "prefill", rate }];
  if (prompt === 0) return [{ ...sizes, phase: "decode", rate }];
  // Both phases together: their own times are forge's.
  const [prefill, decode] = [number("avg_prefill_ns", 0), number("avg_decode_ns", 0)];
  const of = (tokens: number, ns: number) => 1e9 * tokens * parallel / ns;
  return [
    ...(prefill > 0 ? [{ ...sizes, phase: "prefill", rate: of(prompt, prefill) } as const] : []),
    ...(decode > 0 ? [{ ...sizes, phase: "decode", rate: of(generated, decode) } as const] : []),
  ];
}

/**
 * Reads a file of results: a JSON list, or an object on each line.
 *
 * @throws {ForgeError} `bad_input` if it is neither
 */
export function parseResults(text: string, name: string): PlotPoint[] {
  let records: JsonValue;
  try {
    records = text.trimStart().startsWith("[")
      ? JSON.parse(text)
      : text.split("\n").filter((line) => line.trim() !== "").map((line) => JSON.parse(line));
  } catch (error) {
    throw new ForgeError(
      "bad_input",
      `${quote(name)} has no results; valid is the output of forge bench -o json or jsonl`,
      { cause: error },
    );
  }
  return (records as JsonValue[]).flatMap((record) =>
    pointsOf(isJsonObject(record) ? record : {}, name)
  );
}

const AXES = { parallel: "sequences at once", depth: "tokens before", prompt: "prompt tokens" };
type Axis = keyof typeof AXES;

/**
 * Draws a panel for each phase with a line for each series, as SVG. The axis is the size that has
 * the most different values: sequences, depth, or the length of the prompt.
 *
 * @throws {ForgeError} `bad_input` without points
 */
export function drawPlot(points: readonly PlotPoint[]): string {
  if (points.length === 0) throw new ForgeError("bad_input", "there are no results to draw");
  const names = [...new Set(points.map(({ series }) => series))];
  const panels = (["prefill", "decode"] as const).flatMap((phase): Panel[] => {
    const own = points.filter((point) => point.phase === phase);
    if (own.length === 0) return [];
    const axis = axisOf(own);
    return [{
      title: `${phase === "prefill" ? "Prefill" : "Decoding"}, tokens/s`,
      axis: AXES[axis],
      // Sizes are mostly powers of two: each has the same distance to the next.
      isOrdinal: true,
      series: names.map((name) => ({
        name,
        unit: "tokens/s",
        points: own.filter(({ series }) => series === name)
          .map((point) => [point[axis], point.rate]),
      })),
    }];
  });
  return drawChart(panels);
}

function axisOf(points: readonly PlotPoint[]): Axis {
  const count = (axis: Axis) => new Set(points.map((point) => point[axis])).size;
  const axes = Object.keys(AXES) as Axis[];
  return axes.reduce((best, axis) => count(axis) > count(best) ? axis : best);
}

/** Most points of the line over positions. */
const BINS = 64;

/**
 * Draws the perplexity of each window and of all so far, and the mean loss by the position in a
 * window: how much context helps.
 *
 * @param scores natural log-probabilities of each window
 */
export function drawScores(scores: readonly Float32Array[]): string {
  const windows: [number, number][] = [], soFar: [number, number][] = [];
  let tokens = 0, loss = 0;
  for (const of of scores) {
    const own = of.reduce((sum, score) => sum - score, 0);
    tokens += of.length;
    loss += own;
    windows.push([tokens, Math.exp(own / of.length)]);
    soFar.push([tokens, Math.exp(loss / tokens)]);
  }
  const longest = Math.max(...scores.map(({ length }) => length));
  const size = Math.ceil(longest / BINS);
  const positions = Array.from({ length: Math.ceil(longest / size) }, (_, bin) => {
    const own = scores.flatMap((of) => [...of.subarray(bin * size, (bin + 1) * size)]);
    const mean = -own.reduce((sum, score) => sum + score, 0) / own.length;
    return [Math.min(longest, (bin + 1) * size), mean] as const;
  });
  return drawChart([
    {
      title: "Perplexity",
      axis: "tokens scored",
      isOrdinal: false,
      series: [
        { name: "each window", unit: "perplexity", points: windows },
        { name: "all windows so far", unit: "perplexity", points: soFar },
      ],
    },
    {
      title: "Loss, nats per token",
      axis: "position in the window",
      isOrdinal: false,
      series: [{ name: "mean by position, of all windows", unit: "nats", points: positions }],
    },
  ]);
}
