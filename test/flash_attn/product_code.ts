/**
 * Checks of machine code that uses wgmma (HGMMA), which ptxas may reorder. Instructions are checked
 * in the order of addresses, which is sufficient here: backward branches of the kernels come after
 * the waits.
 */
import { type Instruction, parseInstruction } from "../../bench/gpu_model/machine_code.ts";

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
    } else if (instruction.name === "HGMMA") {
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
    if (instruction.name !== "HGMMA") {
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
