/** Compares the contract in arguments.h and similar headers with the kernels. */
import { assert, assertEquals } from "@std/assert";
import { type KernelFile, kernelFiles } from "./address_spaces.ts";
import { kernelsOf } from "./translate.ts";

const files = kernelFiles();
const contract = files.filter(({ name }) => name.endsWith("arguments.h"))
  .map(({ text }) => text).join("\n");
const kernels = files.filter(({ name }) => name.endsWith(".metal"))
  .flatMap((file: KernelFile) => kernelsOf(file.text).map((kernel) => ({ file, ...kernel })));

/** The names of the buffers that KERNEL_ARGUMENTS or a comment lists for a kernel, in order. */
function listed(kernel: string): string[] {
  const [, declared] = contract.split(new RegExp(`^KERNEL_ARGUMENTS\\(\\w+, ${kernel},`, "m"));
  if (declared !== undefined) {
    const fields = declared.slice(0, declared.indexOf(";)"));
    return Array.from(
      `${fields};`.matchAll(/\b(?:READS|WRITES)\(\w+\) (\w+);/g),
      ([, name = ""]) => name,
    );
  }
  if (contract.includes(`, ${kernel})`)) return ["out", "x", "n_rows"]; // of KERNEL_MAPS
  const lines = contract.split("\n");
  const opening = new RegExp(`^// ${kernel}(<[^>]*>)?(, [^:]*)?: `);
  const first = lines.findIndex((line) => opening.test(line));
  assert(first >= 0, `no *arguments.h lists ${kernel}`);
  let text = (lines[first] ?? "").replace(opening, "");
  for (let next = first + 1; text.endsWith(","); ++next) {
    text += (lines[next] ?? "").replace(/^\/\/ +/, " ");
  }
  return text
    .replaceAll(/(\w) \[[^\]]*\]/g, "$1") // shapes
    .replaceAll(/ \([^)]*\)/g, "") // remarks
    .split(", ")
    .map((buffer) => buffer.replace(/^\[(?:\w+ )?(\w+)\]$/, "$1").replace(/^\w+ /, ""));
}

Deno.test("the buffers of every Metal kernel are those that arguments.h lists", () => {
  assert(kernels.length > 25);
  for (const { name, parameters } of kernels) {
    const own = Array.from(parameters.matchAll(/(\w+)\s+\[\[buffer\(\d+\)\]\]/g), (m) => m[1]);
    assertEquals(own.pop(), "args");
    assertEquals(own, listed(name), name);
  }
});

const fast = ["F32", "F16", "BF16", "Q8_0", "FP8", "Q4_0", "Q4_K", "Q6_K"].map((type) =>
  `Format${type}`
);
const other = [3, 6, 7, 10, 11, 13, 16, 17, 18, 19, 20, 21, 22, 23, 29, 34, 35, 39, 257]
  .map((type) => `Blocks<${type}>`);
const dims = [16, 32, 64, 80, 96, 128, 256];

function each(names: readonly string[], numbers: readonly number[]): string[] {
  return names.flatMap((name) => numbers.map((n) => `${name}, ${n}`));
}

Deno.test("the instances of Metal kernels are those that arguments.h promises", () => {
  const products = [...each(fast, [1, 2, 4, 8]), ...each(other, [1, 4])];
  const expected: Record<string, readonly string[]> = {
    embed: [...fast, ...other],
    matvec: products,
    grouped_matvec: products,
    rms_norm_matvec: each(fast, [1, 2, 4, 8]),
    rms_norm_qkv: each(fast, [1, 2, 4, 8]),
    gemm: [...fast, ...other],
    grouped_gemm: [...fast, ...other],
    rope_append: ["float", "f16", "bf16", "q8", "q4"],
    previous_rows: ["float", "f16", "bf16"],
    naive_attention: ["float", "f16", "bf16", "q8", "q4"],
    prefill_attention: each(["f16", "q8", "q4"], dims),
    gated_delta_rule: ["1", "2", "4", "8"],
    selective_scan: ["2", "4", "8"],
    narrow_decode_attention: each(["f16", "q8", "q4"], dims.filter((dim) => dim <= 64)),
    batched_decode_attention: each(["f16", "q8", "q4"], dims.filter((dim) => dim > 64)),
    latent_attention: ["f16", "q8", "q4"].flatMap((
      type,
    ) => [`${type}, 288, 256`, `${type}, 576, 512`]),
  };
  const templates = kernels.filter(({ isTemplate }) => isTemplate);
  assertEquals(templates.map(({ name }) => name).sort(), Object.keys(expected).sort());
  for (const { name, file } of templates) {
    const lines = Array.from(file.text.matchAll(/^INSTANCE\((.*)\)$/gm), (match) => match[1]);
    assertEquals(
      lines.filter((line) => line?.startsWith(`${name}<`)),
      expected[name]?.map((list) => `${name}<${list}>`),
    );
  }
});
