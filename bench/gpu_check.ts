/**
 * Checks and measures forge on a real GPU, in one call of under ten minutes: `deno run -A
 * bench/gpu_check.ts [PART...]`. Writes the report to stdout and to `bench/results/` under the
 * device's name, and, if `$OUT` is set, there with the log and all numbers.
 *
 * `--emulated` runs the smallest sizes on a machine without a GPU, to test the check itself.
 */
import { join } from "@std/path";
import { parseArgs } from "node:util";
import { buildLibraries } from "../build.ts";
import { NativeBackend } from "../ffi/native_backend.ts";
import { errorText, exitCode } from "../src/cli/output/error_text.ts";
import { PARTS, runPart } from "./gpu/parts.ts";
import { type CheckedDevice, describeCheck, type PartResult } from "./gpu/report.ts";
import { judge } from "./gpu/targets.ts";
import { root } from "./root.ts";

/** Seconds for everything, including the build: less than ten minutes. */
const DEFAULT_SECONDS = 560;
/** An emulated run occupies no GPU, so it may take longer. */
const EMULATED_SECONDS = 3600;
/** Minimum seconds left to start a part. */
const FEWEST_SECONDS = 10;

const HELP = `Usage: deno run -A bench/gpu_check.ts [PART...] [options]

Checks forge on this machine's GPU, then measures it. Without names all parts run, in this order:

${PARTS.map(({ name, help }) => `  ${name.padEnd(13)} ${help}`).join("\n")}

Options:
      --seconds N    time for all of it (default: ${DEFAULT_SECONDS}); the last may be left out
      --results D    folder for the report (default: bench/results)
      --emulated     the smallest of everything, on a machine without a GPU
  -h, --help         show this

With OUT in the environment, its folder gets the report, the log, and all numbers as JSON.`;

async function main(args: readonly string[]): Promise<number> {
  const options = parse(args);
  if (typeof options === "string") {
    console.error(options);
    return 2;
  }
  if (options.help) {
    console.log(HELP);
    return 0;
  }
  const { emulated, names, results } = options;
  const deadline = performance.now() + 1000 * options.seconds;
  await buildLibraries({
    only: ["cpu", "reference", "cuda", ...emulated ? [] : ["flash_attn" as const]],
    log: (line) => console.error(line),
  });
  const device = describeDevice();
  console.error([device.name, ...device.details].join("\n"));
  const done: PartResult[] = [];
  for (const part of PARTS.filter(({ name }) => names.length === 0 || names.includes(name))) {
    const left = (deadline - performance.now()) / 1000;
    const result: PartResult = left < FEWEST_SECONDS
      ? { ...part, outcome: "skipped", seconds: 0, reason: "no time left", lines: [], output: "" }
      : await runPart(part, emulated, left);
    console.error(`${part.name}: ${result.outcome}, ${result.seconds.toFixed(1)} s`);
    done.push(result);
    // Write after each part, since the call itself may be cut off.
    writeResults(device, done, results);
  }
  console.log(describe(device, done));
  return done.some(({ outcome }) => outcome === "failed") ? 1 : 0;
}

interface CheckOptions {
  readonly names: readonly string[];
  readonly seconds: number;
  readonly results: string;
  readonly emulated: boolean;
  readonly help: boolean;
}

/** Parses the options; returns an error text for invalid ones. */
function parse(args: readonly string[]): CheckOptions | string {
  try {
    const { values, positionals: names } = parseArgs({
      args: [...args],
      allowPositionals: true,
      options: {
        seconds: { type: "string" },
        results: { type: "string" },
        emulated: { type: "boolean" },
        help: { type: "boolean", short: "h" },
      },
    });
    const known = PARTS.map(({ name }) => name);
    const unknown = names.find((name) => !known.includes(name));
    if (unknown !== undefined) return `unknown part "${unknown}"; valid are ${known.join(", ")}`;
    const { emulated = false, help = false } = values;
    const { seconds = `${emulated ? EMULATED_SECONDS : DEFAULT_SECONDS}` } = values;
    // Emulated results are not kept in the repository.
    const { results = join(root, emulated ? "build/bench" : "bench/results") } = values;
    if (!(Number(seconds) > 0)) return `--seconds is "${seconds}"; valid is a number above 0`;
    return { names, seconds: Number(seconds), results, emulated, help };
  } catch (error) {
    if (!(error instanceof TypeError)) throw error;
    return error.message;
  }
}

function describeDevice(): CheckedDevice {
  using backend = NativeBackend.open({ kind: "cuda" });
  const { name, features, details = [] } = backend.info;
  return { name, details: [features.join(" "), ...details] };
}

function describe(device: CheckedDevice, parts: readonly PartResult[]): string {
  return describeCheck(device, parts, judge(parts.flatMap(({ lines }) => lines)));
}

function writeResults(device: CheckedDevice, parts: readonly PartResult[], folder: string): void {
  const report = describe(device, parts);
  const date = new Date().toISOString().slice(0, 10);
  const slug = device.name.toLowerCase().replace(/[^a-z0-9]+/g, "-");
  Deno.mkdirSync(folder, { recursive: true });
  Deno.writeTextFileSync(join(folder, `${date}-${slug}.md`), report);
  const out = Deno.env.get("OUT");
  if (out === undefined || out === "") return;
  Deno.writeTextFileSync(join(out, "gpu_check.md"), report);
  const log = parts.map(({ name, output }) => `== ${name}\n${output}`).join("\n");
  Deno.writeTextFileSync(join(out, "gpu_check.log"), log);
  const numbers = parts.map(({ output: _, ...part }) => part);
  Deno.writeTextFileSync(join(out, "gpu_check.json"), JSON.stringify({ device, parts: numbers }));
}

if (import.meta.main) {
  try {
    Deno.exit(await main(Deno.args));
  } catch (error) {
    // No driver, no compiler or no NVRTC.
    console.error(errorText(error, false).trimEnd());
    Deno.exit(exitCode(error));
  }
}
