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
import { makeOnce } from "../../test/support/make_once.ts";
import { root } from "../root.ts";
import type { DryRunRequest, DryRunStep, OperationLaunch } from "./dry_run.ts";
import { type ModelledModel, type Step, withLayers } from "./models.ts";
import type { NvidiaGpu } from "./nvidia.ts";

/** The division of a product of decoded tokens among blocks (`Tiling` of cuda_arguments.h). */
export interface Tiling {
  /** Parts of the columns. */
  readonly parts: number;
  /** Rows of a tile. */
  readonly rows: number;
  /** Slices of the columns that a block with a ring computes at once. */
  readonly slices: number;
  /** Stages of a block's ring; 0 without one. */
  readonly stages: number;
}

/** Equal launches of a step. */
export interface Launch extends OperationLaunch {
  /** Number of blocks; 0 for a library. */
  readonly blocks: number;
  /** Threads of a block. */
  readonly threads: number;
  /** Dynamic shared memory of a block. */
  readonly shared: number;
  /** Of products of decoded tokens, but those with experts. */
  readonly tiling?: Tiling;
  /** The rows of x that its blocks convert before they multiply them (`SharedConversion`). */
  readonly converted?: "none" | "normed" | "plain";
  /** Of the epilogue of a library's product. */
  readonly epilogue?: {
    readonly tokens: number;
    /** False if it leaves rows without a scale as the library wrote them. */
    readonly changes: boolean;
  };
  readonly count: number;
  /** The launch before it; undefined for the first one of a step. */
  readonly before?: Omit<Launch, "before">;
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
  /** Index of the device. */
  readonly device?: number;
  /** Parameters as hexadecimal bytes. */
  readonly arguments?: readonly string[];
}

/**
 * Returns the launches of steps of a whole model. Models of one and of two layers are planned; the
 * other layers are like the difference.
 *
 * @param ranks number of GPUs that divide every layer; the launches are those of one
 * @throws {ForgeError} `not_found` without a CUDA library
 */
export async function planSteps(
  model: ModelledModel,
  type: SyntheticType,
  gpu: NvidiaGpu,
  steps: readonly Step[],
  libraries: Libraries,
  ranks = 1,
): Promise<PlannedStep[]> {
  const one = await dryRun({ spec: withLayers(model, type, 1), steps, ranks }, gpu, libraries);
  const two = await dryRun({ spec: withLayers(model, type, 2), steps, ranks }, gpu, libraries);
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

/**
 * Returns a text that the library makes in dry runs for a GPU; kept on disk by the bytes of the
 * library.
 *
 * @param suffix of the file that keeps it
 * @param make gets the environment of the runs
 * @throws {ForgeError} `not_found` without a CUDA library
 */
export async function keptDryRun(
  suffix: string,
  request: DryRunRequest,
  gpu: NvidiaGpu,
  { flash, cublaslt }: Libraries,
  make: (env: Record<string, string>) => Promise<string>,
): Promise<string> {
  const library = findLibrary("cuda");
  if (library === undefined) {
    throw new ForgeError("not_found", "there is no CUDA library; build it with: deno task build");
  }
  const env: Record<string, string> = {
    ...await emulatedGpu({
      architecture: gpu.architecture.name === "sm_80" ? 80 : 90,
      multiprocessors: gpu.multiprocessors,
      l2_kib: gpu.l2Bytes / 1024,
      devices: request.ranks,
      // Only addresses are needed, for models of any size.
      memory_mib: 1 << 20,
    }),
    ...(cublaslt ? await emulatedCublasLt() : {}),
    ...(flash ? await emulatedFlashAttention() : {}),
    FORGE_EMULATOR_SEED: "0",
  };
  const hash = createHash("sha256").update(Deno.readFileSync(library));
  const digest = hash.update(JSON.stringify([request, env])).digest("hex").slice(0, 32);
  const kept = join(root, "build", "gpu_model", `${digest}${suffix}`);
  await makeOnce(kept, async (path) => await Deno.writeTextFile(path, await make(env)));
  return await Deno.readTextFile(kept);
}

/** Returns the steps of a request. */
async function dryRun(
  request: DryRunRequest,
  gpu: NvidiaGpu,
  libraries: Libraries,
): Promise<PlannedStep[]> {
  const text = await keptDryRun(".json", request, gpu, libraries, async (env) => {
    const log = Deno.makeTempFileSync({ prefix: "forge-launches-" });
    try {
      const done = await runDry(request, { ...env, FORGE_FAKE_CUDA_LAUNCHES: log });
      const logged = Deno.readFileSync(log);
      const decoder = new TextDecoder();
      const steps = done.map((step) => ({
        launches: withGrids(step, decoder.decode(logged.slice(...step.log)), request.ranks - 1),
        batch: step.batch,
      }));
      return JSON.stringify(steps);
    } finally {
      Deno.removeSync(log);
    }
  });
  return JSON.parse(text) as PlannedStep[];
}

/** Runs the program of dry runs, which logs launches to FORGE_FAKE_CUDA_LAUNCHES. */
export async function runDry(
  request: DryRunRequest,
  env: Record<string, string>,
): Promise<DryRunStep[]> {
  const { success, stdout, stderr } = await new Deno.Command(Deno.execPath(), {
    args: [
      ...["run", "--quiet", "--no-check", "-A", join(root, "bench", "gpu_model", "dry_run.ts")],
      JSON.stringify(request),
    ],
    env,
    stdin: "null",
  }).output();
  const decoder = new TextDecoder();
  if (!success) throw new Error(`a dry run failed: ${decoder.decode(stderr)}`);
  return JSON.parse(decoder.decode(stdout)) as DryRunStep[];
}

/**
 * Joins the launches of operations with their grids in the log, those of one device; both are in
 * the order of running.
 */
function withGrids({ launches }: DryRunStep, log: string, device: number): Launch[] {
  const all = log.split("\n").filter((line) => line !== "")
    .map((line) => JSON.parse(line) as LogLine)
    .filter(({ kernel, device: of }) => kernel !== undefined && of === device);
  let at = 0;
  const lines = launches.map(({ kernel }) => all[at]?.kernel === kernel ? all[at++] : undefined);
  if (at < all.length) {
    throw new Error(`the log has ${all[at]?.kernel}, which no step launched`);
  }
  const joined = launches.map((launch, i): Launch => {
    const { grid = [0, 0, 0], block = 0, shared = 0, arguments: parameters } = lines[i] ?? {};
    const blocks = grid[0] * grid[1] * grid[2];
    const hasTiling = /^(gated_)?decode_gemm</.test(launch.kernel);
    return {
      ...launch,
      ...{ blocks, threads: block, shared, count: 1 },
      ...(hasTiling && {
        tiling: parseTiling(parameters?.[2] ?? ""),
        converted: parseConverted(parameters?.[3] ?? ""),
      }),
      ...(launch.kernel === "epilogue" && {
        epilogue: { tokens: grid[1], changes: changesRows(parameters ?? []) },
      }),
    };
  });
  const shared = shareWork(joined);
  return shared.map((launch, i) => i === 0 ? launch : { ...launch, before: shared[i - 1]! });
}

/** Returns the numbers after two addresses. */
function parseTiling(hexadecimal: string): Tiling {
  const bytes = new DataView(Uint8Array.fromHex(hexadecimal).buffer);
  const [parts = 1, rows = 0, slices = 1, stages = 0] = [16, 20, 24, 28]
    .map((at) => bytes.getUint32(at, true));
  return { parts, rows, slices, stages };
}

/** Returns the rows of a conversion, whose third and fourth addresses are x and its norm. */
function parseConverted(hexadecimal: string): "none" | "normed" | "plain" {
  const bytes = new DataView(Uint8Array.fromHex(hexadecimal).buffer);
  if (bytes.getBigUint64(16, true) === 0n) return "none";
  return bytes.getBigUint64(24, true) === 0n ? "plain" : "normed";
}

/** True if an epilogue moves or changes the rows of a `LibraryProduct` (cuda_arguments.h). */
function changesRows([product = "", epilogue = ""]: readonly string[]): boolean {
  const addresses = new DataView(Uint8Array.fromHex(product).buffer);
  const added = new DataView(Uint8Array.fromHex(epilogue).buffer);
  const isInPlace = addresses.getBigUint64(0, true) === addresses.getBigUint64(8, true);
  const bias = added.getBigUint64(0, true), residual = added.getBigUint64(8, true);
  const alpha = added.getFloat32(16, true), activation = added.getUint32(20, true);
  return !isInPlace || bias !== 0n || residual !== 0n || alpha !== 1 || activation !== 0;
}

/** Kernels that do the work of an operation with several launches. */
const WORKERS = /matvec|gemm|attention|cublas|flash|summarize_logits/i;

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
