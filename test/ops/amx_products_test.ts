/**
 * Products by AMX on a stand-in for its tiles: the unmodified kernels, compiled with the
 * sanitizers, in a library whose other objects are those of the build.
 */
import { assert, assertRejects, assertStringIncludes } from "@std/assert";
import { join } from "@std/path";
import { AMX_KERNELS, amxCounts, amxShares } from "../../bench/amx_model.ts";
import { buildLibraries } from "../../ffi/build/build.ts";
import { findCompiler } from "../../ffi/build/compiler.ts";
import { libraryGraph, type Step } from "../../ffi/build/graph.ts";
import { libraries } from "../../ffi/build/libraries.ts";
import { hostPlatform } from "../../ffi/build/targets.ts";
import { ROOT } from "../support/checkout.ts";
import { devices, openDevice } from "../support/devices.ts";
import { assertClose, assertSameBits, type Matrix, rowsOf } from "../support/matrix.ts";
import { Random } from "../support/random.ts";
import { runStep, tokenInputs } from "../support/step_graph.ts";
import { TempFolder } from "../support/temp_folder.ts";
import { toolAvailable } from "../unit/build/fake_tree.ts";
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

const vnni = devices.find(({ name }) => name === "cpu:avx512");
const ignore = hostPlatform().os !== "linux" ||
  !devices.some(({ name }) => name === "cpu:avx512_bf16");
if (ignore) console.error("skipping products by AMX: their stand-in needs AVX512-BF16");

const SELECTOR = "avx512_amx";
const SANITIZERS = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-g"];

/** True if a step compiles the kernels of AMX, or the detection of processors. */
function isReplaced({ label }: Step): boolean {
  return label.endsWith(`(${SELECTOR})`) || label.startsWith("csrc/cpu/host/cpu_features.cpp");
}

/** The test program, and a library with the stand-in. */
class Emulation {
  readonly #folder = new TempFolder();
  readonly #library = this.#folder.at("libforge_cpu.so");
  readonly #program = this.#folder.at("products");

  /** Compiles the sources that use tiles, and links them with the objects of the build. */
  static async build(): Promise<Emulation> {
    await buildLibraries({ only: ["cpu"] });
    const made = new Emulation();
    const platform = hostPlatform();
    const compiler = await findCompiler(platform);
    const [cpu] = libraries.filter(({ name }) => name === "cpu");
    const variant = { debug: false, sanitizers: [], strict: false };
    const { compiles } = libraryGraph(ROOT, cpu!, platform, variant, compiler);
    const objects = await Promise.all(compiles.map(async (step, i) => {
      if (!isReplaced(step)) return join(ROOT, step.output);
      const object = made.#folder.at(`${i}.o`);
      const standIn = ["-include", join(ROOT, "test/ops/amx_stand_in.h"), `-I${ROOT}`];
      const sources = step.inputs.map((input) => join(ROOT, input));
      const flags = step.command.filter((argument) => argument.startsWith("-") && argument !== "-c")
        .filter((argument) => argument !== "-include" && argument !== "-O3");
      const bundle = sources.slice(0, -1).flatMap((source) => ["-include", source]);
      const [command = "", ...start] = compiler.command;
      await run(command, [
        ...start,
        ...[...flags, "-O1", ...SANITIZERS, ...standIn, ...bundle],
        ...["-c", sources.at(-1)!, "-o", object],
      ]);
      return object;
    }));
    const [command = "", ...start] = compiler.command;
    const link = [...SANITIZERS, "-pthread", "-shared", ...objects];
    await run(command, [...start, ...link, "-o", made.#library]);
    // Without the checks of undefined behaviour, which refer to functions that are looked up.
    const program = ["-std=c++20", "-O1", "-fsanitize=address", PROGRAM_SOURCE];
    await run(command, [...start, ...program, "-o", made.#program, "-ldl"]);
    return made;
  }

  /** Returns the products of a device, with variables for the stand-in. */
  products(
    selector: string,
    all: readonly ProductCase[],
    env: Readonly<Record<string, string>> = {},
  ): Promise<Matrix[]> {
    return productsOf([this.#program, this.#library, selector], all, env);
  }

  [Symbol.dispose](): void {
    this.#folder[Symbol.dispose]();
  }
}

Deno.test({
  name: "products by AMX (stand-in)",
  ignore,
  async fn(t) {
    using emulation = await Emulation.build();

    await t.step("weights of every type, by the kernels that are chosen first", async () => {
      const all = randomCases(new Random("amx"));
      const actual = await emulation.products("", all);
      const named = await emulation.products(SELECTOR, all);
      for (const [i, inputs] of all.entries()) {
        const tolerance = { absolute: 4e-6, relative: 4e-6 };
        assertClose(actual[i]!, await expected(inputs), tolerance, describe(inputs));
        assertSameBits(actual[i]!, named[i]!, describe(inputs));
      }
    });

    await t.step("a token alone and in a batch", async () => {
      const random = new Random("alone");
      const wide = (["BF16", "Q8_0", "Q6_K"] as const).map((type) =>
        randomCase(random, type, [random.int(33, 80), random.int(65, 130), 2304])
      );
      const all = tokensAlone(random, [...randomCases(random), ...wide]);
      const batches = await emulation.products(SELECTOR, all.map(({ batch }) => batch));
      const singles = await emulation.products(SELECTOR, all.map(({ alone }) => alone));
      for (const [i, { batch, token }] of all.entries()) {
        const row = rowsOf(batches[i]!, token, token + 1);
        assertSameBits(singles[i]!, row, `token ${token} of ${describe(batch)}`);
      }
    });

    await t.step("quantised weights give the bits of dot products", async () => {
      const random = new Random("dot products");
      using device = openDevice(vnni!);
      const all = computableTypes.filter((type) => /^(I?Q|MXFP4)/.test(type)).map((type) =>
        randomCase(random, type, [random.int(9, 40), random.int(17, 90), 2304])
      );
      const actual = await emulation.products(SELECTOR, all);
      for (const [i, inputs] of all.entries()) {
        const { x, weight } = inputs;
        const dots = await runStep(device, tokenInputs(x.rows), (graph) => ({
          value: graph.recorder.matmul(graph.input(x), graph.weight(weight)),
          cols: weight.rows,
        }));
        assertSameBits(actual[i]!, dots, describe(inputs));
      }
    });

    await t.step("products are those of tiles", async () => {
      const random = new Random("tiles");
      for (const [type, tokens] of [["BF16", 1], ["Q8_0", 9], ["Q4_K", 9]] as const) {
        const products = emulation.products("", [randomCase(random, type, [tokens, 20, 256])], {
          FORGE_STAND_IN_BREAKS: "1",
        });
        await assertRejects(() => products, Error, "AMX: a product of tiles");
      }
    });

    await t.step("a system that refuses tiles", async () => {
      const env = { FORGE_STAND_IN_REFUSES: "1" };
      const error = await assertRejects(() => emulation.products(SELECTOR, [], env), Error);
      assertStringIncludes(error.message, "forge_device_open: status");
      await emulation.products("", [], env);
    });
  },
});

Deno.test({
  name: "loops of AMX load few tiles a product, and vectors limit them as little as scales allow",
  ignore: ignore || !await toolAvailable("objdump"),
  async fn() {
    await buildLibraries({ only: ["cpu"] });
    // Tile loads a product, and the share of the peak on paper.
    const bounds = { BF16: [1, 0.95], Q4_0: [1.5, 0.3], "Q4_1, Q4_K": [1.5, 0.22] } as const;
    for (const [name, [loads, least]] of Object.entries(bounds)) {
      const kernel = AMX_KERNELS.find((kernel) => kernel.name === name);
      assert(kernel !== undefined);
      const counts = await amxCounts(kernel);
      assert(counts.tileLoads <= loads, `${name}: ${counts.tileLoads} tile loads a product`);
      const { loop } = amxShares(kernel, counts);
      assert(loop >= least, `${name}: ${loop} of the peak`);
    }
  },
});
