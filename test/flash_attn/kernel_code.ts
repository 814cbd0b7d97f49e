/**
 * Measures of the kernels' machine code: products of SM90 (HGMMA and QGMMA), which ptxas may
 * reorder, and copies and loads. Instructions are taken in the order of addresses, which is
 * sufficient here: backward branches of the kernels come after the waits.
 */
import {
  type Instruction,
  MachineCode,
  parseInstruction,
} from "../../bench/gpu_model/machine_code.ts";

/** Returns the instructions of a kernel in nvdisasm's format, in the order of addresses. */
export function instructionsOf(text: string): Instruction[] {
  return Array.from(
    text.matchAll(/^\s*\/\*[0-9a-f]{4,}\*\/\s+([^;]*);/gm),
    ([, instruction = ""]) => parseInstruction(instruction),
  );
}

/** Number of groups of products that may be in flight after a wait; undefined if not a wait. */
function pendingAfter({ opcode, operands }: Instruction): number | undefined {
  if (opcode !== "WARPGROUP.DEPBAR.LE") return undefined;
  return Number(/0x([0-9a-f]+)/.exec(operands)?.[1]);
}

/** True for a product of a warpgroup, of numbers of 16 or 8 bits. */
function isGroupProduct({ name }: Instruction): boolean {
  return name === "HGMMA" || name === "QGMMA";
}

/** True for the last product of a group. */
function endsGroup({ operands }: Instruction): boolean {
  return operands.includes("gsb0");
}

/** Registers that a product in flight uses. */
interface InFlight {
  /** Accumulators: nothing may access them. */
  readonly sums: Set<string>;
  /** Left operand: nothing may write it. */
  readonly operands: Set<string>;
}

function addProduct(group: InFlight, product: Instruction): void {
  for (const register of product.writes) group.sums.add(register);
  const left = /^R\d+, R(\d+), gdesc/.exec(product.operands)?.[1];
  for (let i = 0; left !== undefined && i < 4; i++) group.operands.add(`R${Number(left) + i}`);
}

/** Returns the instructions that access registers of a product in flight. */
export function touchedInFlight(code: readonly Instruction[]): Instruction[] {
  const touched: Instruction[] = [];
  const empty = (): InFlight => ({ sums: new Set(), operands: new Set() });
  let groups: InFlight[] = [], open = empty();
  for (const instruction of code) {
    const pending = pendingAfter(instruction);
    if (pending !== undefined) {
      groups = pending === 0 ? [] : groups.slice(-pending);
    } else if (isGroupProduct(instruction)) {
      addProduct(open, instruction);
      if (endsGroup(instruction)) {
        groups.push(open);
        open = empty();
      }
    } else {
      const { reads, writes } = instruction;
      const isTouched = [...groups, open].some(({ sums, operands }) =>
        [...reads, ...writes].some((name) => sums.has(name)) ||
        writes.some((name) => operands.has(name))
      );
      if (isTouched) touched.push(instruction);
    }
  }
  return touched;
}

/** Instructions of a softmax that run while products are in flight. */
export interface Overlap {
  /** Multiply-adds. */
  readonly ffma: number;
  /** Exponentials. */
  readonly ex2: number;
}

/** Counts the instructions between each wait for S and the wait for O that follows it. */
export function overlaps(code: readonly Instruction[]): Overlap[] {
  const found: Overlap[] = [];
  let from: number | undefined;
  code.forEach((instruction, at) => {
    const pending = pendingAfter(instruction);
    if (pending === 0 && from !== undefined) {
      const between = code.slice(from, at);
      const count = (test: (one: Instruction) => boolean) => between.filter(test).length;
      found.push({
        ffma: count(({ name }) => name === "FFMA"),
        ex2: count(({ opcode }) => opcode === "MUFU.EX2"),
      });
    }
    if (pending !== undefined) from = pending > 0 ? at : undefined;
  });
  return found;
}

/** Returns the other instructions per product, of each group of products. */
export function instructionsPerProduct(code: readonly Instruction[]): number[] {
  const found: number[] = [];
  let products = 0, others = 0;
  for (const instruction of code) {
    if (!isGroupProduct(instruction)) {
      others++;
      continue;
    }
    if (products === 0) others = 0;
    products++;
    if (endsGroup(instruction)) {
      found.push(others / products);
      products = 0;
    }
  }
  return found;
}

/**
 * Returns the instructions per copy (LDGSTS) of each block inside a loop that copies a part of a
 * tile, in ascending order. The copies of whole tiles without pages come first.
 */
export function instructionsPerCopy(text: string): number[] {
  const code = MachineCode.parse(text);
  const inLoops = new Set(code.loops.flatMap(({ blocks }) => [...blocks]));
  return [...inLoops].flatMap((at) => {
    const { instructions = [] } = code.blocks[at] ?? {};
    const copies = instructions.filter(({ name }) => name === "LDGSTS");
    return copies.length > 1 ? [instructions.length / copies.length] : [];
  }).sort((a, b) => a - b);
}

/**
 * Returns the round trips to memory before the first group of copies: a load is issued after all
 * loads whose results have been used so far.
 */
export function roundTripsBeforeCopies(code: readonly Instruction[]): number {
  const arrives = new Map<string, number>();
  let trips = 0, most = 0;
  for (const { name, reads, writes } of code) {
    if (name === "LDGDEPBAR") break;
    for (const register of reads) trips = Math.max(trips, arrives.get(register) ?? 0);
    for (const register of writes) arrives.set(register, name === "LDG" ? trips + 1 : 0);
    if (name === "LDGSTS") most = trips;
  }
  return most;
}

/** Returns the loads of fewer than 16 bytes after a kernel's wait for the previous kernel. */
export function narrowLoadsAfterWait(code: readonly Instruction[]): string[] {
  const wait = code.findIndex(({ name }) => name === "ACQBULK");
  return code.slice(wait + 1)
    .filter(({ name, opcode }) => wait < 0 || (name === "LDG" && !opcode.includes(".128")))
    .map(({ opcode }) => opcode);
}

/** Returns the most loads from memory in a row, of which none is used before the last is issued. */
export function loadsBeforeUse(code: readonly Instruction[]): number {
  let most = 0;
  const inFlight = new Set<string>();
  let loads = 0;
  for (const { name, reads, writes } of code) {
    if (reads.some((register) => inFlight.has(register))) {
      inFlight.clear();
      loads = 0;
    }
    if (name !== "LDG") continue;
    for (const register of writes) inFlight.add(register);
    most = Math.max(most, ++loads);
  }
  return most;
}
