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

/** Returns the operations of the longest loop of each instance of a kernel. */
export async function loopOperations(
  kernel: string,
  instances: readonly string[],
): Promise<Map<string, LoopOperations>> {
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
    const counts = new Map<string, number>();
    const body = functions[i]!.slice(0, functions[i]!.indexOf("\n}"));
    for (const line of longestLoop(body).split("\n")) {
      const match = line.match(/^\s+(?:%\S+ = )?(?:tail )?(\w+)\s+(.*)/);
      if (match === null) continue;
      const [, operation = "", operands = ""] = match;
      const width = Number(operands.match(/<(\d+) x /)?.[1] ?? 1);
      counts.set(operation, (counts.get(operation) ?? 0) + width);
    }
    return [instance, counts];
  }));
}

/**
 * Operations that Apple's GPUs perform at a quarter of the rate of others: conversions of integers
 * and shifts (P. Turner, "metal-benchmarks").
 */
export function quarterRate(operations: LoopOperations): number {
  return ["uitofp", "sitofp", "fptoui", "fptosi", "shl", "lshr", "ashr"]
    .reduce((sum, operation) => sum + (operations.get(operation) ?? 0), 0);
}
