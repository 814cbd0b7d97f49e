/**
 * Runs code many times on damaged input. Each run may succeed or throw a `ForgeError` of one line.
 * Another error, a disproportionate allocation or a hang fails the test.
 *
 * `FORGE_FUZZ_SEED` sets the first seed, `FORGE_FUZZ_RUNS` the number of runs. A failure prints the
 * seed that reproduces it in the first run. `deno task fuzz` runs for a given time.
 */
import { ForgeError } from "../../src/errors.ts";
import { Random } from "../support/random.ts";

const MAX_GROWTH_BYTES = 512 * 2 ** 20;
const MAX_RUN_MS = 10_000;
const MAX_MESSAGE_CHARACTERS = 4000;

/** Registers a test that calls `attempt` with a new random generator for each run. */
export function fuzz(
  name: string,
  defaultRuns: number,
  attempt: (random: Random) => void | Promise<void>,
): void {
  Deno.test(`fuzz: ${name}`, async () => {
    const seed = environmentNumber("FORGE_FUZZ_SEED", 1);
    const runs = environmentNumber("FORGE_FUZZ_RUNS", defaultRuns);
    let accepted = 0;
    for (let run = 0; run < runs; run++) {
      try {
        if (await runOnce(attempt, new Random(name, seed + run))) accepted++;
      } catch (error) {
        const repeat = `FORGE_FUZZ_SEED=${seed + run} FORGE_FUZZ_RUNS=1`;
        throw new Error(`${name}: run ${run} failed; repeat it with ${repeat}`, { cause: error });
      }
    }
    const refused = runs - accepted;
    console.log(`${name}: seed ${seed}, ${runs} runs, ${accepted} accepted, ${refused} refused`);
  });
}

/**
 * Returns true if the attempt succeeded; throws on any error other than a one-line `ForgeError`.
 */
async function runOnce(
  attempt: (random: Random) => void | Promise<void>,
  random: Random,
): Promise<boolean> {
  const before = Deno.memoryUsage();
  const start = performance.now();
  let accepted = true;
  try {
    await attempt(random);
  } catch (error) {
    if (!(error instanceof ForgeError)) throw error;
    checkMessage(error);
    accepted = false;
  }
  const elapsed = performance.now() - start;
  if (elapsed > MAX_RUN_MS) throw new Error(`it took ${Math.round(elapsed)} ms`);
  const after = Deno.memoryUsage();
  const growth = after.external - before.external + after.heapTotal - before.heapTotal;
  if (growth > MAX_GROWTH_BYTES) throw new Error(`memory grew by ${growth} bytes`);
  return accepted;
}

function checkMessage({ message }: ForgeError): void {
  if (message === "" || message.length > MAX_MESSAGE_CHARACTERS || /\p{Cc}/u.test(message)) {
    throw new Error(`not a clear line: ${JSON.stringify(message)}`);
  }
}

function environmentNumber(name: string, fallback: number): number {
  const text = Deno.env.get(name);
  if (text === undefined || text === "") return fallback;
  const value = Number(text);
  if (!Number.isSafeInteger(value) || value < 0) {
    throw new Error(`${name} must be a whole number, not ${JSON.stringify(text)}`);
  }
  return value;
}
