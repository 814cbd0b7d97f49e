/** Products with weights of every type on a device that a test program opens itself. */
import { join } from "@std/path";
import { TENSOR_TYPES, type TensorType } from "../../src/formats/tensor_info.ts";
import { openDevice, referenceDevice } from "../support/devices.ts";
import { type Matrix, randomByteMatrix, rowsOf } from "../support/matrix.ts";
import type { Random } from "../support/random.ts";
import { runStep, tokenInputs } from "../support/step_graph.ts";
import { computableTypes, randomWeight, type TestWeight, typeNumber } from "../support/weights.ts";

/** Source of the program; its arguments are a library and the name of a device. */
export const PROGRAM_SOURCE = join(import.meta.dirname ?? "", "emulated_products.cpp");

/** Activations and a weight. */
export interface ProductCase {
  readonly x: Matrix;
  readonly weight: TestWeight;
}

/** Returns random activations and a weight of a type. */
export function randomCase(
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

/** Returns cases of each type, with a few tokens and with more than a tile of them. */
export function randomCases(random: Random): ProductCase[] {
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

/** Returns the products of the reference. */
export async function expected({ x, weight }: ProductCase): Promise<Matrix> {
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

/**
 * Returns the output of a program.
 *
 * @param env added variables
 */
export async function run(
  command: string,
  args: readonly string[],
  input?: Blob,
  env: Readonly<Record<string, string>> = {},
): Promise<Uint8Array> {
  const process = new Deno.Command(command, {
    args: [...args],
    env: { ...env },
    stdin: "piped",
    stdout: "piped",
    stderr: "piped",
  }).spawn();
  // A program that ends early has a reason to tell, instead of a broken pipe.
  const written = (input ?? new Blob()).stream().pipeTo(process.stdin).catch(() => {});
  const [{ success, stdout, stderr }] = await Promise.all([process.output(), written]);
  if (!success) throw new Error(`${command}: ${new TextDecoder().decode(stderr)}`);
  return stdout;
}

/** Returns the products of all cases by the program, which a command starts. */
export async function productsOf(
  [command = "", ...args]: readonly string[],
  all: readonly ProductCase[],
  env: Readonly<Record<string, string>> = {},
): Promise<Matrix[]> {
  const output = await run(command, args, encode(all), env);
  let at = 0;
  return all.map(({ x, weight: { rows } }) => {
    const data = new Float32Array(output.slice(at, at += 4 * x.rows * rows).buffer);
    return { rows: x.rows, cols: rows, data };
  });
}

/** A batch and one of its tokens alone. */
export interface TokenAlone {
  readonly batch: ProductCase;
  readonly token: number;
  readonly alone: ProductCase;
}

/** Returns each case with a random one of its tokens alone. */
export function tokensAlone(random: Random, all: readonly ProductCase[]): TokenAlone[] {
  return all.map((batch) => {
    const token = random.int(0, batch.x.rows - 1);
    const alone = { x: rowsOf(batch.x, token, token + 1), weight: batch.weight };
    return { batch, token, alone };
  });
}

/** Returns a case in words. */
export function describe({ x, weight: { type, rows, cols } }: ProductCase): string {
  return `${x.rows} tokens, ${type} [${rows}, ${cols}]`;
}
