/**
 * The libraries of macOS, compiled and linked on other systems by the same build, with an SDK of
 * stubs (test/macos_sdk).
 */
import { assertEquals } from "@std/assert";
import { join } from "@std/path";
import { buildLibraries } from "../../build.ts";
import { exportedFunctions, headerText } from "../../ffi/build/exports.ts";
import { commonCompileFlags, sharedFlags } from "../../ffi/build/libraries.ts";
import { machoExports } from "../macos_sdk/macho.ts";
import { outputOf } from "../macos_sdk/programs.ts";
import { macosCompiler, macosSdkUnavailable } from "../macos_sdk/sdk.ts";
import { ROOT } from "../support/checkout.ts";
import { isThorough } from "../support/thorough.ts";

const names = ["cpu", "metal"] as const;

const unavailable = macosSdkUnavailable();
if (unavailable !== undefined) console.error(`skipping: ${unavailable}`);

Deno.test({
  name: "the libraries of macOS link on Linux, and export the functions of forge.h and no others",
  // They take two minutes to compile; the check workflow builds them on macOS.
  ignore: !isThorough || unavailable !== undefined,
  fn: async () => {
    const built = await buildLibraries({
      platform: { os: "darwin", arch: "aarch64" },
      only: names,
      strict: true,
      cxx: await macosCompiler(),
      // Clang reads it. Only symbols are compared, and optimisation takes most of the time.
      environment: { ...Deno.env.toObject(), CCC_OVERRIDE_OPTIONS: "#O0" },
    });
    assertEquals(built.libraries.map(({ name }) => name), [...names]);
    const wanted = exportedFunctions(headerText("csrc/forge.h")).sort();
    for (const { name, path } of built.libraries) {
      const { cpu, exported } = machoExports(Deno.readFileSync(path));
      assertEquals([name, cpu, exported], [name, "arm64", wanted]);
    }
  },
});

Deno.test({
  name: "the scales of quantised weights contract no products and sums in libraries of macOS",
  ignore: unavailable !== undefined,
  fn: async () => {
    const [program = "", ...target] = (await macosCompiler()).split(" ");
    for (const file of ["fit", "k_quants"]) {
      const source = join(ROOT, `csrc/common/quant/${file}.cpp`);
      const flags = [...commonCompileFlags, ...sharedFlags, "-S", "-o", "-"];
      const assembly = outputOf(program, [...target, ...flags, source]);
      assertEquals(assembly.match(/\bfn?m(add|sub|la|ls)\b.*/g), null, `${file}.cpp`);
    }
  },
});
