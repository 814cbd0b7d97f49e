/**
 * libflash_attn on a GPU: checked against PyTorch in float64, then timed against PyTorch's
 * FlashAttention-2 and cuDNN backends in the same run. Needs nvcc and a `python3` with PyTorch.
 */
import { join } from "@std/path";
import { findNvcc, howToInstallNvcc } from "../ffi/build/nvcc.ts";
import { FLASH_ATTN_VERSION, paramFields } from "../test/flash_attn/binding.ts";
import { buildLibraries } from "../build.ts";
import { ForgeError } from "../src/errors.ts";
import {
  type FlashDecodePrediction,
  type FlashPrediction,
  predictFlash,
  predictFlashDecode,
} from "./gpu_model/flash_model.ts";
import { root } from "./root.ts";

/** Numbers by contender; null if a peer does not support the shape. */
type Speeds = Readonly<Record<string, number | null>>;

/** A line of output of `bench/peers/flash_attn_race.py`. */
export type RaceLine =
  | {
    readonly kind: "check";
    readonly name: string;
    readonly error: number;
    readonly float_error: number;
  }
  | {
    readonly kind: "limits";
    readonly device: string;
    readonly copy_gb_s: number;
    readonly matmul_tflop_s: number;
  }
  | {
    readonly kind: "forward";
    readonly dtype: string;
    readonly head_dim: number;
    readonly length: number;
    readonly causal: boolean;
    /**
     * Packed sequences of many lengths, keys in pages, or a mask, where `fa2` is PyTorch's
     * memory-efficient backend; empty for sequences of one length.
     */
    readonly layout: "" | "varlen" | "pages" | "mask";
    /** Operations of the call. */
    readonly flops: number;
    readonly tflop_s: Speeds;
  }
  | {
    readonly kind: "decode";
    /** Of keys and values. */
    readonly type: "BF16" | "Q8_0";
    readonly length: number;
    readonly batch: number;
    readonly kv_heads: number;
    readonly gb_s: Speeds;
    readonly microseconds: Speeds;
  };

/** Prints the report and adds it to `bench/results/`. Prints the reason if it cannot run. */
export async function benchFlashAttention(): Promise<void> {
  if (await findNvcc() === undefined) {
    console.log(`skipping flash_attn: ${howToInstallNvcc}`);
    return;
  }
  const { libraries } = await buildLibraries({
    only: ["flash_attn"],
    log: (line) => console.error(line),
  });
  const lines: RaceLine[] = [];
  if (!await race(libraries[0]?.path ?? "", (line) => lines.push(line))) {
    throw new ForgeError(
      "device",
      `the race ended after ${lines.length} results; it needs python3 with PyTorch, and a GPU`,
    );
  }
  const report = describeRace(lines, await predictFlash(), await predictFlashDecode());
  console.log(report);
  const device = lines.find((line) => line.kind === "limits")?.device ?? "unknown device";
  const results = join(root, "bench", "results");
  Deno.mkdirSync(results, { recursive: true });
  const name = device.toLowerCase().replace(/[^a-z0-9]+/g, "-");
  const path = join(results, `${new Date().toISOString().slice(0, 10)}-flash-attn-${name}.md`);
  Deno.writeTextFileSync(path, `${report}\n`, { append: true });
  console.log(`added to ${path}`);
}

/**
 * Checks and times a library, and passes each result to `take` as it arrives. Returns false if the
 * program stopped early, for example without a GPU or PyTorch.
 */
export async function race(library: string, take: (line: RaceLine) => void): Promise<boolean> {
  const process = new Deno.Command("python3", {
    args: [join(root, "bench", "peers", "flash_attn_race.py")],
    stdin: "piped",
    stdout: "piped",
    stderr: "inherit",
  }).spawn();
  const writer = process.stdin.getWriter();
  const task = { library, fields: Object.entries(paramFields), version: FLASH_ATTN_VERSION };
  await writer.write(new TextEncoder().encode(JSON.stringify(task))).then(() => writer.close())
    .catch(() => {});
  let text = "";
  for await (const piece of process.stdout.pipeThrough(new TextDecoderStream())) {
    const lines = `${text}${piece}`.split("\n");
    text = lines.pop() ?? "";
    for (const line of lines) take(JSON.parse(line) as RaceLine);
  }
  return (await process.status).success;
}

function row(cells: readonly string[]): string {
  return `| ${cells.join(" | ")} |`;
}

function table(head: readonly string[], rows: readonly (readonly string[])[]): string {
  return [row(head), row(head.map(() => "---")), ...rows.map(row)].join("\n");
}

function speed(value: number | null | undefined, digits = 0): string {
  return value === null || value === undefined ? "–" : value.toFixed(digits);
}

/** True if errors are at most twice the errors of float32; false for NaN. */
export function isAccurate(
  { error, float_error }: { readonly error: number; readonly float_error: number },
): boolean {
  return error <= 2 * float_error + 1e-6;
}

/** An expected number, with a star if the measured one is more than 10% off. */
function expectation(
  expected: number | undefined,
  measured: number | null | undefined,
  digits = 0,
): string {
  if (expected === undefined) return speed(undefined);
  const isOff = Math.abs((measured ?? expected) / expected - 1) > 0.1;
  return `${speed(expected, digits)}${isOff ? " *" : ""}`;
}

/** The report, in Markdown, with predictions of gpu-model; there are none without machine code. */
export function describeRace(
  lines: readonly RaceLine[],
  expectedForward: readonly FlashPrediction[] = [],
  expectedDecode: readonly FlashDecodePrediction[] = [],
): string {
  const checks = lines.filter((line) => line.kind === "check");
  const bad = checks.filter((check) => !isAccurate(check));
  const limits = lines.find((line) => line.kind === "limits");
  const forward = lines.filter((line) => line.kind === "forward");
  const decode = lines.filter((line) => line.kind === "decode");
  const device = limits?.device ?? "an unknown device";
  const native = device.includes("A100") ? "flash_attn SM80" : "flash_attn";
  type Forward = Extract<RaceLine, { kind: "forward" }>;
  const teraflops = (kernels: string, { dtype, head_dim, causal, layout, length }: Forward) => {
    const name = layout === "mask"
      ? "flash_attn masked"
      : dtype.startsWith("float8")
      ? "flash_attn E4M3"
      : kernels;
    const shape = layout === "mask" ? "" : layout;
    const model = [name, head_dim, ...(causal ? ["causal"] : []), ...(shape ? [shape] : [])];
    return expectedForward.find((one) =>
      device.includes(one.device) && one.model === model.join(" ") && one.depth === length
    )?.teraflops;
  };
  const microseconds = (line: Extract<RaceLine, { kind: "decode" }>) =>
    expectedDecode.find((one) =>
      device.includes(one.device) && one.type === line.type && one.batch === line.batch &&
      one.depth === line.length && one.kvHeads === line.kv_heads
    )?.time_us;
  const matmul = limits?.matmul_tflop_s ?? NaN, copy = limits?.copy_gb_s ?? NaN;
  return [
    `## libflash_attn on ${device}`,
    "",
    `${checks.length - bad.length} of ${checks.length} checks within twice the error of float32.`,
    ...bad.map(({ name, error, float_error }) => `- ${name}: ${error} (float32: ${float_error})`),
    "",
    `A copy moves ${speed(copy)} GB/s, an 8192³ BF16 product runs at ${speed(matmul)} TFLOP/s.`,
    "",
    "Forward, 16384 tokens or one sequence, 2048 / head_dim heads, TFLOP/s; a star marks an " +
    "expectation that is more than 10% off. With a mask, FA2 is PyTorch's memory-efficient backend:",
    "",
    table(
      [
        ...["type", "head_dim", "causal", "layout", "length", "ours", "expected", "of product"],
        ...["ours, SM80", "expected", "FA2", "cuDNN"],
      ],
      forward.map((line) => [
        line.dtype,
        `${line.head_dim}`,
        line.causal ? "yes" : "no",
        line.layout || "–",
        `${line.length}`,
        speed(line.tflop_s.ours),
        expectation(teraflops(native, line), line.tflop_s.ours),
        `${speed((line.tflop_s.ours ?? NaN) / matmul * 100)}%`,
        speed(line.tflop_s.ours_sm80),
        // Masks have no other kernels.
        expectation(
          line.layout === "mask" ? undefined : teraflops("flash_attn SM80", line),
          line.tflop_s.ours_sm80,
        ),
        speed(line.tflop_s.fa2),
        speed(line.tflop_s.cudnn),
      ]),
    ),
    "",
    "Decode, eight query heads a KV head, head_dim 128, pages of 16 (peers: contiguous), GB/s of " +
    "keys and values:",
    "",
    table(
      ["type", "batch", "KV heads", "keys", "ours", "of copy", "µs", "expected", "FA2", "cuDNN"],
      decode.map((line) => [
        line.type,
        `${line.batch}`,
        `${line.kv_heads}`,
        `${line.length}`,
        speed(line.gb_s.ours),
        `${speed((line.gb_s.ours ?? NaN) / copy * 100)}%`,
        speed(line.microseconds.ours, 1),
        expectation(microseconds(line), line.microseconds.ours, 1),
        speed(line.gb_s.fa2),
        speed(line.gb_s.cudnn),
      ]),
    ),
  ].join("\n");
}
