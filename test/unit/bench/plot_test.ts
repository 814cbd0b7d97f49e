/** Pictures of benchmark results. */
import { assert, assertEquals, assertStringIncludes, assertThrows } from "@std/assert";
import { chartPage, drawChart } from "../../../src/bench/chart.ts";
import { drawPlot, drawScores, parseResults, pointsOf } from "../../../src/bench/plot.ts";
import { checkPicture } from "../../../src/cli/output/streams.ts";
import { ForgeError } from "../../../src/errors.ts";
import { Random } from "../../support/random.ts";
import { TempFolder } from "../../support/temp_folder.ts";

const record = { model_type: "llama 1B", backends: "CPU", n_prompt: 0, n_gen: 8, avg_ts: 40 };

/** Returns the places of the lines' points in a picture. */
function lines(svg: string): number[][][] {
  return [...svg.matchAll(/<polyline points="([^"]*)"/g)].map(([, places]) =>
    places!.split(" ").filter((place) => place !== "").map((place) => place.split(",").map(Number))
  );
}

Deno.test("plot: records become points of their phases", () => {
  const decode = { series: "llama 1B, CPU", depth: 0, parallel: 1, prompt: 0 };
  assertEquals(pointsOf(record), [{ ...decode, phase: "decode", rate: 40 }]);
  const both = {
    ...record,
    n_prompt: 100,
    n_parallel: 4,
    avg_prefill_ns: 1e9,
    avg_decode_ns: 2e9,
  };
  assertEquals(pointsOf(both, "a.json").map(({ phase, rate, series }) => [phase, rate, series]), [
    ["prefill", 400, "llama 1B, CPU, a.json"],
    ["decode", 16, "llama 1B, CPU, a.json"],
  ]);
  const prompt = { ...record, n_prompt: 512, n_gen: 0, n_depth: 64, n_parallel: 2 };
  const sizes = { series: "llama 1B, CPU", depth: 64, parallel: 2, prompt: 512 };
  assertEquals(pointsOf(prompt), [{ ...sizes, phase: "prefill", rate: 40 }]);
  const error = assertThrows(() => pointsOf({}), ForgeError);
  assertStringIncludes(error.message, "n_prompt of a record is missing");
  // llama-bench times both phases together.
  assertEquals(pointsOf({ ...record, n_prompt: 100 }), []);
});

Deno.test("plot: the axis is what varies, and faster is higher", () => {
  const of = (n_depth: number, avg_ts: number, model_type = "a") =>
    pointsOf({ ...record, model_type, n_depth, avg_ts });
  const svg = drawPlot([...of(4096, 20), ...of(0, 40), ...of(0, 10, "b"), ...of(4096, 8, "b")]);
  assertStringIncludes(svg, ">tokens before<");
  const [first, second] = lines(svg);
  assertEquals([first!.length, second!.length], [2, 2]);
  const [[x0, y0], [x1, y1]] = first as [[number, number], [number, number]];
  assert(x0 < x1 && y0 < y1, "the slower point at depth is lower, where y is larger");
  assert(second![0]![1]! > y0);
  assertEquals([x0, x1], second!.map(([x]) => x));
  const xs = lines(drawPlot([0, 1, 4096].flatMap((depth) => of(depth, 9))))[0]!.map(([x]) => x!);
  assert(Math.abs(xs[1]! - (xs[0]! + xs[2]!) / 2) < 0.1, `sizes at equal distances: ${xs}`);
  const bars = pointsOf({ ...record, n_parallel: 8 });
  assertStringIncludes(drawPlot([...of(0, 40), ...bars]), ">sequences at once<");
  assertStringIncludes(drawPlot(of(0, 40)), ">sequences at once<");
  const prompts = { ...record, n_prompt: 100, avg_prefill_ns: 1e9, avg_decode_ns: 2e9 };
  const phases = { prefill: "Prefill", decode: "Decoding" } as const;
  for (const [phase, title] of Object.entries(phases)) {
    const own = drawPlot(pointsOf(prompts).filter((point) => point.phase === phase));
    const titles = own.match(/(Prefill|Decoding), tokens\/s/g);
    assertEquals(titles, [`${title}, tokens/s`]);
  }
});

/** Reads the number of a label on an axis. */
function labelled(text: string): number {
  return parseFloat(text) * (text.endsWith("k") ? 1000 : 1);
}

Deno.test("plot: a picture that cannot be written is refused before the work for it", () => {
  using folder = new TempFolder();
  checkPicture(folder.at("a.svg"));
  for (const path of [folder.at("a.png"), folder.at("missing", "a.svg")]) {
    assertThrows(() => checkPicture(path), ForgeError);
  }
  const source = folder.write("b.html", "text");
  assertThrows(() => checkPicture(source, [source]), ForgeError);
});

Deno.test("plot: perplexities of windows, of all before, and by position", () => {
  // 130 positions make 44 bins of three, whose last has one; each bin has a score of its own.
  const scores = [130, 7].map((length) => Float32Array.from({ length }, (_, i) => -(i / 3 | 0)));
  const svg = drawScores(scores);
  const bins = lines(svg).find(({ length }) => length === 44)!;
  const steps = bins.slice(1).map(([, y], i) => y! - bins[i]![1]!);
  for (const step of steps) assert(Math.abs(step - steps[0]!) < 0.2 && step < 0, `${steps}`);
  // A bin stands at its last position, on an axis from 0 to 200, and a window at its last token.
  const position = (bins.at(-1)![0]! - bins[0]![0]!) / (130 - 3);
  bins.forEach(([x], i) => {
    const last = Math.min(3 * (i + 1), 130);
    assert(Math.abs(x! - bins[0]![0]! - (last - 3) * position) < 0.2, `${x} for ${last}`);
  });
  const [[before], [after]] = lines(svg)[0] as [number[], number[]];
  assert(Math.abs(after! - before! - 7 * position) < 0.2, `${before} and ${after}`);
});

Deno.test("plot: points lie where the labels of both axes place their values", () => {
  const random = new Random("plot");
  for (let round = 0; round < 30; round++) {
    const scale = 10 ** random.int(-3, 5);
    const points = Array.from(
      { length: random.int(1, 8) },
      (_, i) => [i * random.int(1, 300) + 1, scale * (0.01 + random.uniform())] as const,
    ).toSorted(([a], [b]) => a - b);
    const isOrdinal = random.chance(0.5) && new Set(points.map(([x]) => x)).size === points.length;
    const series = [{ name: "s", unit: "u", points }];
    const svg = drawChart([{ title: "t", axis: "a", isOrdinal, series }]);
    // Each line of the grid, with its label.
    const rows = Array.from(
      svg.matchAll(/<path d="M[\d.]+ ([\d.]+)h[^>]*><text [^>]*>([^<]*)</g),
      ([, at, text]) => [labelled(text!), Number(at)] as const,
    );
    const columns = Array.from(
      svg.matchAll(/<text x="([\d.]+)" y="[\d.]+" text-anchor="middle">([\d.]+k?)</g),
      ([, at, text]) => [labelled(text!), Number(at)] as const,
    );
    assertEquals(rows[0]![0], 0);
    const [top, bottom] = [rows.at(-1)!, rows[0]!];
    const largest = Math.max(...points.map(([, y]) => y));
    const most = Math.max(...points.map(([x]) => x)), right = columns.at(-1)![0];
    assert(right >= most && (isOrdinal || right <= 2 * most), `${right} for ${most}`);
    assert(top[0] >= largest && top[0] <= 2 * largest + 1e-12, `${top[0]} for ${largest}`);
    const valueAt = (at: number) => top[0] * (bottom[1] - at) / (bottom[1] - top[1]);
    for (const [value, at] of rows) assert(Math.abs(valueAt(at) - value) <= 0.006 * top[0]);
    const placeOf = (x: number) => {
      if (isOrdinal) return columns.find(([value]) => value === x)![1];
      const [right, left] = [columns.at(-1)!, columns[0]!];
      return left[1] + (right[1] - left[1]) * x / right[0];
    };
    lines(svg)[0]!.forEach(([x, y], i) => {
      assert(Math.abs(placeOf(points[i]![0]) - x!) < 0.2, `${x} for ${points[i]} in ${svg}`);
      assert(Math.abs(valueAt(y!) - points[i]![1]) <= 0.006 * top[0], `${y} for ${points[i]}`);
    });
  }
});

Deno.test("plot: nothing lies outside of its panel, and labels lie outside of the lines", () => {
  const points = [[1, 0], [2, 20], [1500, 100]] as const;
  const series = "abcdefgh".split("").map((name) => ({ name, unit: "u", points }));
  for (const isOrdinal of [true, false]) {
    const panel = { title: "title", axis: "axis", isOrdinal, series };
    const svg = drawChart([panel, panel]);
    const [, width, height] = svg.match(/viewBox="0 0 (\d+) (\d+)"/)!.map(Number) as number[];
    assertStringIncludes(svg, `width="${width}" height="${height}" font-family`);
    const [legend, ...drawn] = svg.split("<g ").reverse()
      .map((part, i) => i === 0 ? part.split("</g>").reverse() : [part]).flat();
    const legendTop = Number(legend!.match(/cy="(\d+)"/)![1]);
    // Eight lines have the seven colours, and the first one again.
    const colours = [...legend!.matchAll(/fill="(#.{6})"/g)].map(([, colour]) => colour);
    assertEquals(colours, [...new Set(colours), colours[0]]);
    const strokes = [...drawn[0]!.matchAll(/stroke="(#.{6})" stroke-width/g)];
    assertEquals(strokes.map(([, colour]) => colour), colours);
    const panels = drawn.slice(0, 2);
    assertEquals(panels.map((text) => text.match(/translate\((\d+) 0/)![1]), [
      `${width! / 2}`,
      "0",
    ]);
    const grid = Array.from(
      panels[0]!.matchAll(/d="M([\d.]+) ([\d.]+)h([\d.]+)/g),
      ([, x, y, length]) => ({ left: Number(x), y: Number(y), right: Number(x) + Number(length) }),
    );
    const { left, right } = grid[0]!;
    const [bottom, top] = [grid[0]!.y, grid.at(-1)!.y];
    assert(0 < left && left < right && right <= width! / 2 && 0 < top && bottom < height!);
    for (const [x, y] of lines(panels[0]!).flat()) {
      assert(left <= x! && x! <= right && top <= y! && y! <= bottom, `${x}, ${y}`);
    }
    const texts = Array.from(
      panels[0]!.matchAll(/<text x="([\d.]+)" y="([\d.]+)"[^>]*>([^<]*)</g),
      ([, x, y, text]) => ({ x: Number(x), y: Number(y), text: text! }),
    );
    const rows = texts.filter(({ x }) => x < left);
    assertEquals(rows.map(({ text }) => text), ["0", "25", "50", "75", "100"]);
    assertEquals(rows.map(({ y }) => y), grid.map(({ y }) => y));
    const [title, ...below] = texts.filter(({ x }) => x >= left);
    const axis = below.pop()!;
    assertEquals([title!.text, axis.text], ["title", "axis"]);
    for (const { x } of [title!, axis]) assertEquals(x, (left + right) / 2);
    assert(title!.y < top && bottom < below[0]!.y && below[0]!.y < axis.y && axis.y < legendTop);
    const columns = isOrdinal ? ["1", "2", "1500"] : ["0", "500", "1k", "1.5k", "2k"];
    assertEquals(below.map(({ text }) => text), columns);
  }
});

Deno.test("plot: an axis ends at the next of 1, 2, 4, 5 and 8 times a power of ten", () => {
  const topOf = (value: number) => {
    const points = [[1, value]] as const;
    const series = [{ name: "s", unit: "u", points }];
    const svg = drawChart([{ title: "t", axis: "a", isOrdinal: true, series }]);
    return [...svg.matchAll(/text-anchor="end">([^<]*)</g)].at(-1)![1];
  };
  for (
    const [value, top] of [
      [0.9, "1"],
      [1, "1"],
      [1.01, "2"],
      [2, "2"],
      [2.1, "4"],
      [4.1, "5"],
      [5.1, "8"],
      [8.1, "10"],
      [0.05, "0.05"],
      [500, "500"],
      [501, "800"],
      [801, "1k"],
      [41_000, "50k"],
    ] as const
  ) assertEquals(topOf(value), top, `${value}`);
});

Deno.test("plot: each line has a colour, marks with its values, and a line of the legend", () => {
  const line = (name: string, length: number) => ({
    name,
    unit: "GB/s",
    points: Array.from({ length }, (_, i) => [i, i + 0.126] as const),
  });
  const svg = drawChart([
    { title: "one", axis: "a", isOrdinal: false, series: [line("x", 64), line("y", 65)] },
    { title: "two", axis: "b", isOrdinal: false, series: [line("y", 2)] },
  ]);
  const colours = (pattern: RegExp) => [...svg.matchAll(pattern)].map(([, colour]) => colour);
  const [first, second] = ["#0072b2", "#d55e00"];
  assertEquals(colours(/<polyline [^>]*stroke="([^"]*)"/g), [first, second, second]);
  // Long lines have no marks.
  const marks = colours(/r="3\.5" fill="([^"]*)"/g);
  assertEquals(marks, [...Array(64).fill(first), second, second]);
  assertStringIncludes(svg, "<title>x: 5.13 GB/s</title>");
  const legend = [...svg.matchAll(/cy="(\d+)" r="5" fill="([^"]*)"\/><text [^>]*>([^<]*)</g)];
  assertEquals(legend.map(([, y, ...rest]) => [Number(y), ...rest]), [
    [348, first, "x"],
    [368, second, "y"],
  ]);
  assertStringIncludes(svg, '<g transform="translate(460 0)">');
  assertStringIncludes(svg, 'viewBox="0 0 920 392"');
});

Deno.test("plot: values of an axis by order are spread over its width, and one is in the middle", () => {
  const places = (...xs: number[]) => {
    const points = xs.map((x) => [x, 1] as const);
    const series = [{ name: "s", unit: "u", points }];
    return lines(drawChart([{ title: "t", axis: "a", isOrdinal: true, series }]))[0]!.map(([x]) =>
      x!
    );
  };
  const [left, right] = places(1, 100) as [number, number];
  assertEquals(places(7), [(left + right) / 2]);
  const [, second, third] = places(1, 5, 99, 1000);
  assert(Math.abs(second! - left - (right - left) / 3) < 0.1);
  assert(Math.abs(right - third! - (right - left) / 3) < 0.1);
});

Deno.test("plot: names of models bring no elements", () => {
  const svg = drawPlot(pointsOf({ ...record, model_type: "<script>&" }));
  assert(!svg.includes("<script"));
  assertStringIncludes(svg, "&lt;script&gt;&amp;");
  assertStringIncludes(chartPage(svg, "forge bench"), svg);
});

Deno.test("plot: results are a list or lines, and other files are refused", () => {
  const text = JSON.stringify(record);
  assertEquals(parseResults(`\n [${text}]`, "x"), pointsOf(record, "x"));
  assertEquals(parseResults(`${text}\n \n${text}\n`, "x").length, 2);
  for (
    const [bad, message] of [
      ["model,size", '"x" has no results'],
      ["[1]", 'n_prompt of a record in "x" is missing'],
      ["[null]", 'n_prompt of a record in "x" is missing'],
      ['[{"n_prompt": 0, "n_gen": 8, "avg_ts": 1e999}]', 'avg_ts of a record in "x" is'],
      ['[{"n_prompt": 0, "n_gen": 8, "avg_ts": "fast"}]', 'avg_ts of a record in "x" is "fast"'],
    ] as const
  ) assertThrows(() => parseResults(bad, "x"), ForgeError, message);
  assertThrows(() => drawPlot([]), ForgeError, "no results");
});

Deno.test("plot: a window that is predicted worse is higher, and so is an early position", () => {
  // Losses of 3, 1 and 1 in each window but the last, where every one is a nat more.
  const scores = [0, 0, 1].map((more) => Float32Array.of(-3 - more, -1 - more, -1 - more));
  const svg = drawScores(scores);
  const values = [...svg.matchAll(/<title>[^:]*: ([\d.]+) (perplexity|nats)</g)].map(([, y]) => y);
  // The powers of e of 5/3, 5/3 and 8/3, of 5/3, 5/3 and 2, and the mean losses.
  const expected = "5.29 5.29 14.39 5.29 5.29 7.39 3.33 1.33 1.33";
  assertEquals(values, expected.split(" "));
  const [windows, soFar, positions] = lines(svg);
  assertEquals([windows!.length, soFar!.length, positions!.length], [3, 3, 3]);
  const heights = windows!.map(([, y]) => y!);
  assertEquals(heights[0], heights[1]);
  assert(heights[2]! < heights[1]!, "a higher perplexity is drawn higher, where y is smaller");
  assert(soFar![2]![1]! > heights[2]! && soFar![2]![1]! < soFar![1]![1]!);
  assert(positions![0]![1]! < positions![1]![1]!);
  assertEquals(positions![1]![1], positions![2]![1]);
  // Of long windows, positions are summarised; all points have places.
  const long = Array.from({ length: 100 }, () => new Float32Array(1000).fill(-2));
  const drawn = lines(drawScores(long));
  assertEquals(drawn.map(({ length }) => length), [100, 100, 63]);
  assert(drawn.flat(2).every(Number.isFinite));
});
