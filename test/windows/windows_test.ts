/**
 * The libraries of Windows: cross-compiled, their exports, and operations that Wine runs, compared
 * with the reference on Linux. Skipped without MinGW-w64 or Wine.
 */
import { assert, assertEquals, assertStringIncludes } from "@std/assert";
import { join } from "@std/path";
import { buildLibraries, type BuiltLibrary } from "../../build.ts";
import { exportedFunctions, headerText } from "../../ffi/build/exports.ts";
import { crossCompilers, type Platform } from "../../ffi/build/targets.ts";
import { ROOT } from "../support/checkout.ts";
import { TempFolder } from "../support/temp_folder.ts";
import { toolAvailable } from "../unit/build/fake_tree.ts";

const windows: Platform = { os: "windows", arch: "x86_64" };
const compiler = crossCompilers.windows.x86_64.command;
const canCompile = Deno.build.os === "linux" && await toolAvailable(compiler);
if (!canCompile) console.log(`libraries of Windows: skipped, because ${compiler} is missing`);
const canRun = canCompile && Deno.build.arch === "x86_64" && await toolAvailable("wine");
if (canCompile && !canRun) console.log("operations on Windows: skipped, because wine is missing");

async function build(): Promise<readonly BuiltLibrary[]> {
  const only = ["cpu", "reference"] as const;
  return (await buildLibraries({ platform: windows, only, strict: true, cxx: "" })).libraries;
}

async function run(program: string, args: readonly string[]): Promise<string> {
  const { success, stdout, stderr } = await new Deno.Command(program, { args: [...args] }).output();
  assert(success, `${program}: ${new TextDecoder().decode(stderr)}`);
  return new TextDecoder().decode(stdout);
}

Deno.test({
  name: "windows: the libraries export their header and need only DLLs of the system",
  ignore: !canCompile,
  async fn() {
    const functions = exportedFunctions(headerText(join(ROOT, "csrc", "forge.h"))).sort();
    for (const { path } of await build()) {
      const text = await run("x86_64-w64-mingw32-objdump", ["-p", path]);
      const table = text.slice(text.indexOf("[Ordinal/Name Pointer] Table"));
      const exported = table.match(/(?<=\[ *\d+\] .*?)\bforge_\w+/g) ?? [];
      assertEquals(exported.sort(), functions, path);
      const needed = text.match(/(?<=DLL Name: )\S+/g) ?? [];
      assert(
        needed.length > 0 &&
          needed.every((name) =>
            /^(KERNEL32|msvcrt|api-ms-win-core-synch-l1-2-0)\.dll$/i.test(name)
          ),
        `${needed}`,
      );
    }
  },
});

/** Tests whose cases do not depend on concurrent calls. */
const operations = [
  ...["activations", "attention", "gather_columns", "kv", "matmul", "moe", "norms", "rope", "rows"],
  ...["quant", "quantized_matmul", "sampling", "state"],
].map((name) => `test/ops/${name}_test.ts`);

Deno.test({
  name: "windows: operations on Wine agree with the reference",
  ignore: !canRun,
  async fn() {
    const [cpu] = await build();
    using folder = new TempFolder();
    const driver = folder.at("driver.exe");
    const source = join(ROOT, "test", "windows", "driver.cpp");
    await run(compiler, ["-std=c++20", "-O2", "-static", source, "-o", driver]);
    const { stdout } = await new Deno.Command(Deno.execPath(), {
      args: ["test", "-A", "--no-check", "--preload", "test/windows/bridge.ts", ...operations],
      cwd: ROOT,
      env: {
        NO_COLOR: "1",
        FORGE_TEST_DEVICES: "reference,cpu",
        FORGE_TEST_WINDOWS_PROGRAM: driver,
        FORGE_TEST_WINDOWS_LIBRARY: cpu!.path,
        WINEPREFIX: join(ROOT, "build", "wine"),
        WINEDEBUG: "-all",
      },
      // A library that hangs must not stop all tests. It takes a minute.
      signal: AbortSignal.timeout(400_000),
    }).output();
    const output = new TextDecoder().decode(stdout);
    assertStringIncludes(output, "(cpu:");
    assert(/ passed .*\| 0 failed/.test(output), output);
  },
});
