/**
 * Runs a batch as `forge run` does and prints how many bytes it holds after 1,000 lines and at the end.
 * It collects garbage first (`--v8-flags=--expose-gc`): by itself V8 lets it lie while there is room, so
 * that the size of the process says little.
 */
import { type BatchFlags, runBatchFile } from "../../src/cli/batch.ts";
import { parseCommandLine } from "../../src/cli/parse.ts";

const WARM_UP = 1000;

declare const gc: () => void;

async function main(args: readonly string[]): Promise<void> {
  const invocation = parseCommandLine(["run", ...args]);
  if (invocation.kind !== "command") throw new Error("these are no arguments of forge run");
  const flags: BatchFlags = invocation.options;
  const { signal } = new AbortController();
  let first: Promise<number> | undefined;
  const timer = setInterval(() => {
    if (first === undefined && countLines(flags.output ?? "") >= WARM_UP) first = heldBytes();
  }, 5);
  await runBatchFile(flags.batch ?? "", flags, { verbose: false, interruptSignal: () => signal });
  clearInterval(timer);
  console.log(JSON.stringify({ first: await first, last: await heldBytes() }));
}

/** The least of several collections: buffers are given back some time after the one that finds them. */
async function heldBytes(): Promise<number> {
  let least = Infinity;
  for (let i = 0; i < 10; i++) {
    gc();
    const { heapUsed, external } = Deno.memoryUsage();
    least = Math.min(least, heapUsed + external);
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
  return least;
}

/** Lines of a file, up to some thousands. */
function countLines(path: string): number {
  using file = Deno.openSync(path);
  const buffer = new Uint8Array(2 ** 20);
  const size = file.readSync(buffer) ?? 0;
  return buffer.subarray(0, size).filter((byte) => byte === 0x0a).length;
}

if (import.meta.main) await main(Deno.args);
