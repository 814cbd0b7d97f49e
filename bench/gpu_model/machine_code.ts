/**
 * Machine code of one kernel (SASS), parsed from nvdisasm's text: instructions with the registers
 * that they read and write, basic blocks, and natural loops.
 */

/** One instruction. */
export interface Instruction {
  /** With modifiers, as in `LDG.E.NA.128.CONSTANT`. */
  readonly opcode: string;
  /** Without modifiers, as in `LDG`. */
  readonly name: string;
  /** Operands as printed. */
  readonly operands: string;
  /** Registers and predicates, such as `R4`, `UR6` and `P0`. Wide operands list each register. */
  readonly reads: readonly string[];
  readonly writes: readonly string[];
  /** True if a predicate may skip it. */
  readonly isConditional: boolean;
}

/** Consecutive instructions that are always executed together. */
export interface Block {
  readonly instructions: readonly Instruction[];
  /** Indices of the blocks that may follow. */
  readonly successors: readonly number[];
}

/** A natural loop: the blocks between a header and the branches back to it. */
export interface Loop {
  readonly header: number;
  readonly blocks: ReadonlySet<number>;
  /** Blocks that branch back to the header. */
  readonly latches: readonly number[];
  /** Number of loops around it. */
  readonly depth: number;
}

/** Registers per operand by the width suffix of an opcode. */
function loadedRegisters(opcode: string): number {
  if (/\.128\b/.test(opcode)) return 4;
  return /\.64\b/.test(opcode) ? 2 : 1;
}

/** Instructions whose first operand is not a destination. */
const WITHOUT_RESULT =
  /^(ST|STG|STS|STL|RED|REDG|LDGSTS|BAR|BRA|BRX|EXIT|RET|CALL|BSSY|BSYNC|DEPBAR|LDGDEPBAR|WARPSYNC|MEMBAR|NOP|ERRBAR|CCTL|SYNCS|UTM\w+|UBLKCP|UBLKPF|USETMAXREG|WARPGROUP|FENCE|ACQBULK|PREEXIT|NANOSLEEP|YIELD|KILL|STSM|BPT)$/;

/** Returns registers `name`, `name + 1` …, or nothing for the zero register. */
function registerRun(name: string, count: number): string[] {
  const match = /^(U?[RP])(\d+)$/.exec(name);
  if (match === null) return [];
  const first = Number(match[2]);
  return Array.from({ length: count }, (_, i) => `${match[1]}${first + i}`);
}

/** Number of registers of source operand `index` (from 0, after the destination). */
function sourceWidth(name: string, opcode: string, index: number): number {
  if (name === "HMMA" || name === "IMMA") {
    return index === 1 ? 2 : /\.16816|\.16832/.test(opcode) ? 4 : 2;
  }
  if (/^(STG|STS|STL|ST)$/.test(name)) return loadedRegisters(opcode);
  if (name === "IMAD" && opcode.includes(".WIDE") && index === 2) return 2;
  return 1;
}

function resultWidth(name: string, opcode: string): number {
  if (/^(LDG|LDS|LD|LDL|LDC|ULDC)$/.test(name)) return loadedRegisters(opcode);
  if (name === "LDSM") return Number(/\.(\d)$/.exec(opcode)?.[1] ?? 1);
  if (name === "HMMA" || name === "IMMA") return 4;
  if (name === "HGMMA") return Number(/\.64x(\d+)x/.exec(opcode)?.[1] ?? 8) / 2;
  if (opcode.includes(".WIDE")) return 2;
  return 1;
}

/** Parses one instruction's text, as in `@!P0 LDG.E R3, desc[UR6][R4.64]`. */
export function parseInstruction(text: string): Instruction {
  const match = /^(?:@(!?)(U?P\w+)\s+)?(\S+)\s*(.*)$/.exec(text.trim());
  if (match === null) throw new Error(`not an instruction: "${text}"`);
  const [, , guard, opcode = "", operands = ""] = match;
  const name = opcode.split(".")[0] ?? "";
  const parts = operands === "" ? [] : operands.split(/,\s*(?![^[]*\])/);
  const reads: string[] = [], writes: string[] = [];
  if (guard !== undefined) reads.push(guard);
  // Comparisons, shuffles and additions with carry first list their predicates.
  let destinations = WITHOUT_RESULT.test(name) ? 0 : 1;
  if (destinations > 0) {
    while (
      destinations < parts.length && /^U?P(T|\d)$/.test(parts[destinations] ?? "") &&
      destinations < 3
    ) {
      if (
        !/^(U?ISETP|FSETP|HSETP2|PLOP3|UPLOP3|IADD3|LEA|SHFL|VOTE|VOTEU|UIADD3|LOP3|ULOP3|DSETP|MATCH|VIADDMNMX)$/
          .test(name)
      ) break;
      destinations++;
    }
  }
  parts.forEach((part, index) => {
    if (index < destinations && !part.includes("[")) {
      const width = index === 0 ? resultWidth(name, opcode) : 1;
      writes.push(...registerRun(/U?[RP]\d+/.exec(part)?.[0] ?? "", width));
      return;
    }
    const inAddress = part.includes("[");
    for (const found of part.matchAll(/\b(U?[RP]\d+)(\.64)?/g)) {
      const width = found[2] !== undefined
        ? 2
        : inAddress
        ? 1
        : sourceWidth(name, opcode, index - destinations);
      reads.push(...registerRun(found[1] ?? "", width));
    }
  });
  return { opcode, name, operands, reads, writes, isConditional: guard !== undefined };
}

/** The control-flow graph of a kernel. */
export class MachineCode {
  /** In order of addresses; block 0 is the entry. */
  readonly blocks: readonly Block[];
  /** Outer loops before the loops inside them. */
  readonly loops: readonly Loop[];

  private constructor(blocks: readonly Block[]) {
    this.blocks = blocks;
    this.loops = findLoops(blocks);
  }

  /** Parses a function in nvdisasm's `--print-code` format. */
  static parse(text: string): MachineCode {
    return new MachineCode(splitBlocks(text));
  }

  /** All instructions that can be reached from the entry. */
  get instructions(): Instruction[] {
    const reached = reachable(this.blocks);
    return this.blocks.flatMap((block, i) => reached.has(i) ? block.instructions : []);
  }
}

const LABEL = /^(\.L_\w+):/;
const INSTRUCTION = /^\s*\/\*[0-9a-f]{4,}\*\/\s+(.*?)\s*;?\s*$/;
const TARGET = /`?\(?(\.L_\w+)\)?/g;

function splitBlocks(text: string): Block[] {
  const labels = new Map<string, number>();
  const drafts: { instructions: Instruction[]; targets: string[]; falls: boolean }[] = [];
  let open = false;
  const begin = () => {
    drafts.push({ instructions: [], targets: [], falls: true });
    open = true;
  };
  for (const line of text.split("\n")) {
    const label = LABEL.exec(line)?.[1];
    if (label !== undefined) {
      begin();
      labels.set(label, drafts.length - 1);
      continue;
    }
    const body = INSTRUCTION.exec(line)?.[1];
    if (body === undefined) continue;
    if (!open) begin();
    const draft = drafts.at(-1)!;
    const targets = Array.from(body.matchAll(TARGET), ([, name]) => name ?? "");
    const instruction = parseInstruction(body.replace(/\s*\(\*.*$/, "").replace(/\s*;.*$/, ""));
    draft.instructions.push(instruction);
    // ptxas leaves some rolled loops by a conditional call that does not return.
    if (instruction.name === "CALL" && instruction.isConditional) {
      draft.targets.push(...targets);
      open = false;
    }
    if (/^(BRA|BRX|EXIT|RET|JMP|BREAK)$/.test(instruction.name)) {
      if (instruction.name !== "EXIT" && instruction.name !== "RET") draft.targets.push(...targets);
      // `BRA !P1` jumps only if all lanes agree, and `BRA.DIV` only if some have diverged: both may
      // fall through, too.
      const always = !instruction.isConditional && instruction.opcode !== "BRA.DIV" &&
        !/^!?U?P\d/.test(instruction.operands);
      draft.falls = !always;
      open = false;
    }
  }
  return drafts.map(({ instructions, targets, falls }, i) => {
    const next = falls && i + 1 < drafts.length ? [i + 1] : [];
    const jumps = targets.flatMap((name) => labels.get(name) ?? []);
    return { instructions, successors: [...new Set([...next, ...jumps])] };
  });
}

function reachable(blocks: readonly Block[]): Set<number> {
  const reached = new Set<number>(), stack = [0];
  while (stack.length > 0) {
    const at = stack.pop()!;
    if (reached.has(at) || at >= blocks.length) continue;
    reached.add(at);
    stack.push(...blocks[at]!.successors);
  }
  return reached;
}

/** Returns the blocks on every path from the entry to each block. */
function dominators(blocks: readonly Block[], reached: ReadonlySet<number>): Set<number>[] {
  const all = [...reached].sort((a, b) => a - b);
  const before: number[][] = blocks.map(() => []);
  for (const at of all) for (const next of blocks[at]!.successors) before[next]?.push(at);
  const sets = blocks.map((_, i) => new Set(i === 0 ? [0] : all));
  for (let changed = true; changed;) {
    changed = false;
    for (const at of all) {
      if (at === 0) continue;
      const [first, ...rest] = before[at]!.map((from) => sets[from]!);
      const common = new Set([...first ?? []].filter((one) => rest.every((set) => set.has(one))));
      common.add(at);
      if (common.size !== sets[at]!.size) {
        sets[at] = common;
        changed = true;
      }
    }
  }
  return sets;
}

function findLoops(blocks: readonly Block[]): Loop[] {
  const reached = reachable(blocks);
  const dominated = dominators(blocks, reached);
  const latches = new Map<number, number[]>();
  for (const from of reached) {
    for (const to of blocks[from]!.successors) {
      if (dominated[from]!.has(to)) latches.set(to, [...latches.get(to) ?? [], from]);
    }
  }
  const loops = [...latches].map(([header, ends]) => {
    const body = new Set([header]);
    const stack = [...ends];
    while (stack.length > 0) {
      const at = stack.pop()!;
      if (body.has(at)) continue;
      body.add(at);
      for (const from of reached) if (blocks[from]!.successors.includes(at)) stack.push(from);
    }
    return { header, blocks: body, latches: ends };
  });
  return loops
    .map((loop) => ({
      ...loop,
      depth: loops.filter((other) => other !== loop && other.blocks.has(loop.header)).length,
    }))
    // A branch to itself after EXIT is only padding.
    .filter(({ blocks: body }) => body.size > 1 || blocks[[...body][0]!]!.instructions.length > 1)
    .sort((a, b) => a.depth - b.depth || a.header - b.header);
}
