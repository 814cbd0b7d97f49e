/**
 * Runs steps of a model on the stand-in for a GPU, which logs launches instead of running them:
 * `dry_run.ts REQUEST`, in an environment of `emulatedGpu` with FORGE_FAKE_CUDA_LAUNCHES. Prints
 * the work of each step as JSON. A process of its own, since the environment chooses the driver.
 */
import { openBenchModel } from "../../src/bench/bench_model.ts";
import { type ConfigSpec, writeEmptyCheckpoint } from "../../src/bench/synthetic/checkpoint.ts";
import { Profile } from "../../src/engine/profile.ts";
import { type Chunk, type Runner, UNSAMPLED } from "../../src/engine/runner.ts";
import type { Step } from "./models.ts";

/** Input of this program. */
export interface DryRunRequest {
  readonly spec: ConfigSpec;
  readonly steps: readonly Step[];
  /** Number of devices that divide every layer; the launches are those of the last one. */
  readonly ranks: number;
}

/** A launch and the work of its operation, which its first launch has (`OperationTime`). */
export interface OperationLaunch {
  readonly operation: string;
  readonly matrix: string;
  readonly kernel: string;
  readonly bytes: number;
  readonly flops: number;
}

/** One step of a request. */
export interface DryRunStep {
  /** Place of its launches in the log of the driver. */
  readonly log: readonly [begin: number, end: number];
  readonly launches: readonly OperationLaunch[];
  /** Sequences that were computed; fewer than asked for if the model does not allow more. */
  readonly batch: number;
}

async function main(request: DryRunRequest): Promise<DryRunStep[]> {
  const path = Deno.makeTempFileSync({ prefix: "forge-dry-run-" });
  try {
    const checkpoint = writeEmptyCheckpoint(path, request.spec);
    const done = new Map<Step, DryRunStep>();
    // The maximum number of sequences decides on kernels, so each batch is a model of its own.
    for (const [batch, steps] of Map.groupBy(request.steps, (step) => step.batch)) {
      using model = await openBenchModel(checkpoint, {
        name: request.spec.name,
        device: "cuda",
        threads: 1,
        contextLength: Math.max(...steps.map(({ depth, tokens }) => depth + tokens)),
        maxSequences: batch,
        tensorParallel: request.ranks,
      });
      for (const step of steps) done.set(step, await run(model.runner, step));
    }
    return request.steps.map((step) => done.get(step)!);
  } finally {
    Deno.removeSync(path);
  }
}

/**
 * Runs a step, in several chunks if it is too long for one. Vocabularies above 131,072 allow fewer
 * than 128 sequences; then there are that many.
 */
async function run(runner: Runner, { batch, tokens, depth }: Step): Promise<DryRunStep> {
  using stack = new DisposableStack();
  const length = Math.min(batch, runner.limits.maxSequences);
  const tables = Array.from({ length }, () => stack.use(runner.newSequence()));
  const most = Math.floor(runner.limits.maxTokens / length);
  const profile = new Profile();
  runner.setProfile(profile);
  const begin = logSize();
  for (let done = 0; done < tokens; done += most) {
    const count = Math.min(most, tokens - done);
    const outputs = done + count === tokens ? [{ ...UNSAMPLED, row: count - 1 }] : [];
    const chunks = tables.map((table): Chunk => ({
      table,
      tokens: new Int32Array(count),
      start: depth + done,
      outputs,
    }));
    await runner.run(chunks);
  }
  runner.setProfile(undefined);
  const launches = profile.trace().traceEvents.flatMap(({ cat, name, args }): OperationLaunch[] => {
    if (cat !== "operation") return [];
    const { matrix = "", kernel = "", bytes, flops } = args;
    const work = { bytes: Number(bytes), flops: Number(flops) };
    return [{ operation: name, matrix: `${matrix}`, kernel: `${kernel}`, ...work }];
  });
  return { log: [begin, logSize()], launches, batch: length };
}

function logSize(): number {
  return Deno.statSync(Deno.env.get("FORGE_FAKE_CUDA_LAUNCHES")!).size;
}

if (import.meta.main) {
  console.log(JSON.stringify(await main(JSON.parse(Deno.args[0] ?? "{}") as DryRunRequest)));
}
