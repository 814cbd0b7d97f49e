/** Pictures of benchmark records: tokens per second over depth, batch or length of the prompt. */
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

/** Size of a panel and of the margins, in pixels. */
const WIDTH = 460;
const HEIGHT = 340;
const MARGIN = { left: 64, right: 16, top: 36, bottom: 44 };
const LEGEND_LINE = 20;

/** Colours that people with colour blindness can tell apart: Okabe and Ito, 2008. */
const COLOURS = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000"];

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
  const series = [...new Set(points.map((point) => point.series))];
  const panels = (["prefill", "decode"] as const)
    .map((phase) => points.filter((point) => point.phase === phase))
    .filter((of) => of.length > 0);
  const height = HEIGHT + LEGEND_LINE * series.length + 12;
  const width = WIDTH * panels.length;
  return [
    `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${width} ${height}" width="${width}" ` +
    `height="${height}" font-family="system-ui, sans-serif" font-size="12">`,
    `<rect width="${width}" height="${height}" fill="#ffffff"/>`,
    ...panels.map((of, i) => `<g transform="translate(${i * WIDTH} 0)">${panel(of, series)}</g>`),
    ...series.map((name, i) => legendLine(name, i)),
    "</svg>\n",
  ].join("\n");
}

/** Returns a page that shows a picture. */
export function plotPage(svg: string): string {
  return '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><title>forge bench</title>' +
    `</head><body>\n${svg}</body></html>\n`;
}

function panel(points: readonly PlotPoint[], series: readonly string[]): string {
  const axis = axisOf(points);
  const xs = [...new Set(points.map((point) => point[axis]))].toSorted((a, b) => a - b);
  const top = niceCeiling(Math.max(...points.map(({ rate }) => rate)));
  const inner = { width: WIDTH - MARGIN.left - MARGIN.right, bottom: HEIGHT - MARGIN.bottom };
  // Sizes are mostly powers of two: each has the same distance to the next.
  const x = (value: number) =>
    MARGIN.left + inner.width * (xs.length === 1 ? 0.5 : xs.indexOf(value) / (xs.length - 1));
  const y = (rate: number) => inner.bottom - (inner.bottom - MARGIN.top) * rate / top;
  const phase = points[0]!.phase === "prefill" ? "Prefill" : "Decoding";
  const grid = [0, 0.25, 0.5, 0.75, 1].map((part) => {
    const at = y(part * top).toFixed(1);
    return `<path d="M${MARGIN.left} ${at}h${inner.width}" stroke="#d6d3d1"/>` +
      `<text x="${MARGIN.left - 8}" y="${at}" dy="4" text-anchor="end">${label(part * top)}</text>`;
  });
  const ticks = xs.map((value) =>
    `<text x="${x(value).toFixed(1)}" y="${inner.bottom + 18}" text-anchor="middle">${value}</text>`
  );
  const lines = series.map((name, i) => {
    const own = points.filter((point) => point.series === name)
      .toSorted((a, b) => a[axis] - b[axis]);
    const places = own.map((point) => [x(point[axis]).toFixed(1), y(point.rate).toFixed(1)]);
    const colour = COLOURS[i % COLOURS.length]!;
    return `<polyline points="${places.map((place) => place.join(",")).join(" ")}" fill="none" ` +
      `stroke="${colour}" stroke-width="2"/>` +
      places.map(([cx, cy], k) =>
        `<circle cx="${cx}" cy="${cy}" r="3.5" fill="${colour}"><title>${
          escapeText(`${name}: ${own[k]!.rate.toFixed(2)} tokens/s`)
        }</title></circle>`
      ).join("");
  });
  const middle = MARGIN.left + inner.width / 2;
  return [
    `<text x="${middle}" y="20" text-anchor="middle" font-size="14">${phase}, tokens/s</text>`,
    ...grid,
    ...ticks,
    `<text x="${middle}" y="${HEIGHT - 8}" text-anchor="middle">${AXES[axis]}</text>`,
    ...lines,
  ].join("");
}

function axisOf(points: readonly PlotPoint[]): Axis {
  const count = (axis: Axis) => new Set(points.map((point) => point[axis])).size;
  const axes = Object.keys(AXES) as Axis[];
  return axes.reduce((best, axis) => count(axis) > count(best) ? axis : best);
}

/** Returns the least of 1, 2, 4, 5 and 8 times a power of ten that is not below a value. */
function niceCeiling(value: number): number {
  const power = 10 ** Math.floor(Math.log10(Math.max(value, 1e-9)));
  return power * [1, 2, 4, 5, 8, 10].find((factor) => factor * power >= value)!;
}

function label(value: number): string {
  return value >= 1000
    ? `${Number((value / 1000).toPrecision(3))}k`
    : `${Number(value.toPrecision(3))}`;
}

function legendLine(name: string, index: number): string {
  const y = HEIGHT + LEGEND_LINE * index + 8;
  const colour = COLOURS[index % COLOURS.length];
  return `<circle cx="${MARGIN.left}" cy="${y}" r="5" fill="${colour}"/>` +
    `<text x="${MARGIN.left + 12}" y="${y + 4}">${escapeText(name)}</text>`;
}

const ENTITIES: Readonly<Record<string, string>> = { "&": "&amp;", "<": "&lt;", ">": "&gt;" };

/** Escapes a text for SVG. */
export function escapeText(text: string): string {
  return text.replace(/[&<>]/g, (character) => ENTITIES[character]!);
}
