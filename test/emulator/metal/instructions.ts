/**
 * Counts the operations of Metal kernels' loops without a Mac: clang compiles a kernel, translated
 * as for the check of address spaces, to LLVM's intermediate code with everything inlined.
 */
import { join, resolve } from "@std/path";
import { addressSpaceFlags, compiler, kernelFiles } from "./address_spaces.ts";
import { translate } from "./translate.ts";
import { ROOT } from "../../support/checkout.ts";

/**
 * Operations of one round of a kernel's longest loop, for one lane; a vector counts its elements.
 */
export type LoopOperations = ReadonlyMap<string, number>;

const FLAGS = ["-O2", "-mllvm", "-inline-threshold=1000000", "-S", "-emit-llvm", "-o", "-"];

/** The blocks of a function, by their labels. */
function blocksOf(body: string): { label: string; text: string }[] {
  return body.split(/\n(?=[\w.]+:)/).map((text) => ({
    label: text.match(/^([\w.]+):/)?.[1] ?? "",
    text,
  }));
}

/** The text of the longest loop, from the target of its branch back to that branch. */
function longestLoop(body: string): string {
  const blocks = blocksOf(body);
  let longest = "";
  blocks.forEach(({ text }, last) => {
    for (const [, target] of text.matchAll(/label %([\w.]+)/g)) {
      const first = blocks.findIndex(({ label }) => label === target);
      if (first < 0 || first > last) continue;
      const loop = blocks.slice(first, last + 1).map(({ text }) => text).join("\n");
      if (loop.length > longest.length) longest = loop;
    }
  });
  return longest;
}

/** The block of a loop that multiplies the most matrices. */
function widestBlock(loop: string): string {
  const multiplies = (text: string) => text.split("simdgroup_multiply_accumulate").length;
  return blocksOf(loop).map(({ text }) => text)
    .reduce((widest, text) => multiplies(text) > multiplies(widest) ? text : widest);
}

/** Counts operations; products of matrices and of numbers count by the name of their function. */
function countOperations(text: string): LoopOperations {
  const counts = new Map<string, number>();
  for (const line of text.split("\n")) {
    const match = line.match(/^\s+(?:%\S+ = )?(?:tail )?(\w+)\s+(.*)/);
    if (match === null) continue;
    const [, operation = "", operands = ""] = match;
    const name = operands.match(/simdgroup_(?:load|multiply_accumulate)|fmuladd/)?.[0];
    const key = operation === "call" && name !== undefined ? name : operation;
    const width = key.startsWith("simdgroup") ? 1 : operands.match(/<(\d+) x /)?.[1] ?? 1;
    counts.set(key, (counts.get(key) ?? 0) + Number(width));
  }
  return counts;
}

/** Operations of a kernel. */
export interface KernelOperations {
  /** Of its longest loop. */
  readonly loop: LoopOperations;
  /** Of the loop's block that multiplies the most matrices. */
  readonly widest: LoopOperations;
}

/** Returns the operations of each instance of a kernel. */
export async function kernelOperations(
  kernel: string,
  instances: readonly string[],
): Promise<Map<string, KernelOperations>> {
  const folder = join("build", "emulator", "address_spaces", `loops_${kernel}`);
  await Deno.mkdir(resolve(ROOT, folder), { recursive: true });
  for (const { name, text } of kernelFiles()) {
    const wanted = text.replaceAll(
      /^INSTANCE\((.*)\)$/gm,
      (line, instance) => instances.includes(instance) ? line : "",
    );
    await Deno.writeTextFile(resolve(ROOT, folder, name), translate(name, wanted));
  }
  const args = [...addressSpaceFlags, ...FLAGS, `-I${folder}`, join(folder, `${kernel}.metal`)];
  const { success, stdout, stderr } = await new Deno.Command(compiler, { args, cwd: ROOT })
    .output();
  if (!success) throw new Error(new TextDecoder().decode(stderr));
  const functions = new TextDecoder().decode(stdout).split(/^define /m).slice(1)
    .filter((text) => text.startsWith("weak_odr"));
  if (functions.length !== instances.length) throw new Error(`${functions.length} functions`);
  // Functions are in the order of their INSTANCE lines.
  return new Map(instances.map((instance, i) => {
    const loop = longestLoop(functions[i]!.slice(0, functions[i]!.indexOf("\n}")));
    return [instance, {
      loop: countOperations(loop),
      widest: countOperations(widestBlock(loop)),
    }];
  }));
}

function sumOf(operations: LoopOperations, names: readonly string[]): number {
  return names.reduce((sum, name) => sum + (operations.get(name) ?? 0), 0);
}

/** Conversions of integers and shifts (P. Turner, "metal-benchmarks"). */
const QUARTER_RATE = ["uitofp", "sitofp", "fptoui", "fptosi", "shl", "lshr", "ashr"];
/**
 * Operations at the full rate. Moves and conversions between float and half are part of the
 * operations that they precede or follow.
 */
const FULL_RATE = [
  ...["fadd", "fsub", "fmul", "fneg", "fmuladd", "fcmp"],
  ...["add", "sub", "mul", "and", "or", "xor", "icmp", "select"],
];

/** Operations that Apple's GPUs perform at a quarter of the rate of others. */
export function quarterRate(operations: LoopOperations): number {
  return sumOf(operations, QUARTER_RATE);
}

/** Time of the operations that are no products of matrices, in operations at the full rate. */
export function issueSlots(operations: LoopOperations): number {
  return sumOf(operations, FULL_RATE) + 4 * quarterRate(operations);
}
