/** A roofline as an SVG picture: the rates of launches over their arithmetic intensity. */
import { escapeText } from "../../src/bench/chart.ts";
import type { TimedLaunch } from "./predictions.ts";
import type { NvidiaGpu } from "./nvidia.ts";

/** Size of the picture and of its margins in pixels. */
const WIDTH = 860, HEIGHT = 520, LEFT = 70, RIGHT = 210, TOP = 40, BOTTOM = 60;
/** Operations per byte, and 10^12 operations per second. */
const INTENSITIES = [0.1, 10_000] as const, RATES = [0.1, 1_000] as const;

/** A labelled set of launches. */
export interface Series {
  readonly name: string;
  readonly launches: readonly TimedLaunch[];
}

const COLORS = [
  "#1b6ca8",
  "#d1495b",
  "#2e8b57",
  "#8e5ea2",
  "#c47f00",
  "#3f3f46",
  "#00868b",
  "#a0522d",
];

/** Returns the intensity from which arithmetic bounds, not memory. */
export function ridge(gpu: NvidiaGpu): number {
  return gpu.teraflops * 1e3 / (gpu.bandwidth * gpu.readable);
}

/** Draws the launches that multiply; the area of a dot grows with its share of the step. */
export function drawRoofline(gpu: NvidiaGpu, series: readonly Series[]): string {
  const x = (value: number) => LEFT + part(value, INTENSITIES) * (WIDTH - LEFT - RIGHT);
  const y = (value: number) => HEIGHT - BOTTOM - part(value, RATES) * (HEIGHT - TOP - BOTTOM);
  const memory = gpu.bandwidth * gpu.readable / 1e3;
  const roof = [INTENSITIES[0], ridge(gpu), INTENSITIES[1]]
    .map((at) => `${px(x(at))},${px(y(Math.min(memory * at, gpu.teraflops)))}`).join(" ");
  const lines = [
    `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${WIDTH} ${HEIGHT}" font-family="sans-serif" font-size="12">`,
    `<rect width="${WIDTH}" height="${HEIGHT}" fill="white"/>`,
    `<text x="${LEFT}" y="24" font-size="15">${
      escapeText(`Roofline of ${gpu.name} (model)`)
    }</text>`,
    ...decades(INTENSITIES).map((at) =>
      `<path d="M${px(x(at))} ${TOP}V${HEIGHT - BOTTOM}" stroke="#e5e5e5"/>` +
      `<text x="${px(x(at))}" y="${HEIGHT - BOTTOM + 18}" text-anchor="middle">${at}</text>`
    ),
    ...decades(RATES).map((at) =>
      `<path d="M${LEFT} ${px(y(at))}H${WIDTH - RIGHT}" stroke="#e5e5e5"/>` +
      `<text x="${LEFT - 8}" y="${px(y(at) + 4)}" text-anchor="end">${at}</text>`
    ),
    `<text x="${(LEFT + WIDTH - RIGHT) / 2}" y="${
      HEIGHT - 16
    }" text-anchor="middle">operations per byte</text>`,
    `<text transform="translate(18 ${HEIGHT / 2}) rotate(-90)" text-anchor="middle">TFLOP/s</text>`,
    `<polyline points="${roof}" fill="none" stroke="black" stroke-width="2"/>`,
    `<path d="M${px(x(ridge(gpu)))} ${px(y(gpu.teraflops))}V${
      HEIGHT - BOTTOM
    }" stroke="black" stroke-dasharray="4 4"/>`,
    `<text x="${px(x(ridge(gpu)) + 4)}" y="${HEIGHT - BOTTOM - 6}">ridge ${
      ridge(gpu).toFixed(0)
    }</text>`,
  ];
  series.forEach(({ name, launches }, i) => {
    const color = COLORS[i % COLORS.length]!;
    const total = launches.reduce((sum, { microseconds, count }) => sum + microseconds * count, 0);
    for (const launch of launches) {
      const rate = launch.flops / launch.microseconds / 1e6;
      if (!(rate >= RATES[0]) || launch.intensity < INTENSITIES[0]) continue;
      const share = launch.microseconds * launch.count / total;
      lines.push(
        `<circle cx="${px(x(launch.intensity))}" cy="${px(y(rate))}" r="${
          px(3 + 12 * Math.sqrt(share))
        }" ` +
          `fill="${color}" fill-opacity="0.45" stroke="${color}"><title>${
            escapeText(
              `${name}: ${launch.count} x ${launch.kernel}, ${launch.microseconds.toFixed(1)} us, `,
            )
          }${escapeText(`${rate.toFixed(1)} TFLOP/s, bound by ${launch.bound}`)}</title></circle>`,
      );
    }
    const at = TOP + 18 * i;
    lines.push(
      `<circle cx="${WIDTH - RIGHT + 16}" cy="${at}" r="5" fill="${color}"/>`,
      `<text x="${WIDTH - RIGHT + 28}" y="${at + 4}">${escapeText(name)}</text>`,
    );
  });
  return [...lines, "</svg>", ""].join("\n");
}

/** Position of a value on a logarithmic axis, 0 to 1. */
function part(value: number, [from, to]: readonly [number, number]): number {
  const clamped = Math.min(to, Math.max(from, value));
  return Math.log(clamped / from) / Math.log(to / from);
}

function decades([from, to]: readonly [number, number]): number[] {
  const count = Math.round(Math.log10(to / from));
  return Array.from({ length: count + 1 }, (_, i) => Number((from * 10 ** i).toPrecision(1)));
}

function px(value: number): string {
  return value.toFixed(1);
}
