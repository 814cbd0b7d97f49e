/**
 * Runs the checks of the project and prints their counts. Exits with 1 if a check failed.
 *
 * - `deno task ok` runs all checks.
 * - `deno task test` (`--tests`) only builds and tests.
 * - `deno task thorough` (`--thorough`) runs what `ok` leaves out (test/support/thorough.ts).
 * - `deno task sanitize` (`--sanitize`) runs tests on sanitized native code.
 * - `deno task fuzz` (`--fuzz`) feeds damaged input for a given time.
 *
 * `test` and `sanitize` pass further arguments to one `deno test`. `test` without arguments runs
 * every folder of tests, several at a time.
 */
import { parseArgs } from "node:util";
import { join, resolve } from "@std/path";
import { buildLibraries } from "../build.ts";
import { inParallel } from "./emulator/build.ts";
import { addCounts, type Counts, summaryLine, testCounts } from "./support/summary.ts";
import { testedLibraries } from "./support/thorough.ts";

const root = resolve(import.meta.dirname ?? ".", "..");

interface RunDenoOptions {
  /** Variables added to those of this process. */
  readonly env?: Readonly<Record<string, string>>;
  /** True to print its output in one piece at its end. @default false */
  readonly isHeldBack?: boolean;
  /** Minutes after which it is stopped and has failed. @default no limit */
  readonly limit?: number;
}

/** Runs deno in the root and forwards its output; returns true if it succeeded. */
async function runDeno(args: readonly string[], options: RunDenoOptions = {}): Promise<boolean> {
  const { env = {}, isHeldBack = false, limit } = options;
  const place = isHeldBack ? "piped" : "inherit";
  const child = new Deno.Command(Deno.execPath(), {
    args: [...args],
    cwd: root,
    env: { ...env },
    stdin: "null",
    stdout: place,
    stderr: place,
  }).spawn();
  const output: Uint8Array[] = [];
  const hold = async (stream: ReadableStream<Uint8Array>) => {
    for await (const chunk of stream) output.push(chunk);
  };
  const held = isHeldBack ? Promise.all([hold(child.stdout), hold(child.stderr)]) : undefined;
  let isStopped = false;
  const timer = limit === undefined ? undefined : setTimeout(() => {
    isStopped = true;
    child.kill("SIGKILL");
  }, limit * 60_000);
  const { success } = await child.status;
  clearTimeout(timer);
  // A process that a test has left running may hold the pipes open for ever.
  await Promise.race([held, new Promise((resolve) => setTimeout(resolve, 5_000))]);
  for (const chunk of output) await writeAll(chunk);
  if (isStopped) console.log(`\nstopped after ${limit} minutes`);
  return success;
}

async function writeAll(bytes: Uint8Array): Promise<void> {
  for (let at = 0; at < bytes.length;) at += await Deno.stdout.write(bytes.subarray(at));
}

/** A check that passes or fails as a whole. */
async function check(
  name: string,
  args: readonly string[],
  options: RunDenoOptions = {},
): Promise<Counts> {
  console.log(`\n== ${name}`);
  const succeeded = await runDeno(args, options);
  return succeeded
    ? { passed: 1, failed: 0, skipped: 0 }
    : { passed: 0, failed: 1, skipped: 0, failures: [`${name} failed`] };
}

async function runTests(args: readonly string[], options: RunDenoOptions = {}): Promise<Counts> {
  const folder = Deno.makeTempDirSync({ prefix: "forge-test-" });
  try {
    const path = join(folder, "report.xml");
    const succeeded = await runDeno(
      ["test", "--allow-all", `--junit-path=${path}`, ...args],
      options,
    );
    let report: string | undefined;
    try {
      report = Deno.readTextFileSync(path);
    } catch (error) {
      if (!(error instanceof Deno.errors.NotFound)) throw error;
      console.log("the tests ended without a report");
    }
    return testCounts(report, succeeded);
  } finally {
    Deno.removeSync(folder, { recursive: true });
  }
}

/**
 * Folders whose tests take minutes: the two longest first. The last ones mostly compile, which
 * keeps all processors busy even when no other folder is left.
 */
const LONGEST: readonly string[] = [
  ...["cuda", "emulator", "unit", "cli", "ops", "models", "metal", "flash_attn"],
  "windows",
];

/** Minutes that a folder may take, several times what the slowest takes on two processors. */
const LIMIT = 40;

/**
 * Runs all tests, one process per folder and one folder per processor at a time. The files of a
 * process run one after the other, because tests may set environment variables.
 */
async function runAllTests(args: readonly string[]): Promise<Counts> {
  const tests = join(root, "test");
  const others = Array.from(Deno.readDirSync(tests), ({ name }) => name)
    .filter((name) => !LONGEST.includes(name) && hasTests(join(tests, name)))
    .sort();
  const counts = await inParallel([...LONGEST, ...others], async (name) => {
    console.log(`\n== tests in test/${name}`);
    const result = await runTests([...args, `test/${name}`], { isHeldBack: true, limit: LIMIT });
    console.log(`== test/${name}: ${summaryLine(result)}`);
    return result;
  });
  return addCounts(...counts);
}

/** The tests that run more cases in `deno task thorough`. */
const THOROUGH_TESTS: readonly string[] = [
  "test/cuda/gpu_check_test.ts",
  "test/cuda/gpu_model_test.ts",
  "test/cuda/operations_test.ts",
  "test/cuda/speed_gates_test.ts",
  "test/emulator/gates_test.ts",
  "test/emulator/kernels_test.ts",
  "test/emulator/metal/kernels_test.ts",
  "test/emulator/metal/seeded_bugs_test.ts",
  "test/emulator/seeded_bugs_test.ts",
  "test/flash_attn/emulator_test.ts",
  "test/flash_attn/nvcc_test.ts",
  "test/metal/cross_link_test.ts",
  "test/metal/misuse_test.ts",
  "test/metal/operations_test.ts",
  "test/ops/emulated_products_test.ts",
  "test/unit/build/library_test.ts",
  "test/unit/engine/schedule/mixes_test.ts",
  "test/unit/engine/speculation/head_drafter_test.ts",
  "test/unit/engine/speculation/mixes_test.ts",
  "test/windows",
];

/** True if a folder or one of its subfolders has tests. */
function hasTests(path: string): boolean {
  if (!Deno.statSync(path).isDirectory) return false;
  return Array.from(Deno.readDirSync(path)).some(({ name, isDirectory }) =>
    isDirectory ? hasTests(join(path, name)) : name.endsWith("_test.ts")
  );
}

/** Builds sanitized libraries and returns the variables with which programs load them. */
async function sanitizedEnvironment(): Promise<Record<string, string>> {
  const { folder } = await buildLibraries({
    sanitizers: ["address", "undefined"],
    log: (line) => console.log(line),
  });
  const compiler = Deno.env.get("CXX") || "c++";
  // AddressSanitizer intercepts exceptions and looks up libstdc++ before forge's libraries are
  // loaded.
  const preloaded = await Promise.all(["libasan.so", "libstdc++.so.6"].map(async (name) => {
    const { stdout } = await new Deno.Command(compiler, { args: [`-print-file-name=${name}`] })
      .output();
    return new TextDecoder().decode(stdout).trim();
  }));
  return {
    FORGE_LIBRARY_PATH: folder,
    LD_PRELOAD: preloaded.join(":"),
    // Ignores memory that Deno itself leaks, and lets failed allocations return null. The stacks of
    // emulated threads are not where the sanitizer expects them.
    ASAN_OPTIONS: "detect_leaks=0:allocator_may_return_null=1:detect_stack_use_after_return=0",
    FORGE_SANITIZED: "1",
  };
}

/**
 * Runs tests of native code on sanitized libraries, by default those of the operations and whole
 * programs on emulated GPUs.
 */
async function runSanitizedTests(args: readonly string[]): Promise<Counts> {
  const start = performance.now();
  const env = await sanitizedEnvironment();
  const built = performance.now();
  console.log("\n== tests");
  const tests = ["test/emulator/sanitized_programs_test.ts", "test/ops"];
  const counts = await runTests(args.length > 0 ? args : tests, { env });
  const tested = performance.now();
  console.log(`\nbuilt in ${minutes(built - start)}, tested in ${minutes(tested - built)}`);
  return counts;
}

function minutes(ms: number): string {
  return `${(ms / 60_000).toFixed(1)} minutes`;
}

/**
 * Repeats the tests of test/fuzz, or of the given files, with new seeds until the time is over or a
 * test fails: `--minutes N [--sanitize] [FILE...]`.
 */
async function runFuzz(args: readonly string[]): Promise<Counts> {
  const { minutes, sanitize, _: files } = parseFuzzArgs(args);
  const env = sanitize ? await sanitizedEnvironment() : {};
  const end = performance.now() + minutes * 60_000;
  let counts: Counts = { passed: 0, failed: 0, skipped: 0 };
  // A round uses fewer than 100,000 seeds, so rounds do not overlap.
  for (let seed = Date.now(); performance.now() < end && counts.failed === 0; seed += 100_000) {
    console.log(`\n== round with FORGE_FUZZ_SEED=${seed}`);
    const round = await runTests(files.length > 0 ? files : ["test/fuzz"], {
      env: { ...env, FORGE_FUZZ_SEED: String(seed) },
    });
    counts = addCounts(counts, round);
  }
  return counts;
}

function parseFuzzArgs(args: readonly string[]) {
  const { values, positionals } = parseArgs({
    args: [...args],
    options: { minutes: { type: "string" }, sanitize: { type: "boolean" } },
    allowPositionals: true,
  });
  const minutes = Number(values.minutes);
  if (!(minutes > 0)) {
    throw new Error("give --minutes, a number above 0: deno task fuzz --minutes 10");
  }
  return { minutes, sanitize: values.sanitize ?? false, _: positionals };
}

async function runAll(): Promise<Counts> {
  const formatting = await check("format", ["fmt", "--check"]);
  const linting = await check("lint", ["lint"]);
  // The build leaves processors idle near its end.
  const [types, build] = await Promise.all([
    check("types", ["check", "--quiet"], { isHeldBack: true }),
    buildStrictly(testedLibraries),
  ]);
  return addCounts(formatting, linting, types, build, await runAllTests(["--no-check"]));
}

/** Builds the given libraries, by default all. */
function buildStrictly(only?: readonly string[]): Promise<Counts> {
  const names = only === undefined ? [] : ["--only", only.join(",")];
  return check("build", ["task", "--quiet", "build", "--strict", ...names]);
}

async function main([mode, ...args]: readonly string[]): Promise<void> {
  const counts = mode === "--sanitize"
    ? await runSanitizedTests(args)
    : mode === "--fuzz"
    ? await runFuzz(args)
    : mode === "--thorough"
    ? addCounts(
      await buildStrictly(),
      await runTests(THOROUGH_TESTS, { env: { FORGE_THOROUGH: "1" } }),
    )
    : mode === "--tests"
    ? addCounts(
      await buildStrictly(testedLibraries),
      await (args.length > 0 ? runTests(args) : runAllTests([])),
    )
    : await runAll();
  if (counts.failures?.length) console.log(["", "Failed:", ...counts.failures].join("\n"));
  console.log(`\n${summaryLine(counts)}`);
  Deno.exit(counts.failed > 0 ? 1 : 0);
}

if (import.meta.main) await main(Deno.args);
