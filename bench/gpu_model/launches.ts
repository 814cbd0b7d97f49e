/**
 * The launches of a step with their work, as the library plans them for a GPU of given size: from a
 * dry run on the stand-in for NVIDIA's driver.
 */
import { createHash } from "node:crypto";
import { join } from "@std/path";
import { findLibrary } from "../../ffi/library.ts";
import type { SyntheticType } from "../../src/bench/synthetic/shapes.ts";
import { ForgeError } from "../../src/errors.ts";
import {
  emulatedCublasLt,
  emulatedFlashAttention,
  emulatedGpu,
} from "../../test/cuda/emulated_gpu.ts";
import { writeWhole } from "../../test/support/make_once.ts";
import { root } from "../root.ts";
import type { DryRunRequest, DryRunStep, OperationLaunch } from "./dry_run.ts";
import { type ModelledModel, type Step, withLayers } from "./models.ts";
import type { NvidiaGpu } from "./nvidia.ts";

/** Equal launches of a step. */
export interface Launch extends OperationLaunch {
  /** Number of blocks; 0 for a library. */
  readonly blocks: number;
  /** Threads of a block. */
  readonly threads: number;
  /** Dynamic shared memory of a block. */
  readonly shared: number;
  readonly count: number;
}

/** The launches of a step. */
export interface PlannedStep {
  readonly launches: readonly Launch[];
  /** Sequences that are computed together. */
  readonly batch: number;
}

/** Libraries that take part in a dry run. */
export interface Libraries {
  readonly flash: boolean;
  readonly cublaslt: boolean;
}

/** A line of the log (test/emulator/fake_driver/launch_log.h). */
interface LogLine {
  readonly kernel?: string;
  readonly grid?: readonly [number, number, number];
  readonly block?: number;
  readonly shared?: number;
}

/**
 * Returns the launches of steps of a whole model. Models of one and of two layers are planned; the
 * other layers are like the difference.
 *
 * @throws {ForgeError} `not_found` without a CUDA library
 */
export async function planSteps(
  model: ModelledModel,
  type: SyntheticType,
  gpu: NvidiaGpu,
  steps: readonly Step[],
  libraries: Libraries,
): Promise<PlannedStep[]> {
  const one = await dryRun({ spec: withLayers(model, type, 1), steps }, gpu, libraries);
  const two = await dryRun({ spec: withLayers(model, type, 2), steps }, gpu, libraries);
  return steps.map((_, i) => {
    const first = counted(one[i]!.launches), both = counted(two[i]!.launches);
    const launches = [...both].map(([key, launch]) => {
      const before = first.get(key)?.count ?? 0;
      return { ...launch, count: before + (model.nLayers - 1) * (launch.count - before) };
    });
    return { launches, batch: two[i]!.batch };
  });
}

/** Adds up equal launches. */
function counted(launches: readonly Launch[]): Map<string, Launch> {
  const result = new Map<string, Launch>();
  for (const launch of launches) {
    const key = JSON.stringify(launch);
    result.set(key, { ...launch, count: (result.get(key)?.count ?? 0) + 1 });
  }
  return result;
}

/** Returns the steps of a request; kept on disk by the bytes of the library. */
async function dryRun(
  request: DryRunRequest,
  gpu: NvidiaGpu,
  { flash, cublaslt }: Libraries,
): Promise<PlannedStep[]> {
  const library = findLibrary("cuda");
  if (library === undefined) {
    throw new ForgeError("not_found", "there is no CUDA library; build it with: deno task build");
  }
  const env = {
    ...await emulatedGpu({
      architecture: gpu.architecture.name === "sm_80" ? 80 : 90,
      multiprocessors: gpu.multiprocessors,
      // Only addresses are needed, for models of any size.
      memory_mib: 1 << 20,
    }),
    ...(cublaslt ? await emulatedCublasLt() : {}),
    ...(flash ? await emulatedFlashAttention() : {}),
    FORGE_EMULATOR_SEED: "0",
  };
  const hash = createHash("sha256").update(Deno.readFileSync(library));
  const digest = hash.update(JSON.stringify([request, env])).digest("hex").slice(0, 32);
  const kept = join(root, "build", "gpu_model", `plan-${digest}.json`);
  try {
    return JSON.parse(Deno.readTextFileSync(kept)) as PlannedStep[];
  } catch (error) {
    if (!(error instanceof Deno.errors.NotFound)) throw error;
  }
  const log = Deno.makeTempFileSync({ prefix: "forge-launches-" });
  try {
    const { success, stdout, stderr } = await new Deno.Command(Deno.execPath(), {
      args: [
        ...["run", "--quiet", "--no-check", "-A", join(root, "bench", "gpu_model", "dry_run.ts")],
        JSON.stringify(request),
      ],
      env: { ...env, FORGE_FAKE_CUDA_LAUNCHES: log },
      stdin: "null",
    }).output();
    const decoder = new TextDecoder();
    if (!success) throw new Error(`a dry run failed: ${decoder.decode(stderr)}`);
    const logged = Deno.readFileSync(log);
    const steps = (JSON.parse(decoder.decode(stdout)) as DryRunStep[]).map((step) => ({
      launches: withGrids(step, decoder.decode(logged.slice(...step.log))),
      batch: step.batch,
    }));
    Deno.mkdirSync(join(root, "build", "gpu_model"), { recursive: true });
    await writeWhole(kept, JSON.stringify(steps));
    return steps;
  } finally {
    Deno.removeSync(log);
  }
}

/**
 * Joins the launches of operations with their grids in the log; both are in the order of running.
 */
function withGrids({ launches }: DryRunStep, log: string): Launch[] {
  const lines = log.split("\n").filter((line) => line !== "")
    .map((line) => JSON.parse(line) as LogLine)
    .filter(({ kernel }) => kernel !== undefined);
  let at = 0;
  const joined = launches.map((launch): Launch => {
    const line = lines[at]?.kernel === launch.kernel ? lines[at++] : undefined;
    const { grid = [0, 0, 0], block = 0, shared = 0 } = line ?? {};
    return { ...launch, blocks: grid[0] * grid[1] * grid[2], threads: block, shared, count: 1 };
  });
  if (at < lines.length) {
    throw new Error(`the log has ${lines[at]?.kernel}, which no step launched`);
  }
  return shareWork(joined);
}

/** Kernels that do the work of an operation with several launches. */
const WORKERS = /matvec|gemm|attention|cublas|flash|chunk_maxima/i;

/** Gives the work of each operation, which its first launch has, to the launches that do it. */
function shareWork(launches: readonly Launch[]): Launch[] {
  const operations: Launch[][] = [];
  for (const launch of launches) {
    const current = operations.at(-1);
    const continues = launch.bytes === 0 && current?.[0]?.operation === launch.operation;
    if (continues) current.push(launch);
    else operations.push([launch]);
  }
  return operations.flatMap((group) => {
    const { bytes, flops } = group[0]!;
    const isWorker = ({ kernel }: Launch) => WORKERS.test(kernel) && !/merge/.test(kernel);
    const workers = group.some(isWorker) ? group.filter(isWorker) : group.slice(0, 1);
    const all = workers.reduce((sum, { blocks }) => sum + Math.max(1, blocks), 0);
    return group.map((launch) => {
      const part = workers.includes(launch) ? Math.max(1, launch.blocks) / all : 0;
      return { ...launch, bytes: Math.round(bytes * part), flops: Math.round(flops * part) };
    });
  });
}
