/**
 * The kernel that computes a whole step (csrc/cuda/step_kernel.cpp): its source, as the library
 * writes it in a dry run, and the order of waits and accesses in its machine code.
 */
import { join } from "@std/path";
import type { SyntheticType } from "../../src/bench/synthetic/shapes.ts";
import { type DeviceSource, deviceSources } from "../../test/emulator/nvrtc.ts";
import type { DryRunRequest } from "./dry_run.ts";
import { keptDryRun, runDry } from "./launches.ts";
import { type Instruction, MachineCode } from "./machine_code.ts";
import { type ModelledModel, type Step, withLayers } from "./models.ts";
import type { NvidiaGpu } from "./nvidia.ts";

/** The kernel of a step, or those of several. */
export interface StepKernel {
  readonly sources: readonly DeviceSource[];
  /** Kernels that are its operations, as in `rope_append<f16>`. */
  readonly operations: ReadonlySet<string>;
  /** Of a block. */
  readonly threads: number;
  /** Blocks of a multiprocessor that its registers allow. */
  readonly blocks: number;
}

/**
 * Returns the kernel that the library writes for steps of a model on a GPU.
 *
 * @throws {Error} if it writes none
 */
export async function stepKernel(
  model: ModelledModel,
  type: SyntheticType,
  gpu: NvidiaGpu,
  steps: readonly Step[],
): Promise<StepKernel> {
  const request = { spec: withLayers(model, type, 1), steps, ranks: 1 };
  const libraries = { flash: false, cublaslt: false };
  return parseSource(
    await keptDryRun("-step.cu", request, gpu, libraries, (env) => writeKernels(request, env)),
  );
}

/** Returns the sources that the library writes in a dry run, those that the steps launch. */
async function writeKernels(request: DryRunRequest, env: Record<string, string>): Promise<string> {
  const folder = Deno.makeTempDirSync({ prefix: "forge-step-kernel-" });
  try {
    const path = join(folder, "step_kernel.cu");
    const done = await runDry(request, {
      ...env,
      // An empty cache, so that the kernel is compiled.
      FORGE_CACHE: folder,
      FORGE_CUDA_PERSISTENT: "1",
      FORGE_FAKE_CUDA_LAUNCHES: join(folder, "launches"),
      FORGE_FAKE_NVRTC_STEP: path,
    });
    // A model also has kernels for the other shapes of steps that it may run.
    return sourcesOf(Deno.readTextFileSync(path)).filter((source) => {
      const operations = operationsOf(source);
      return done.some(({ launches }) =>
        operations.isSubsetOf(new Set(launches.map(({ kernel }) => kernel)))
      );
    }).join("");
  } finally {
    Deno.removeSync(folder, { recursive: true });
  }
}

/** Splits the sources that the stand-in for NVRTC writes, each after a line with its name. */
function sourcesOf(text: string): string[] {
  return text.split(/^(?=\/\/! )/m);
}

function operationsOf(text: string): Set<string> {
  return new Set(Array.from(text.matchAll(/\bOperation<&(.*)>::call\(/g), ([, name]) => name!));
}

function parseSource(text: string): StepKernel {
  const files = deviceSources();
  // It includes the files of its operations.
  const headers = new Map([
    ...files[0]?.headers ?? [],
    ...files.map((file) => [file.name, file.text] as const),
  ]);
  const operations = operationsOf(text);
  const [, threads, blocks] = /launch_bounds\((\d+), (\d+)\)/.exec(text) ?? [];
  if (operations.size === 0 || blocks === undefined) throw new Error(`no step kernel:\n${text}`);
  return {
    // By the name that the library gives NVRTC, which no file that they include may have.
    sources: sourcesOf(text).map((one) => ({
      name: /^\/\/! (.*)/.exec(one)?.[1] ?? "",
      text: one,
      headers,
    })),
    operations,
    threads: Number(threads),
    blocks: Number(blocks),
  };
}

/** Requests of an operation of a step kernel before it waits for the operation before. */
export interface Wait {
  /** Loads of 16 bytes of weights, the only memory that is read as constant. */
  readonly weights: number;
  /** Asynchronous copies to shared memory: of weights in products with rings. */
  readonly copies: number;
  /** Other accesses to global memory. */
  readonly early: readonly string[];
}

/** The waits of a step kernel, one an operation, and what its machine code does without them. */
export interface Waits {
  readonly waits: readonly Wait[];
  /** Other accesses to global memory that a thread reaches without a wait of their operation. */
  readonly unordered: readonly string[];
  /** Waits after which a block may find old values in L1, or read before others stored. */
  readonly unfenced: number;
}

const ACCESS = /^(LD|LDG|LDGSTS|ST|STG|ATOM|ATOMG|RED|REDG|UBLKCP|UTMALDG)$/;
const CONSTANT = /^LDG\S*\.CONSTANT\b/;
const COPY = /^LDGSTS\b/;
/** The counters of arrivals: the arrival, the last one to leave, and the zeros that it stores. */
const COUNTERS = /^(REDG?|ATOMG)\.E\.ADD\.STRONG\.GPU\b|^STG\.E .*, RZ$/;

function textOf({ opcode, operands }: Instruction): string {
  return `${opcode} ${operands}`;
}

function accesses(instructions: readonly Instruction[]): string[] {
  return instructions.filter(({ name }) => ACCESS.test(name)).map(textOf);
}

/** Returns what a step kernel's machine code does before and without its waits. */
export function measureWaits(code: string): Waits {
  const { blocks } = MachineCode.parse(code);
  const isSpin = ({ opcode }: Instruction) => /^LDG\.\S*\bSTRONG\.GPU$/.test(opcode);
  const spins = blocks.flatMap(({ instructions }, i) => instructions.some(isSpin) ? [i] : []);
  // A thread asks shared memory for the counter; only the first of a block then reads it.
  const asks = new Map<number, number>();
  for (const spin of spins) {
    const { reads } = blocks[spin]!.instructions.find(isSpin)!;
    const address = reads.findLast((register) => register.startsWith("R"));
    for (let at = spin; at >= 0; --at) {
      const place = blocks[at]!.instructions.findLastIndex(({ opcode, writes }) =>
        opcode === "LDS.64" && writes.includes(address ?? "")
      );
      if (place < 0) continue;
      asks.set(at, place);
      break;
    }
  }
  return {
    waits: spins.map((spin) => {
      const all = accesses(instructionsBefore(blocks, spin).filter((one) => !isSpin(one)));
      const weights = all.filter((one) => CONSTANT.test(one) && one.includes(".128")).length;
      const copies = all.filter((one) => COPY.test(one)).length;
      const early = all.filter((one) => !CONSTANT.test(one) && !COPY.test(one));
      return { weights, copies, early };
    }),
    unordered: accesses(instructionsWithout(blocks, asks))
      .filter((one) => ![CONSTANT, COPY, COUNTERS].some((pattern) => pattern.test(one))),
    unfenced: spins.filter((spin) => !isFenced(blocks, spin)).length,
  };
}

type Blocks = MachineCode["blocks"];

/** Returns the instructions on all ways from a barrier of the block to a block of instructions. */
function instructionsBefore(blocks: Blocks, to: number): Instruction[] {
  const result: Instruction[] = [], reached = new Set<number>(), stack = [to];
  while (stack.length > 0) {
    const at = stack.pop()!;
    if (reached.has(at)) continue;
    reached.add(at);
    const { instructions } = blocks[at]!;
    const barrier = instructions.findLastIndex(({ name }) => name === "BAR");
    result.push(...instructions.slice(barrier + 1));
    if (barrier >= 0) continue;
    blocks.forEach(({ successors }, from) => successors.includes(at) && stack.push(from));
  }
  return result;
}

/** Returns the instructions that are reached from the entry without the places `asks`. */
function instructionsWithout(blocks: Blocks, asks: ReadonlyMap<number, number>): Instruction[] {
  const result: Instruction[] = [], reached = new Set<number>(), stack = [0];
  while (stack.length > 0) {
    const at = stack.pop()!;
    if (reached.has(at)) continue;
    reached.add(at);
    const { instructions, successors } = blocks[at]!;
    result.push(...instructions.slice(0, asks.get(at)));
    if (!asks.has(at)) stack.push(...successors);
  }
  return result;
}

/** True if a fence and the end of what L1 holds follow a wait before any access. */
function isFenced(blocks: Blocks, spin: number): boolean {
  const next = blocks[spin]!.successors.filter((to) => to !== spin);
  return next.length === 1 && next.every((to) => {
    const after = blocks[to]!.instructions;
    const fence = after.findIndex(({ opcode }) => /^MEMBAR\.\S+\.GPU$/.test(opcode));
    const drop = after.findIndex(({ opcode }) => opcode === "CCTL.IVALL");
    return fence >= 0 && drop > fence && accesses(after.slice(0, drop)).length === 0;
  });
}
