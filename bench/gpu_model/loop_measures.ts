/**
 * Measures of machine code that bound its speed: the work of a loop's iteration by pipe, the bytes
 * it streams from memory, and the clocks that a warp waits for loads.
 */
import type { Instruction, Loop, MachineCode } from "./machine_code.ts";
import { type Architecture, ISSUE_PER_CLOCK, type Latencies, type Pipe, PIPES } from "./nvidia.ts";

/** Lanes of a warp. */
const LANES = 32;

/** The level of memory that serves a load. */
export type LoadKind = "memory" | "cached" | "shared";

/** Returns the kind of a load, or undefined for other instructions. */
export function loadKind({ name, opcode }: Instruction): LoadKind | undefined {
  if (/^(LDGSTS|UBLKCP|UTMALDG)$/.test(name)) return "memory";
  // Kernels bypass L1 for what they read once. Small scales share lines, but come from memory, too.
  if (name === "LDG") return /\.NA\b|\.(U8|U16|S8|S16)\b/.test(opcode) ? "memory" : "cached";
  if (name === "LD" || name === "ATOMG" || name === "ATOM") return "cached";
  return /^(LDS|LDSM|SHFL|ATOMS)$/.test(name) ? "shared" : undefined;
}

function isGlobal(instruction: Instruction): boolean {
  return ["memory", "cached"].includes(loadKind(instruction) ?? "");
}

/** Bytes that a lane's load requests. */
function bytesPerLane({ opcode }: Instruction): number {
  if (/\.128\b/.test(opcode)) return 16;
  if (/\.64\b/.test(opcode)) return 8;
  if (/\.(U8|S8)\b/.test(opcode)) return 1;
  return /\.(U16|S16)\b/.test(opcode) ? 2 : 4;
}

/**
 * Bytes that a warp streams from memory with one instruction. Bulk copies' sizes are in registers:
 * 0.
 */
export function streamedBytes(instruction: Instruction): number {
  if (loadKind(instruction) !== "memory" || /^U/.test(instruction.name)) return 0;
  return LANES * bytesPerLane(instruction);
}

const FMA = /^(FFMA|FADD|FMUL|HFMA2|HADD2|HMUL2|FSWZADD)$/;
const IMAD = /^(IMAD|IDP|IDP4A|XMAD|IMUL)$/;
const XU = /^(MUFU|I2F|F2I|F2F|FRND|POPC|FLO|BREV)$/;
const LSU = /^(LD|ST|LDG|STG|LDS|STS|LDSM|STSM|LDGSTS|LDL|STL|ATOM|ATOMG|ATOMS|RED|REDG|SHFL)$/;
/** Only occupy an issue slot. */
const CONTROL =
  /^(U\w+|R2UR|BRA|BRX|EXIT|RET|CALL|BSSY|BSYNC|BREAK|NOP|BAR|DEPBAR|LDGDEPBAR|WARPSYNC|MEMBAR|ERRBAR|CCTL|SYNCS|WARPGROUP|FENCE|ACQBULK|PREEXIT|NANOSLEEP|YIELD|LDC|S2R|CS2R|S2UR|ELECT|VOTE|VOTEU|BMOV)$/;

/** Multiply-adds per warp of a tensor-core instruction. */
function tensorProducts({ opcode }: Instruction): number {
  const group = /\.64x(\d+)x(\d+)/.exec(opcode);
  if (group !== null) return 64 * Number(group[1]) * Number(group[2]) / 4;
  const shape = /\.(16)(8)(\d\d?)\b/.exec(opcode);
  return shape === null ? 0 : 16 * 8 * Number(shape[3]);
}

/** Clocks of each pipe of a multiprocessor that one warp instruction occupies. */
export function pipeClocks(
  instruction: Instruction,
  { rates }: Architecture,
): Partial<Record<Pipe, number>> {
  const { name, opcode } = instruction;
  const issue = 1 / ISSUE_PER_CLOCK;
  if (FMA.test(name)) return { issue, fma: LANES / rates.fma };
  if (IMAD.test(name)) return { issue, fma: LANES / rates.imad };
  if (XU.test(name)) return { issue, xu: LANES / rates.xu };
  if (name === "HGMMA" || name === "QGMMA" || name === "IGMMA") {
    const twice = name === "HGMMA" ? 1 : 2;
    return { issue, tensor: tensorProducts(instruction) / rates.wgmma / twice };
  }
  if (name === "HMMA") return { issue, tensor: tensorProducts(instruction) / rates.mma };
  if (name === "IMMA") return { issue, tensor: tensorProducts(instruction) / rates.mma / 2 };
  if (LSU.test(name)) {
    const lanes = LANES / rates.lsu;
    if (name === "SHFL") return { issue, lsu: lanes };
    const matrices = Number(/\.(\d)$/.exec(opcode)?.[1] ?? 1);
    const bytes = name === "LDSM" || name === "STSM"
      ? 128 * matrices
      : LANES * bytesPerLane(instruction);
    return { issue, lsu: Math.max(lanes, bytes / rates.l1Bytes) };
  }
  if (CONTROL.test(name)) return { issue };
  return { issue, alu: LANES / rates.alu };
}

/** Latency of a load in clocks. */
function latencyOf(kind: LoadKind, latencies: Latencies, inLoop: boolean): number {
  if (kind === "shared") return latencies.shared;
  if (kind === "memory") return latencies.memory;
  // In a loop, cached lines have been loaded by an earlier warp or iteration.
  return inLoop ? latencies.l1 : latencies.l2;
}

/**
 * The clock of one warp that computes in no time and waits only for loads. Loads complete when an
 * instruction reads their registers; asynchronous copies when `DEPBAR` waits for their group.
 */
export class LoadClock {
  /** Clocks waited so far. */
  now = 0;
  /** Waits for loads from global memory so far. */
  waits = 0;
  readonly #ready = new Map<string, number>();
  #group = 0;
  readonly #groups: number[] = [];

  constructor(readonly latencies: Latencies, readonly inLoop: boolean) {}

  step(instruction: Instruction): void {
    for (const register of instruction.reads) this.#await(this.#ready.get(register));
    const { name } = instruction;
    const kind = loadKind(instruction);
    if (kind === "memory" && name === "LDGSTS") {
      this.#group = this.now + latencyOf(kind, this.latencies, this.inLoop);
    } else if (name === "LDGDEPBAR") {
      this.#groups.push(this.#group);
      this.#group = 0;
    } else if (name === "DEPBAR") {
      // `DEPBAR.LE SB0, N` waits until at most N groups are in flight.
      const left = groupsLeft(instruction);
      while (this.#groups.length > left) this.#await(this.#groups.shift());
    }
    for (const register of instruction.writes) {
      if (kind === undefined) this.#ready.delete(register);
      else this.#ready.set(register, this.now + latencyOf(kind, this.latencies, this.inLoop));
    }
  }

  #await(time: number | undefined): void {
    if (time === undefined || time <= this.now) return;
    // Shared memory answers in a few clocks, which other warps fill.
    if (time - this.now > this.latencies.shared) this.waits++;
    this.now = time;
  }
}

/** The measures of one iteration of a loop, for one warp. */
export interface LoopMeasures {
  readonly depth: number;
  readonly instructions: number;
  /** Clocks of each pipe of a multiprocessor. */
  readonly pipes: Readonly<Record<Pipe, number>>;
  /** Bytes requested from memory that bypass L1. */
  readonly streamed: number;
  /** Bytes of other global loads, which L1 may hold. */
  readonly cached: number;
  /** Multiply-adds of tensor cores. */
  readonly products: number;
  /** Global loads of any kind. */
  readonly loads: number;
  /** Clocks that the warp waits for loads, without any other work. */
  readonly latency: number;
  /** The same if L2 has the bytes that it streams. */
  readonly latencyFromL2: number;
  /** Waits for global loads in turn: each exposes a latency if no other warp has work. */
  readonly roundTrips: number;
  /**
   * Iterations whose asynchronous copies are in flight together, in a loop that streams by one
   * group of them an iteration: a ring of stages in shared memory, of which one is free. 0 in other
   * loops.
   */
  readonly ring: number;
  /** Opcode names and their counts, most frequent first. */
  readonly mix: readonly (readonly [string, number])[];
}

/** Iterations simulated before and during the measurement of waits. */
const WARM_UP = 4, MEASURED = 8;

/** The path through a loop that counts: with the most streamed bytes, or the most loads. */
export type Way = "streams" | "loads";

/**
 * Returns the measures of a loop. Of the paths through its body, that with the most streamed bytes
 * counts, of those the one with the most products of tensor cores, since warps without tokens skip
 * them, and of those the shortest; in a loop that streams nothing, that with the most loads. Loops
 * inside it count as one iteration.
 */
export function measureLoop(
  code: MachineCode,
  loop: Loop,
  architecture: Architecture,
  latencies: Latencies,
  way: Way = "streams",
): LoopMeasures {
  const path = pathThrough(code, loop, way);
  const pipes = Object.fromEntries(PIPES.map((pipe) => [pipe, 0])) as Record<Pipe, number>;
  const counts = new Map<string, number>();
  for (const instruction of path) {
    counts.set(instruction.name, (counts.get(instruction.name) ?? 0) + 1);
    for (const [pipe, clocks] of Object.entries(pipeClocks(instruction, architecture))) {
      pipes[pipe as Pipe] += clocks;
    }
  }
  return {
    depth: loop.depth,
    instructions: path.length,
    pipes,
    streamed: sum(path.map(streamedBytes)),
    cached: sum(path.map((one) => loadKind(one) === "cached" ? LANES * bytesPerLane(one) : 0)),
    products: sum(path.map(tensorProducts)),
    loads: path.filter(isGlobal).length,
    ...measureWaits(path, latencies),
    latencyFromL2: measureWaits(path, { ...latencies, memory: latencies.l2 }).latency,
    ring: ringOf(path),
    mix: [...counts].sort((a, b) => b[1] - a[1]),
  };
}

/** Groups of copies that `DEPBAR.LE SB0, N` leaves in flight. */
function groupsLeft({ operands }: Instruction): number {
  return parseInt(/SB0, 0x([0-9a-f]+)/.exec(operands)?.[1] ?? "0", 16);
}

function ringOf(path: readonly Instruction[]): number {
  const waits = path.filter(({ name }) => name === "DEPBAR");
  const groups = path.filter(({ name }) => name === "LDGDEPBAR");
  const isCopied = path.every((one) => one.name === "LDGSTS" || streamedBytes(one) === 0);
  if (waits.length !== 1 || groups.length !== 1 || !isCopied) return 0;
  return groupsLeft(waits[0]!) + 1;
}

/** Returns the waits of an iteration. */
function measureWaits(
  path: readonly Instruction[],
  latencies: Latencies,
): Pick<LoopMeasures, "latency" | "roundTrips"> {
  const clock = new LoadClock(latencies, true);
  const run = (iterations: number) => {
    for (let i = 0; i < iterations; i++) for (const instruction of path) clock.step(instruction);
    return { now: clock.now, waits: clock.waits };
  };
  const before = run(WARM_UP), after = run(MEASURED);
  return {
    latency: (after.now - before.now) / MEASURED,
    roundTrips: (after.waits - before.waits) / MEASURED,
  };
}

/** A way through blocks. More bytes win, then more products, then fewer instructions. */
interface Path {
  readonly bytes: number;
  readonly products: number;
  readonly length: number;
  readonly blocks: readonly number[];
}

function better(a: Path | undefined, b: Path): Path {
  if (a === undefined) return b;
  if (b.bytes !== a.bytes) return b.bytes > a.bytes ? b : a;
  if (b.products !== a.products) return b.products > a.products ? b : a;
  return b.length < a.length ? b : a;
}

/** Returns the instructions of an iteration, in the order of execution. */
function pathThrough(code: MachineCode, loop: Loop, way: Way): Instruction[] {
  const inside = [...loop.blocks].flatMap((at) => code.blocks[at]!.instructions);
  const loaded = (one: Instruction) => isGlobal(one) ? bytesPerLane(one) : 0;
  const streams = way === "streams" && inside.some((one) => streamedBytes(one) > 0);
  const bytes = streams ? streamedBytes : loaded;
  const best = bestPaths(code, loop, bytes);
  const ends = loop.latches.flatMap((latch) => best.get(latch) ?? []);
  const path = ends.reduce<Path | undefined>(better, undefined);
  return (path?.blocks ?? [...loop.blocks]).flatMap((at) => code.blocks[at]!.instructions);
}

/** Returns the best path from a loop's header to each of its blocks, ignoring branches back. */
function bestPaths(
  code: MachineCode,
  { header, blocks }: Pick<Loop, "header" | "blocks">,
  bytes: (instruction: Instruction) => number,
): Map<number, Path> {
  const extend = (path: Path, at: number): Path => {
    const { instructions } = code.blocks[at]!;
    return {
      bytes: path.bytes + sum(instructions.map(bytes)),
      products: path.products + sum(instructions.map(tensorProducts)),
      length: path.length + instructions.length,
      blocks: [...path.blocks, at],
    };
  };
  const none: Path = { bytes: 0, products: 0, length: 0, blocks: [] };
  const best = new Map([[header, extend(none, header)]]);
  for (const at of forwardOrder(code, header, blocks)) {
    const path = best.get(at);
    if (path === undefined) continue;
    for (const next of code.blocks[at]!.successors) {
      if (!blocks.has(next) || isBack(code, at, next) || next === header) continue;
      best.set(next, better(best.get(next), extend(path, next)));
    }
  }
  return best;
}

function isBack(code: MachineCode, from: number, to: number): boolean {
  return code.loops.some((loop) => loop.header === to && loop.latches.includes(from));
}

/** Returns blocks in an order in which each comes after those that lead to it. */
function forwardOrder(code: MachineCode, start: number, within: ReadonlySet<number>): number[] {
  const order: number[] = [], seen = new Set<number>();
  const visit = (at: number) => {
    seen.add(at);
    for (const next of code.blocks[at]!.successors) {
      if (within.has(next) && !seen.has(next) && !isBack(code, at, next)) visit(next);
    }
    order.unshift(at);
  };
  visit(start);
  return order;
}

/** The beginning of a kernel, up to the first byte that it streams. */
export interface StartMeasures {
  /**
   * Global loads that must complete one after another, before the first streamed load is issued.
   */
  readonly hops: number;
  /** Instructions before the first streamed load. */
  readonly instructions: number;
  /** Bytes that a warp requests before it waits for the previous kernel. */
  readonly early: number;
}

/** Returns the measures of the way to the first streamed load; undefined if there is none. */
export function measureStart(code: MachineCode, latencies: Latencies): StartMeasures | undefined {
  const isStream = (one: Instruction) =>
    streamedBytes(one) > 0 || /^(UBLKCP|UTMALDG)$/.test(one.name);
  const ways = [...shortestPaths(code)].flatMap(([at, path]) =>
    code.blocks[at]!.instructions.some(isStream)
      ? [path.flatMap((index) => code.blocks[index]!.instructions)]
      : []
  );
  const shortest = ways.toSorted((a, b) => a.findIndex(isStream) - b.findIndex(isStream))[0];
  if (shortest === undefined) return undefined;
  const before = shortest.slice(0, shortest.findIndex(isStream) + 1);
  const clock = new LoadClock(latencies, false);
  for (const instruction of before) clock.step(instruction);
  return { hops: clock.waits, instructions: before.length, early: earlyBytes(code) };
}

/** Returns the most bytes that a way streams up to the wait for the previous kernel. */
function earlyBytes(code: MachineCode): number {
  const isWait = ({ name }: Instruction) => name === "ACQBULK";
  const whole = { header: 0, blocks: new Set(code.blocks.keys()) };
  for (const [at, { bytes }] of bestPaths(code, whole, streamedBytes)) {
    const { instructions } = code.blocks[at]!;
    const wait = instructions.findIndex(isWait);
    if (wait >= 0) return bytes - sum(instructions.slice(wait).map(streamedBytes));
  }
  return 0;
}

/** The end of a kernel, from its wait for the previous kernel on. */
export interface EndMeasures {
  readonly instructions: number;
  /** Global loads that must complete one after another. */
  readonly hops: number;
}

/**
 * Returns the measures of the way after the wait for the previous kernel that has the most global
 * loads; loops run once. Undefined without a wait.
 */
export function measureEnd(code: MachineCode, latencies: Latencies): EndMeasures | undefined {
  const whole = { header: 0, blocks: new Set(code.blocks.keys()) };
  const loaded = (one: Instruction) => isGlobal(one) ? bytesPerLane(one) : 0;
  const ways = [...bestPaths(code, whole, loaded).values()]
    .map(({ blocks }) => blocks.flatMap((at) => code.blocks[at]!.instructions))
    .filter((way) => way.at(-1)?.name === "EXIT");
  const most = ways.toSorted((a, b) => sum(b.map(loaded)) - sum(a.map(loaded)))[0] ?? [];
  const wait = most.findIndex(({ name }) => name === "ACQBULK");
  if (wait < 0) return undefined;
  const after = most.slice(wait + 1);
  const clock = new LoadClock(latencies, false);
  for (const instruction of after) clock.step(instruction);
  return { instructions: after.length, hops: clock.waits };
}

/** Returns the path with the fewest blocks from the entry to each block. */
function shortestPaths(code: MachineCode): Map<number, number[]> {
  const paths = new Map<number, number[]>([[0, [0]]]);
  for (const [at, path] of paths) {
    for (const next of code.blocks[at]!.successors) {
      if (!paths.has(next)) paths.set(next, [...path, next]);
    }
  }
  return paths;
}

function sum(values: readonly number[]): number {
  return values.reduce((a, b) => a + b, 0);
}
