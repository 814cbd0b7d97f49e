/**
 * Time from the start of the program to the first token of an 8B model, and to read its file:
 * `start.ts [--emulated]`. Prints the lines of `lines.ts`.
 */
import { join } from "@std/path";
import { median } from "../../src/bench/statistics.ts";
import { SyntheticModel } from "../../src/bench/synthetic/model.ts";
import { parseSyntheticSpec } from "../../src/bench/synthetic/spec.ts";
import { bundledModel } from "../../src/cli/model/model_path.ts";
import { openBackend } from "../../src/engine/load/open_backend.ts";
import { root } from "../root.ts";
import { say } from "./lines.ts";

const MODEL = "llama-3.1-8b:Q4_K";

async function main(args: readonly string[]): Promise<void> {
  if (args.includes("--emulated")) return await measure("the bundled model", bundledModel(), 1);
  const quantizer = openBackend("cpu");
  using model = new SyntheticModel(parseSyntheticSpec(MODEL), quantizer);
  quantizer.close();
  await measure(MODEL, model.path, 3);
}

async function measure(name: string, path: string, rounds: number): Promise<void> {
  // Kernels are compiled once per machine, at the first start.
  const cache = Deno.makeTempDirSync({ prefix: "forge-kernels-" });
  try {
    sayTime(`first start of ${name}`, await timeToToken(path, cache));
    const times: number[] = [];
    for (let round = 0; round < rounds; round++) times.push(await timeToToken(path, cache));
    sayTime(`first token of ${name}`, median(times));
  } finally {
    Deno.removeSync(cache, { recursive: true });
  }
  sayTime(`reading the file of ${name}`, await timeToRead(path));
}

function sayTime(name: string, milliseconds: number): void {
  say({ kind: "speed", group: "start", name, by: "forge", microseconds: milliseconds * 1e3 });
}

/** Milliseconds from the start of the process to its answer of one token. */
async function timeToToken(path: string, cache: string): Promise<number> {
  const start = performance.now();
  const { success, stderr } = await new Deno.Command(Deno.execPath(), {
    args: [
      ...["run", "--quiet", "-A", join(root, "main.ts"), "run", "--device", "cuda"],
      ...["-m", path, "--raw", "-p", "a", "-n", "1", "--temp", "0", "--json"],
    ],
    env: { FORGE_CACHE: cache },
    stdin: "null",
    stdout: "null",
    stderr: "piped",
  }).output();
  if (!success) throw new Error(`forge run failed: ${new TextDecoder().decode(stderr)}`);
  return performance.now() - start;
}

/** Milliseconds to read the files of a model once, through the page cache. */
async function timeToRead(path: string): Promise<number> {
  const buffer = new Uint8Array(16 << 20);
  const start = performance.now();
  const files = Deno.statSync(path).isFile
    ? [path]
    : Array.from(Deno.readDirSync(path)).filter(({ isFile }) => isFile)
      .map(({ name }) => join(path, name));
  for (const name of files) {
    using file = await Deno.open(name);
    while (await file.read(buffer) !== null);
  }
  return performance.now() - start;
}

if (import.meta.main) await main(Deno.args);
