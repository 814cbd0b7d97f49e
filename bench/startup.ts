/** Time from the start of the process to the first token, compared with the start of Deno itself. */
import { join } from "@std/path";
import { median } from "../src/bench/statistics.ts";
import { ForgeError } from "../src/errors.ts";
import { type BenchOptions, benchSubject, subjectPath } from "./bench_options.ts";
import { root } from "./root.ts";

/** Prints the medians of several starts; the two programs alternate. */
export async function benchStartup(options: BenchOptions): Promise<void> {
  using subject = benchSubject(options);
  const path = subjectPath(subject);
  const permissions = ["--no-prompt", "--no-lock", "--permission-set=forge"];
  const main = ["run", "--quiet", ...permissions, join(root, "main.ts")];
  const generate = ["run", "-m", path, "-p", "Hello", "-n", "1", "--temp", "0", "--json"];
  const forge = [...main, ...generate, "-t", `${options.threads}`];
  const deno = ["eval", 'console.log("0")'];
  // The first start compiles TypeScript and reads the file; it is reported separately.
  const first = await timeToOutput(forge);
  await timeToOutput(deno);
  const times: { forge: number[]; deno: number[] } = { forge: [], deno: [] };
  for (let round = 0; round < options.rounds; round++) {
    times.forge.push(await timeToOutput(forge));
    times.deno.push(await timeToOutput(deno));
  }
  const version: number[] = [];
  for (let round = 0; round < options.rounds; round++) {
    version.push(await timeToOutput([...main, "--version"]));
  }
  const milliseconds = (value: number) => `${value.toFixed(0)} ms`;
  const bytes = Deno.statSync(path).isFile ? Deno.statSync(path).size : undefined;
  const size = bytes === undefined ? "" : ` (${(bytes / 1e6).toFixed(0)} MB)`;
  console.log(`start to first token, ${subject.name}${size}, median of ${options.rounds}:`);
  console.log(`  forge      ${milliseconds(median(times.forge))} (first ${milliseconds(first)})`);
  console.log(`  Deno alone ${milliseconds(median(times.deno))}`);
  console.log(`  --version  ${milliseconds(median(version))}`);
}

/** Milliseconds from starting Deno with `args` to its first byte on stdout. */
async function timeToOutput(args: readonly string[]): Promise<number> {
  const start = performance.now();
  const process = new Deno.Command(Deno.execPath(), {
    args: [...args],
    cwd: root,
    stdin: "null",
    stdout: "piped",
    stderr: "inherit",
  }).spawn();
  const reader = process.stdout.getReader();
  const { done } = await reader.read();
  const elapsed = performance.now() - start;
  while (!(await reader.read()).done);
  const { success } = await process.status;
  if (done || !success) throw new ForgeError("device", `deno ${args.join(" ")} failed`);
  return elapsed;
}
