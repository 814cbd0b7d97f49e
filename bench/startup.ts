/**
 * Time from the start of the process to the version and to the first token, for every way in: the
 * clone, the unpacked archive of `install.sh`, and the npm package. Deno and Node alone show what
 * forge adds.
 */
import { basename, join } from "@std/path";
import { writePackage } from "../ffi/build/package.ts";
import { denoPackage, pack } from "../ffi/build/release/pack_npm.ts";
import { hostPlatform, platformName } from "../ffi/build/targets.ts";
import { median } from "../src/bench/statistics.ts";
import { ForgeError } from "../src/errors.ts";
import { type BenchOptions, benchSubject, subjectPath } from "./bench_options.ts";
import { root } from "./root.ts";

/** A way to start forge, or another program to compare it with. */
interface Way {
  readonly name: string;
  readonly command: readonly string[];
  /** Arguments that are not forge's. */
  readonly args?: readonly string[];
}

/** Goals on a processor of 2024 with nothing else to do, in milliseconds. */
const VERSION_GOAL = 120;
const TOKEN_GOAL = 350;

/** Prints the medians of several starts; all ways alternate. */
export async function benchStartup(options: BenchOptions): Promise<void> {
  using subject = benchSubject(options);
  const path = subjectPath(subject);
  const generate = ["run", "-m", path, "-p", "Hello", "-n", "1", "--temp", "0", "--json"];
  const token = [...generate, "-t", `${options.threads}`];
  const folder = Deno.makeTempDirSync({ prefix: "forge-startup-" });
  try {
    const ways = await waysIn(folder);
    const columns = [["--version"], token];
    const times = ways.map(() => columns.map((): number[] => []));
    // The first starts compile TypeScript and read the files.
    for (let round = -1; round < options.rounds; round++) {
      for (const [w, { command, args }] of ways.entries()) {
        for (const [c, given] of columns.entries()) {
          if (c > 0 && args !== undefined) continue;
          const time = await timeToOutput([...command, ...args ?? given]);
          if (round >= 0) times[w]![c]!.push(time);
        }
      }
    }
    const bytes = Deno.statSync(path).isFile ? Deno.statSync(path).size : undefined;
    const size = bytes === undefined ? "" : ` (${(bytes / 1e6).toFixed(0)} MB)`;
    console.log(
      `start, ${subject.name}${size}, median of ${options.rounds}, least in brackets, ms:`,
    );
    console.log(`  ${"".padEnd(10)} ${"version".padStart(11)} ${"first token".padStart(13)}`);
    for (const [w, { name }] of ways.entries()) {
      const [version, first] = times[w]!.map(describe);
      console.log(`  ${name.padEnd(10)} ${version!.padStart(11)} ${first!.padStart(13)}`);
    }
    console.log(
      `  ${"goal".padEnd(10)} ${`${VERSION_GOAL}`.padStart(11)} ${`${TOKEN_GOAL}`.padStart(13)}`,
    );
  } finally {
    Deno.removeSync(folder, { recursive: true });
  }
}

function describe(times: readonly number[]): string {
  if (times.length === 0) return "";
  return `${median(times).toFixed(0)} (${Math.min(...times).toFixed(0)})`;
}

/** Installs forge in every way below `folder`. */
async function waysIn(folder: string): Promise<Way[]> {
  const deno = Deno.execPath();
  const permissions = ["--no-prompt", "--no-lock", "--permission-set=forge"];
  const ways: Way[] = [
    { name: "Deno alone", command: [deno], args: ["eval", 'console.log("0")'] },
    { name: "clone", command: [deno, "run", "--quiet", ...permissions, join(root, "main.ts")] },
  ];
  const platform = hostPlatform();
  if (platform.os === "windows") return ways;
  const archive = join(folder, "forge.tar.gz");
  await writePackage({ root, platform, output: archive, withDeno: true, log: () => {} });
  await run(["tar", "-xzf", archive, "-C", folder]);
  const unpacked = join(folder, `forge-${platformName(platform)}`);
  ways.push({ name: "archive", command: [join(unpacked, "bin", "forge")] });
  if (!await run(["node", "--version"]).then(() => true, () => false)) return ways;
  const modules = join(folder, "node_modules");
  const packages = await pack({
    root,
    platform,
    only: ["cpu"],
    output: join(folder, "npm"),
    log: () => {},
  });
  for (const { name, path } of packages) await unpack(path, join(modules, name));
  // The package of Deno, of which the launcher reads the name and starts the program.
  const program = join(modules, denoPackage(platform));
  Deno.mkdirSync(program, { recursive: true });
  Deno.writeTextFileSync(join(program, "package.json"), "{}");
  Deno.symlinkSync(deno, join(program, basename(deno)));
  const main = packages[0]!.name;
  return [
    ...ways,
    { name: "Node alone", command: ["node"], args: ["-e", 'console.log("0")'] },
    { name: "npm", command: ["node", join(modules, main, "bin", "forge.js")] },
  ];
}

async function unpack(archive: string, folder: string): Promise<void> {
  Deno.mkdirSync(folder, { recursive: true });
  await run(["tar", "-xzf", archive, "-C", folder, "--strip-components=1"]);
}

async function run([program, ...args]: readonly string[]): Promise<void> {
  const command = new Deno.Command(program!, { args, stdout: "null", stderr: "inherit" });
  if (!(await command.output()).success) {
    throw new ForgeError("device", `${program} ${args.join(" ")} failed`);
  }
}

/** Milliseconds from starting a program to its first byte on stdout. */
async function timeToOutput([program, ...args]: readonly string[]): Promise<number> {
  const start = performance.now();
  const process = new Deno.Command(program!, {
    args,
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
  if (done || !success) throw new ForgeError("device", `${program} ${args.join(" ")} failed`);
  return elapsed;
}
