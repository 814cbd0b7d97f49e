/** Products on emulated processors against the reference of this machine. */
import { assert } from "@std/assert";
import { join } from "@std/path";
import { buildLibraries } from "../../ffi/build/build.ts";
import { toolAvailable } from "../unit/build/fake_tree.ts";
import {
  crossCompilers,
  hostPlatform,
  type Platform,
  platformName,
} from "../../ffi/build/targets.ts";
import { ROOT } from "../support/checkout.ts";
import { crossFlags, shippedArmFlags } from "../support/cross_build.ts";
import { assertClose, assertSameBits, type Matrix, rowsOf } from "../support/matrix.ts";
import { Random } from "../support/random.ts";
import { TempFolder } from "../support/temp_folder.ts";
import { isThorough } from "../support/thorough.ts";
import { computableTypes } from "../support/weights.ts";
import {
  describe,
  expected,
  type ProductCase,
  productsOf,
  PROGRAM_SOURCE,
  randomCase,
  randomCases,
  run,
  tokensAlone,
} from "./product_cases.ts";

const arm: Platform = { os: "linux", arch: "aarch64" };
const { command: compiler, howToInstall } = crossCompilers.linux.aarch64;
const ignore = hostPlatform().os !== "linux" || hostPlatform().arch === "aarch64" ||
  !await toolAvailable(compiler) || !await toolAvailable("qemu-aarch64");
if (ignore) {
  console.error(
    `skipping emulated products: they need ${compiler} (${howToInstall}) and qemu-user`,
  );
}

let library: Promise<string> | undefined;

/** Returns the path of the library for aarch64. */
function armLibrary(): Promise<string> {
  const options = {
    platform: arm,
    only: ["cpu"],
    strict: true,
    cxx: "",
    flags: crossFlags,
  } as const;
  return library ??= buildLibraries(options).then(({ libraries }) => libraries[0]!.path);
}

/** Returns the products of all cases by the kernels of a selector. */
async function products(selector: string, all: readonly ProductCase[]): Promise<Matrix[]> {
  using folder = new TempFolder();
  const program = folder.at("products");
  await run(compiler, ["-std=c++20", "-O1", PROGRAM_SOURCE, "-o", program, "-ldl"]);
  const emulator = ["qemu-aarch64", "-cpu", "max", "-L", "/usr/aarch64-linux-gnu"];
  return await productsOf([...emulator, program, await armLibrary(), selector], all);
}

for (const selector of ["neon_bf16", "neon_i8mm", "neon_dot", "portable"]) {
  Deno.test({
    name: `products with weights of every type (emulated cpu:${selector})`,
    ignore,
    async fn() {
      const all = randomCases(new Random(`emulated ${selector}`));
      const actual = await products(selector, all);
      for (const [i, inputs] of all.entries()) {
        const tolerance = { absolute: 4e-6, relative: 4e-6 };
        assertClose(actual[i]!, await expected(inputs), tolerance, describe(inputs));
      }
    },
  });
}

Deno.test({
  name: "products of the matrix unit are those of dot products to the bit (emulated)",
  ignore,
  async fn() {
    const random = new Random("matrix unit");
    // Columns that are unpacked in two pieces, odd tokens, and rows that leave a panel unfilled.
    const all = computableTypes.map((type) =>
      randomCase(random, type, [9 + 2 * random.int(0, 3), random.int(17, 90), 2304])
    );
    const [matrix, dot] = [await products("neon_i8mm", all), await products("neon_dot", all)];
    for (const [i, inputs] of all.entries()) assertSameBits(matrix[i]!, dot[i]!, describe(inputs));
  },
});

Deno.test({
  name: "products of a token are the same alone and in a batch (emulated cpu:neon_bf16)",
  ignore,
  async fn() {
    const random = new Random("alone");
    const all = tokensAlone(random, randomCases(random));
    const batches = await products("neon_bf16", all.map(({ batch }) => batch));
    const singles = await products("neon_bf16", all.map(({ alone }) => alone));
    for (const [i, { batch, token }] of all.entries()) {
      const row = rowsOf(batches[i]!, token, token + 1);
      assertSameBits(singles[i]!, row, `token ${token} of ${describe(batch)}`);
    }
  },
});

// The emulator has no AVX-512, whatever this machine has, and no AVX if told so.
for (const [selector, processor] of [["avx2", "max"], ["portable", "qemu64"]] as const) {
  Deno.test({
    name: `products with weights of every type (emulated cpu:${selector} of x86-64)`,
    ignore: platformName(hostPlatform()) !== "linux-x86_64" || !await toolAvailable("qemu-x86_64"),
    async fn() {
      using folder = new TempFolder();
      const program = folder.at("products");
      await run("c++", ["-std=c++20", "-O1", PROGRAM_SOURCE, "-o", program, "-ldl"]);
      const { libraries } = await buildLibraries({ only: ["cpu"] });
      const command = ["qemu-x86_64", "-cpu", processor, program, libraries[0]!.path, selector];
      const all = randomCases(new Random(`emulated x86-64 ${selector}`));
      for (const [i, actual] of (await productsOf(command, all)).entries()) {
        const tolerance = { absolute: 4e-6, relative: 4e-6 };
        assertClose(actual, await expected(all[i]!), tolerance, describe(all[i]!));
      }
    },
  });
}

/** Returns the instructions for 1,024 products in the loop of a function with the most products. */
async function instructionsOfLoop(object: string, name: RegExp): Promise<number> {
  const options = ["--disassemble", "--demangle", "--no-show-raw-insn"];
  const text = new TextDecoder().decode(await run(objdump, [...options, object]));
  let most = 0, least = Infinity;
  for (const body of text.split(/^(?=[0-9a-f]+ <.*>:$)/m)) {
    if (!name.test(body.slice(0, body.indexOf("\n")))) continue;
    const code = [...body.matchAll(/^ +([0-9a-f]+):\s+(\S+)(.*)$/gm)];
    for (const [end, [, , opcode, operands]] of code.entries()) {
      const target = /^b\./.test(opcode!) ? /([0-9a-f]+) </.exec(operands!)?.[1] : undefined;
      const begin = code.findIndex(([, address]) => address === target);
      if (begin < 0 || begin > end) continue;
      const loop = code.slice(begin, end + 1);
      const products = loop.reduce((sum, [, , each]) => sum + (PRODUCTS[each!] ?? 0), 0);
      if (products < most || products === 0) continue;
      least = Math.min(products > most ? Infinity : least, 1024 * loop.length / products);
      most = products;
    }
  }
  return least;
}

/** Products of an instruction. */
const PRODUCTS: Readonly<Record<string, number>> = { sdot: 16, usdot: 16, usmmla: 32 };
const objdump = "aarch64-linux-gnu-objdump";

Deno.test({
  name: "the matrix unit takes half of the instructions of dot products",
  // Compiling with the shipped flags takes most of a minute.
  ignore: !isThorough || ignore || !await toolAvailable(objdump),
  async fn() {
    using folder = new TempFolder();
    const source = join(ROOT, "csrc", "cpu", "kernels", "int8_products.cpp");
    const compiled = ["neon_dot", "neon_i8mm"].map(async (target) => {
      const object = folder.at(`${target}.o`);
      await run(compiler, [...shippedArmFlags(target), "-c", source, "-o", object]);
      return object;
    });
    const [dotObject = "", matrixObject = ""] = await Promise.all(compiled);
    for (const format of ["128, 255", "16, 31"]) { // Q8_0 and Q5_0
      const tile = (tokens: string) =>
        new RegExp(`UnpackedFormat<1u, false, ${format}>, ${tokens}>`);
      const dot = await instructionsOfLoop(dotObject, tile("3, 1"));
      const matrix = await instructionsOfLoop(matrixObject, tile("6"));
      assert(matrix <= 0.5 * dot, `${format}: ${matrix} of ${dot} instructions`);
    }
  },
});
