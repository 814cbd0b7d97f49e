/** Products on an emulated aarch64 against the reference of this machine. */
import { join } from "@std/path";
import { buildLibraries } from "../../ffi/build/build.ts";
import { toolAvailable } from "../unit/build/fake_tree.ts";
import { crossCompilers, hostPlatform, type Platform } from "../../ffi/build/targets.ts";
import { TENSOR_TYPES } from "../../src/formats/tensor_info.ts";
import { openDevice, referenceDevice } from "../support/devices.ts";
import { assertClose, type Matrix, randomByteMatrix } from "../support/matrix.ts";
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

function cases(random: Random): ProductCase[] {
  return computableTypes.flatMap((type) =>
    [1, 7, 19].map((tokens) => {
      const cols = Math.max(64, TENSOR_TYPES[type].blockElements) * random.int(1, 2);
      return {
        x: randomByteMatrix(random, tokens, cols, 1 / Math.sqrt(cols)),
        weight: randomWeight(random, type, random.int(1, 40), cols),
      };
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

for (const selector of ["neon_dot", "portable"]) {
  Deno.test({
    name: `products with weights of every type (emulated cpu:${selector})`,
    ignore,
    async fn() {
      const { libraries } = await buildLibraries({
        platform: arm,
        only: ["cpu"],
        strict: true,
        cxx: "",
      });
      using folder = new TempFolder();
      const program = folder.at("products");
      const source = join(import.meta.dirname ?? "", "emulated_products.cpp");
      await run(compiler, ["-std=c++20", "-O1", source, "-o", program, "-ldl"]);
      const all = cases(new Random(`emulated ${selector}`));
      const output = await run(
        "qemu-aarch64",
        ["-L", "/usr/aarch64-linux-gnu", program, libraries[0]!.path, selector],
        encode(all),
      );
      let at = 0;
      for (const inputs of all) {
        const { x, weight } = inputs;
        const bytes = 4 * x.rows * weight.rows;
        const data = new Float32Array(output.slice(at, at += bytes).buffer);
        assertClose(
          { rows: x.rows, cols: weight.rows, data },
          await expected(inputs),
          { absolute: 4e-6, relative: 4e-6 },
          `${x.rows} tokens, ${weight.type} [${weight.rows}, ${weight.cols}]`,
        );
      }
    },
  });
}
