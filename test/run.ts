/**
 * Runs the checks of the project and ends with a line that counts them, with the exit code 1 if one
 * failed. `deno task ok` runs all of them; `deno task test` (`--tests`) only builds and tests, and
 * `deno task sanitize` (`--sanitize`) does so with native code that checks itself. Both hand further
 * arguments to `deno test`.
 */
import { join, resolve } from "@std/path";
import { buildLibraries } from "../build.ts";
import { addCounts, type Counts, summaryLine, testCounts } from "./support/summary.ts";

const root = resolve(import.meta.dirname ?? ".", "..");

/** Runs deno in the root with its output on ours; whether it succeeded. */
async function runDeno(
  args: readonly string[],
  variables: Readonly<Record<string, string>> = {},
): Promise<boolean> {
  const command = new Deno.Command(Deno.execPath(), {
    args: [...args],
    cwd: root,
    env: { ...variables },
    stdin: "null",
    stdout: "inherit",
    stderr: "inherit",
  });
  return (await command.spawn().status).success;
}

/** A check that passes or fails as a whole. */
async function check(name: string, args: readonly string[]): Promise<Counts> {
  console.log(`\n== ${name}`);
  const succeeded = await runDeno(args);
  if (!succeeded) console.log(`${name} failed`);
  return { passed: succeeded ? 1 : 0, failed: succeeded ? 0 : 1, skipped: 0 };
}

async function runTests(
  args: readonly string[],
  variables: Readonly<Record<string, string>> = {},
): Promise<Counts> {
  console.log("\n== tests");
  const folder = Deno.makeTempDirSync({ prefix: "forge-test-" });
  try {
    const path = join(folder, "report.xml");
    const succeeded = await runDeno(
      ["test", "--allow-all", `--junit-path=${path}`, ...args],
      variables,
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

/** Runs tests of native code (by default those of the operations) on sanitized libraries. */
async function runSanitizedTests(args: readonly string[]): Promise<Counts> {
  const { folder } = await buildLibraries({
    sanitizers: ["address", "undefined"],
    log: (line) => console.log(line),
  });
  const compiler = Deno.env.get("CXX") || "c++";
  // The checks watch exceptions, and look for what throws them before any library of ours is loaded.
  const preloaded = await Promise.all(["libasan.so", "libstdc++.so.6"].map(async (name) => {
    const { stdout } = await new Deno.Command(compiler, { args: [`-print-file-name=${name}`] })
      .output();
    return new TextDecoder().decode(stdout).trim();
  }));
  return runTests(args.length > 0 ? args : ["test/ops"], {
    FORGE_LIBRARY_PATH: folder,
    LD_PRELOAD: preloaded.join(":"),
    // What Deno itself does not free is not ours to report, and to be refused memory is no crash.
    ASAN_OPTIONS: "detect_leaks=0:allocator_may_return_null=1",
  });
}

async function runAll(): Promise<Counts> {
  return addCounts(
    await check("format", ["fmt", "--check"]),
    await check("lint", ["lint"]),
    await check("types", ["check", "--quiet"]),
    await buildStrictly(),
    await runTests(["--no-check"]),
  );
}

function buildStrictly(): Promise<Counts> {
  return check("build", ["task", "--quiet", "build", "--strict"]);
}

async function main([mode, ...args]: readonly string[]): Promise<void> {
  const counts = mode === "--sanitize"
    ? await runSanitizedTests(args)
    : mode === "--tests"
    ? addCounts(await buildStrictly(), await runTests(args))
    : await runAll();
  console.log(`\n${summaryLine(counts)}`);
  Deno.exit(counts.failed > 0 ? 1 : 0);
}

if (import.meta.main) await main(Deno.args);
