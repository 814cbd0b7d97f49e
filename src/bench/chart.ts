/** Charts of lines, as SVG. */

/** Line of a panel. */
interface Series {
  readonly name: string;
  /** Unit of its values. */
  readonly unit: string;
  readonly points: readonly (readonly [x: number, y: number])[];
}

/** Coordinate system with lines. */
export interface Panel {
  readonly title: string;
  /** Label of the horizontal axis. */
  readonly axis: string;
  /** True to place different values at equal distances; false for a linear axis from 0. */
  readonly isOrdinal: boolean;
  /** A line has the same index, and so the same colour, in each panel. */
  readonly series: readonly Series[];
}

/** Size of a panel and of the margins, in pixels. */
const WIDTH = 460;
const HEIGHT = 340;
const MARGIN = { left: 64, right: 16, top: 36, bottom: 44 };
const INNER = { width: WIDTH - MARGIN.left - MARGIN.right, bottom: HEIGHT - MARGIN.bottom };
const LEGEND_LINE = 20;

/** Parts of a linear axis between its labels. */
const PARTS = [0, 0.25, 0.5, 0.75, 1];

/** Longest line whose points are marked. */
const MOST_MARKS = 64;

/** Colours that people with colour blindness can tell apart: Okabe and Ito, 2008. */
const COLOURS = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000"];

/** Draws panels next to each other, with a legend of all lines. */
export function drawChart(panels: readonly Panel[]): string {
  const names = [...new Set(panels.flatMap(({ series }) => series.map(({ name }) => name)))];
  const height = HEIGHT + LEGEND_LINE * names.length + 12;
  const width = WIDTH * panels.length;
  return [
    `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${width} ${height}" width="${width}" ` +
    `height="${height}" font-family="system-ui, sans-serif" font-size="12">`,
    `<rect width="${width}" height="${height}" fill="#ffffff"/>`,
    ...panels.map((panel, i) =>
      `<g transform="translate(${i * WIDTH} 0)">${drawPanel(panel, names)}</g>`
    ),
    ...names.map((name, i) => legendLine(name, i)),
    "</svg>\n",
  ].join("\n");
}

/** Returns a page that shows a picture. */
export function chartPage(svg: string, title: string): string {
  return `<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><title>${title}</title>` +
    `</head><body>\n${svg}</body></html>\n`;
}

function drawPanel({ title, axis, isOrdinal, series }: Panel, names: readonly string[]): string {
  const points = series.flatMap((line) => line.points);
  const top = niceCeiling(Math.max(...points.map(([, y]) => y)));
  const right = niceCeiling(Math.max(...points.map(([x]) => x)));
  const xs = isOrdinal
    ? [...new Set(points.map(([x]) => x))].toSorted((a, b) => a - b)
    : PARTS.map((part) => part * right);
  const placeOf = (x: number) =>
    !isOrdinal ? x / right : xs.length === 1 ? 0.5 : xs.indexOf(x) / (xs.length - 1);
  const across = (x: number) => (MARGIN.left + INNER.width * placeOf(x)).toFixed(1);
  const down = (y: number) => (INNER.bottom - (INNER.bottom - MARGIN.top) * y / top).toFixed(1);
  const grid = PARTS.map((part) => {
    const at = down(part * top);
    return `<path d="M${MARGIN.left} ${at}h${INNER.width}" stroke="#d6d3d1"/>` +
      `<text x="${MARGIN.left - 8}" y="${at}" dy="4" text-anchor="end">${label(part * top)}</text>`;
  });
  const ticks = xs.map((x) =>
    `<text x="${across(x)}" y="${INNER.bottom + 18}" text-anchor="middle">${
      isOrdinal ? x : label(x)
    }</text>`
  );
  const lines = series.map(({ name, unit, points }) => {
    const sorted = points.toSorted(([a], [b]) => a - b);
    const colour = COLOURS[names.indexOf(name) % COLOURS.length]!;
    const places = sorted.map(([x, y]) => `${across(x)},${down(y)}`).join(" ");
    const marks = sorted.length > MOST_MARKS
      ? []
      : sorted.map(([x, y]) =>
        `<circle cx="${across(x)}" cy="${down(y)}" r="3.5" fill="${colour}"><title>${
          escapeText(`${name}: ${y.toFixed(2)} ${unit}`)
        }</title></circle>`
      );
    return `<polyline points="${places}" fill="none" stroke="${colour}" stroke-width="2"/>` +
      marks.join("");
  });
  const middle = MARGIN.left + INNER.width / 2;
  return [
    `<text x="${middle}" y="20" text-anchor="middle" font-size="14">${escapeText(title)}</text>`,
    ...grid,
    ...ticks,
    `<text x="${middle}" y="${HEIGHT - 8}" text-anchor="middle">${escapeText(axis)}</text>`,
    ...lines,
  ].join("");
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
