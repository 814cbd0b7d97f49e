/**
 * The libraries of macOS, compiled and linked on other systems by the same build, with an SDK of
 * stubs (test/macos_sdk).
 */
import { assertEquals } from "@std/assert";
import { buildLibraries } from "../../build.ts";
import { exportedFunctions, headerText } from "../../ffi/build/exports.ts";
import { machoExports } from "../macos_sdk/macho.ts";
import { macosCompiler, macosSdkUnavailable } from "../macos_sdk/sdk.ts";

const unavailable = macosSdkUnavailable();
if (unavailable !== undefined) console.error(`skipping: ${unavailable}`);

Deno.test({
  name: "the libraries of macOS link on Linux, and export the functions of forge.h and no others",
  ignore: unavailable !== undefined,
  fn: async () => {
    const { libraries } = await buildLibraries({
      platform: { os: "darwin", arch: "aarch64" },
      only: ["cpu", "metal"],
      strict: true,
      cxx: await macosCompiler(),
    });
    assertEquals(libraries.map(({ name }) => name), ["cpu", "metal"]);
    const wanted = exportedFunctions(headerText("csrc/forge.h")).sort();
    for (const { name, path } of libraries) {
      const { cpu, exported } = machoExports(Deno.readFileSync(path));
      assertEquals([name, cpu, exported], [name, "arm64", wanted]);
    }
  },
});
