/**
 * Runs the checks of the project and ends with a line that counts them, with the exit code 1 if one
 * failed. `deno task ok` runs all of them; `deno task test` (`--tests`) only builds and tests, and
 * hands further arguments to `deno test`.
 */
import { join, resolve } from "@std/path";
import { addCounts, type Counts, summaryLine, testCounts } from "./support/summary.ts";

const root = resolve(import.meta.dirname ?? ".", "..");

/** Runs deno in the root with its output on ours; whether it succeeded. */
async function runDeno(args: readonly string[]): Promise<boolean> {
  const command = new Deno.Command(Deno.execPath(), {
    args: [...args],
    cwd: root,
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

async function runTests(args: readonly string[]): Promise<Counts> {
  console.log("\n== tests");
  const folder = Deno.makeTempDirSync({ prefix: "forge-test-" });
  try {
    const path = join(folder, "report.xml");
    const succeeded = await runDeno([
      "test",
      "--quiet",
      "--allow-all",
      `--junit-path=${path}`,
      ...args,
    ]);
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

async function main([mode, ...args]: readonly string[]): Promise<void> {
  const testsOnly = mode === "--tests";
  const counts: Counts[] = [];
  if (!testsOnly) {
    counts.push(await check("format", ["fmt", "--check"]));
    counts.push(await check("lint", ["lint"]));
    counts.push(await check("types", ["check", "--quiet"]));
  }
  counts.push(await check("build", ["task", "--quiet", "build", "--strict"]));
  counts.push(await runTests(testsOnly ? args : ["--no-check"]));
  const total = addCounts(...counts);
  console.log(`\n${summaryLine(total)}`);
  Deno.exit(total.failed > 0 ? 1 : 0);
}

if (import.meta.main) await main(Deno.args);
