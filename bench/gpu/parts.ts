/**
 * The parts of the GPU check and how to run one: separate programs, whose failures are independent.
 */
import { join } from "@std/path";
import { root } from "../root.ts";
import { readLines } from "./lines.ts";
import type { PartResult } from "./report.ts";

/** A part to run. */
export interface Part {
  readonly name: string;
  readonly help: string;
  /** A program in this folder. */
  readonly program: string;
  readonly args?: readonly string[];
  /** Seconds after which the part is stopped; its output until then counts. */
  readonly limit: number;
}

/** The most valuable parts first, since time may run out. */
export const PARTS: readonly Part[] = [
  {
    name: "kernels",
    help: "every kernel and every instruction against plain loops",
    program: "kernels.ts",
    limit: 120,
  },
  {
    name: "operations",
    help: "every operation against the reference device",
    program: "operations.ts",
    limit: 150,
  },
  {
    name: "flash_kernels",
    help: "libflash_attn against sums in double",
    program: "flash_kernels.ts",
    limit: 60,
  },
  {
    name: "models",
    help: "whole models against the CPU and independent programs",
    program: "models.ts",
    limit: 60,
  },
  {
    name: "products",
    help: "products with weights of each type",
    program: "products.ts",
    limit: 75,
  },
  {
    name: "decode",
    help: "whole steps of an 8B and a 1B model, decoding and prefill",
    program: "decode.ts",
    limit: 150,
  },
  {
    name: "attention",
    help: "attention from 128 to 128k positions",
    program: "attention.ts",
    limit: 75,
  },
  {
    name: "sampling",
    help: "sampling from 128k logits, and the host time of a step",
    program: "sampling.ts",
    limit: 30,
  },
  {
    name: "launches",
    help: "launches of a decoded token, fused, captured, and replaced by one kernel",
    program: "launches.ts",
    limit: 90,
  },
  {
    name: "experts",
    help: "products with chosen experts",
    program: "experts.ts",
    limit: 45,
  },
  { name: "torch", help: "PyTorch, as the peer", program: "../peers/torch_peer.py", limit: 120 },
  {
    name: "profile",
    help: "the operations of a step, with their times",
    program: "profile.ts",
    limit: 60,
  },
  {
    name: "sanitizer",
    help: "a short run under compute-sanitizer",
    program: "sanitizer.ts",
    limit: 90,
  },
  { name: "start", help: "from the start to the first token", program: "start.ts", limit: 60 },
  {
    name: "flash_attn",
    help: "libflash_attn against PyTorch",
    program: "flash_attn.ts",
    limit: 150,
  },
  {
    name: "model",
    help: "expected times of the steps of decode, next to the measured ones",
    program: "model.ts",
    limit: 240,
  },
];

/** Exit status of a program that cannot run here; its last line gives the reason. */
export const SKIPPED = 77;
/** Exit status of `timeout` after it stopped a program, by the first or the second signal. */
const TIMED_OUT = [124, 137];

/** Seconds per part on an emulated GPU. */
const EMULATED_LIMIT = 900;

/** Runs a part until it ends or reaches its limit. */
export async function runPart(
  part: Part,
  emulated: boolean,
  secondsLeft: number,
): Promise<PartResult> {
  // The speed of an emulator depends on the machine, but it must end, too.
  const longest = emulated ? EMULATED_LIMIT : part.limit;
  const limit = Math.max(1, Math.floor(Math.min(longest, secondsLeft)));
  const path = join(root, "bench", "gpu", part.program);
  const interpreter = path.endsWith(".py")
    ? ["python3"]
    : [Deno.execPath(), "run", "--quiet", "--no-check", "-A"];
  const start = performance.now();
  // `timeout` also ends the program's child processes.
  const { code, stdout, stderr } = await new Deno.Command("timeout", {
    args: [
      ...["-k", "5", `${limit}`, ...interpreter, path],
      ...(part.args ?? []),
      ...(emulated ? ["--emulated"] : []),
    ],
    cwd: root,
    env: { NO_COLOR: "1" },
    stdin: "null",
    stdout: "piped",
    stderr: "piped",
  }).output();
  const decoder = new TextDecoder();
  const out = decoder.decode(stdout), errors = decoder.decode(stderr);
  const lines = readLines(out);
  const said = lastLine(errors) || lastLine(out);
  const failed = lines.some((line) => line.kind === "check" && !line.passed);
  const outcome = code === SKIPPED ? "skipped" : code !== 0 || failed ? "failed" : "passed";
  const reason = code === 0
    ? ""
    : TIMED_OUT.includes(code)
    ? `ended after ${limit} s`
    : said === "" || said.startsWith("{")
    ? `exit code ${code}`
    : said;
  return {
    name: part.name,
    outcome,
    seconds: (performance.now() - start) / 1000,
    reason,
    lines,
    output: `${out}${errors}`,
  };
}

/** Returns the error that a program ended with, or the last line of its output. */
function lastLine(text: string): string {
  const lines = text.trim().split("\n").map((line) => line.trim());
  return lines.findLast((line) => /error:/i.test(line)) ?? lines.at(-1) ?? "";
}
