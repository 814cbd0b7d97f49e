/** Products on an emulated aarch64 against the reference of this machine. */
import { assert } from "@std/assert";
import { join } from "@std/path";
import { buildLibraries } from "../../ffi/build/build.ts";
import { toolAvailable } from "../unit/build/fake_tree.ts";
import { crossCompilers, hostPlatform, type Platform } from "../../ffi/build/targets.ts";
import { TENSOR_TYPES, type TensorType } from "../../src/formats/tensor_info.ts";
import { ROOT } from "../support/checkout.ts";
import { openDevice, referenceDevice } from "../support/devices.ts";
import {
  assertClose,
  assertSameBits,
  type Matrix,
  randomByteMatrix,
  rowsOf,
} from "../support/matrix.ts";
import { Random } from "../support/random.ts";
import { runStep, tokenInputs } from "../support/step_graph.ts";
import { TempFolder } from "../support/temp_folder.ts";
import { computableTypes, randomWeight, type TestWeight, typeNumber } from "../support/weights.ts";

const arm: Platform = { os: "linux", arch: "aarch64" };
const { command: compiler, howToInstall } = crossCompilers.linux.aarch64;
const ignore = hostPlatform().os !== "linux" || hostPlatform().arch === "aarch64" ||
  !await toolAvailable(compiler) || !await toolAvailable("qemu-aarch64");
if (ignore) {
  console.error(
    `skipping emulated products: they need ${compiler} (${howToInstall}) and qemu-user`,
  );
}

interface ProductCase {
  readonly x: Matrix;
  readonly weight: TestWeight;
}

function randomCase(
  random: Random,
  type: TensorType,
  [tokens, rows, cols]: readonly [number, number, number],
): ProductCase {
  // Bytes times a power of two, which processors that multiply BF16 need not round.
  const scale = 2 ** -Math.round(Math.log2(cols) / 2);
  return {
    x: randomByteMatrix(random, tokens, cols, scale),
    weight: randomWeight(random, type, rows, cols),
  };
}

function cases(random: Random): ProductCase[] {
  return computableTypes.flatMap((type) =>
    [1, 7, 19].map((tokens) => {
      const { blockElements } = TENSOR_TYPES[type];
      const cols = blockElements === 1
        ? random.int(1, 600)
        : Math.max(64, blockElements) * random.int(1, 2);
      return randomCase(random, type, [tokens, random.int(1, 90), cols]);
    })
  );
}

async function expected({ x, weight }: ProductCase): Promise<Matrix> {
  using reference = openDevice(referenceDevice);
  return await runStep(reference, tokenInputs(x.rows), (graph) => ({
    value: graph.recorder.matmul(graph.input(x), graph.weight(weight)),
    cols: weight.rows,
  }));
}

/** The input of `emulated_products.cpp`. */
function encode(all: readonly ProductCase[]): Blob {
  return new Blob(all.flatMap(({ x, weight: { type, rows, cols, bytes } }) => [
    Uint32Array.of(typeNumber(type), rows, cols, x.rows, bytes.length),
    bytes,
    x.data,
  ]));
}

async function run(command: string, args: readonly string[], input?: Blob): Promise<Uint8Array> {
  const process = new Deno.Command(command, {
    args: [...args],
    stdin: "piped",
    stdout: "piped",
    stderr: "piped",
  }).spawn();
  const written = (input ?? new Blob()).stream().pipeTo(process.stdin);
  const [{ success, stdout, stderr }] = await Promise.all([process.output(), written]);
  if (!success) throw new Error(`${command}: ${new TextDecoder().decode(stderr)}`);
  return stdout;
}

let library: Promise<string> | undefined;

/** Returns the path of the library for aarch64. */
function armLibrary(): Promise<string> {
  return library ??= buildLibraries({ platform: arm, only: ["cpu"], strict: true, cxx: "" })
    .then(({ libraries }) => libraries[0]!.path);
}

/** Returns the products of all cases by the kernels of a selector. */
async function products(selector: string, all: readonly ProductCase[]): Promise<Matrix[]> {
  using folder = new TempFolder();
  const program = folder.at("products");
  const source = join(import.meta.dirname ?? "", "emulated_products.cpp");
  await run(compiler, ["-std=c++20", "-O1", source, "-o", program, "-ldl"]);
  const options = ["-cpu", "max", "-L", "/usr/aarch64-linux-gnu"];
  const output = await run(
    "qemu-aarch64",
    [...options, program, await armLibrary(), selector],
    encode(all),
  );
  let at = 0;
  return all.map(({ x, weight: { rows } }) => {
    const data = new Float32Array(output.slice(at, at += 4 * x.rows * rows).buffer);
    return { rows: x.rows, cols: rows, data };
  });
}

function describe({ x, weight: { type, rows, cols } }: ProductCase): string {
  return `${x.rows} tokens, ${type} [${rows}, ${cols}]`;
}

for (const selector of ["neon_bf16", "neon_i8mm", "neon_dot", "portable"]) {
  Deno.test({
    name: `products with weights of every type (emulated cpu:${selector})`,
    ignore,
    async fn() {
      const all = cases(new Random(`emulated ${selector}`));
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
    const batches = cases(random);
    const tokens = batches.map(({ x }) => random.int(0, x.rows - 1));
    const alone = batches.map(({ x, weight }, i): ProductCase => ({
      x: rowsOf(x, tokens[i]!, tokens[i]! + 1),
      weight,
    }));
    const [actual, single] = [
      await products("neon_bf16", batches),
      await products("neon_bf16", alone),
    ];
    for (const [i, inputs] of batches.entries()) {
      const row = rowsOf(actual[i]!, tokens[i]!, tokens[i]! + 1);
      assertSameBits(single[i]!, row, `token ${tokens[i]} of ${describe(inputs)}`);
    }
  },
});

/** Returns the instructions for 1,024 products in the loop of a function with the most products. */
async function instructionsOfLoop(target: string, name: RegExp): Promise<number> {
  const object = `build/obj/linux-aarch64/cpu/cpu/kernels/int8_products.cpp.${target}.o`;
  const options = ["--disassemble", "--demangle", "--no-show-raw-insn"];
  const text = new TextDecoder().decode(await run(objdump, [...options, join(ROOT, object)]));
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
  ignore: ignore || !await toolAvailable(objdump),
  async fn() {
    await armLibrary();
    for (const format of ["128, 255", "16, 31"]) { // Q8_0 and Q5_0
      const tile = (tokens: string) =>
        new RegExp(`UnpackedFormat<1u, false, ${format}>, ${tokens}>`);
      const dot = await instructionsOfLoop("neon_dot", tile("3, 1"));
      const matrix = await instructionsOfLoop("neon_i8mm", tile("6"));
      assert(matrix <= 0.5 * dot, `${format}: ${matrix} of ${dot} instructions`);
    }
  },
});
