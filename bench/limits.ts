/** Limits of this machine, to express other results as a share of them. */
import { join } from "@std/path";
import { findCompiler, runProcess } from "../ffi/build/compiler.ts";
import { hostPlatform } from "../ffi/build/targets.ts";
import { plural } from "../src/cli/output/format.ts";
import { ForgeError } from "../src/errors.ts";
import { root } from "./root.ts";

/** Measured with all threads at once. */
export interface Limits {
  readonly threads: number;
  /** Streaming reads, 10^9 bytes a second. */
  readonly read_gb_s: number;
  /** Float32 multiply-adds, counted as two, 10^9 a second. */
  readonly fma_gflop_s: number;
  /** Multiply-adds of int8 dot products, counted as two, 10^9 a second; 0 if not supported. */
  readonly int8_gop_s: number;
}

/** The machine that a benchmark runs on. */
export interface Machine {
  /** Present if they were measured. */
  readonly limits: Limits | undefined;
}

/**
 * Compiles `bench/native/limits.cpp` for this machine and runs it.
 *
 * @throws {ForgeError} `not_found` without a C++ compiler; `device` when it does not compile or
 * run.
 */
export async function measureLimits(threads: number): Promise<Limits> {
  const run = await compileProgram("limits");
  return await run(`${threads}`) as Limits;
}

/**
 * Compiles a program of `bench/native` for this machine. The result runs it and returns the JSON
 * that it prints.
 *
 * @param sources other files, from the root
 * @throws {ForgeError} `not_found` without a C++ compiler; `device` when it does not compile or
 * run.
 */
export async function compileProgram(
  name: string,
  sources: readonly string[] = [],
): Promise<(...args: readonly string[]) => Promise<unknown>> {
  const folder = join(root, "build", "bench");
  Deno.mkdirSync(folder, { recursive: true });
  const program = join(folder, name);
  const { command } = await findCompiler(hostPlatform());
  const flags = ["-std=c++20", "-O3", "-march=native", "-pthread"];
  const files = [`bench/native/${name}.cpp`, ...sources].map((file) => join(root, file));
  await mustRun([...command, ...flags, ...files, "-o", program], `compiling ${name}.cpp`);
  return async (...args) => JSON.parse(await mustRun([program, ...args], `running ${name}`));
}

async function mustRun(command: readonly string[], what: string): Promise<string> {
  const { ok, output, errors } = await runProcess(command, root);
  if (!ok) throw new ForgeError("device", `${what} failed: ${errors.trim()}`);
  return output;
}

/** Formats the limits for people. */
export function describeLimits(limits: Limits): string {
  const int8 = limits.int8_gop_s === 0
    ? "no int8 dot product"
    : `int8 dot product ${limits.int8_gop_s.toFixed(0)} GOP/s`;
  return `limits with ${plural(limits.threads, "thread")}: read ${
    limits.read_gb_s.toFixed(1)
  } GB/s, ` +
    `float32 FMA ${limits.fma_gflop_s.toFixed(0)} GFLOP/s, ${int8}\n`;
}

/** Returns ` (73% of the read bandwidth)` if the bandwidth was measured, else nothing. */
export function readShare(gigabytesPerSecond: number, limits: Limits | undefined): string {
  if (limits === undefined) return "";
  return ` (${(gigabytesPerSecond / limits.read_gb_s * 100).toFixed(0)}% of the read bandwidth)`;
}
