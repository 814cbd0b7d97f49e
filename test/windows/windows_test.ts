/**
 * The libraries of Windows: cross-compiled, their exports, operations that Wine runs, compared with
 * the reference on Linux, and the search for NVIDIA's libraries, with stand-ins for them. Skipped
 * without MinGW-w64 or Wine.
 */
import { assert, assertEquals, assertStringIncludes } from "@std/assert";
import { dirname, join } from "@std/path";
import { buildLibraries, type BuiltLibrary, type LibraryName } from "../../build.ts";
import { exportedFunctions, headerText } from "../../ffi/build/exports.ts";
import { crossCompilers, type Platform } from "../../ffi/build/targets.ts";
import { ROOT } from "../support/checkout.ts";
import { crossFlags } from "../support/cross_build.ts";
import { TempFolder } from "../support/temp_folder.ts";
import { drawn, isThorough } from "../support/thorough.ts";
import { toolAvailable } from "../unit/build/fake_tree.ts";

const windows: Platform = { os: "windows", arch: "x86_64" };
const compiler = crossCompilers.windows.x86_64.command;
const canCompile = Deno.build.os === "linux" && await toolAvailable(compiler);
if (!canCompile) console.log(`libraries of Windows: skipped, because ${compiler} is missing`);
const canRun = canCompile && Deno.build.arch === "x86_64" && await toolAvailable("wine");
if (canCompile && !canRun) console.log("operations on Windows: skipped, because wine is missing");

/**
 * The library whose operations Wine runs. The kernels of the CPU take minutes to compile: only
 * `deno task thorough` builds them here, and the check workflow does on Windows. The reference has
 * the same interface, recorder, checks and weight types.
 */
const computing = isThorough ? "cpu" : "reference";

async function build(...only: LibraryName[]): Promise<readonly BuiltLibrary[]> {
  const options = { platform: windows, only, strict: true, cxx: "", flags: crossFlags };
  return (await buildLibraries(options)).libraries;
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
    const names = isThorough ? ["cpu", "reference", "cuda"] as const : ["reference"] as const;
    for (const { path } of await build(...names)) {
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

const wineVariables = {
  WINEPREFIX: join(ROOT, "build", "wine"),
  WINEDEBUG: "-all",
  // A new prefix takes half as long without .NET, a browser and menus.
  WINEDLLOVERRIDES: "mscoree,mshtml,winemenubuilder.exe=",
};

Deno.test({
  name: "windows: NVIDIA's DLLs are found in the order of folders and versions",
  // The library and its stand-ins take more than a minute to compile.
  ignore: !isThorough || !canRun,
  async fn() {
    const [cuda] = await build("cuda");
    using folder = new TempFolder();
    const source = join(ROOT, "test", "windows", "cuda.cpp");
    const compile = (output: string, ...flags: readonly string[]) =>
      run(compiler, ["-std=c++20", "-O1", "-static", source, "-o", output, ...flags]);
    const program = folder.at("cuda.exe");
    await compile(program, join(ROOT, "csrc", "cuda", "shared_library.cpp"));
    const stand = async (id: number, ...path: readonly string[]) => {
      const dll = folder.at(...path);
      Deno.mkdirSync(dirname(dll), { recursive: true });
      await compile(dll, "-shared", `-DSTAND_IN_ID=${id}`);
    };
    const windowsPath = (path: string) => `Z:${path}`;
    const ask = async (args: readonly string[], variables: Record<string, string> = {}) => {
      const { success, stdout, stderr } = await new Deno.Command("wine", {
        args: [program, ...args],
        env: { ...wineVariables, ...variables },
        signal: AbortSignal.timeout(60_000),
      }).output();
      assert(success, new TextDecoder().decode(stderr));
      return new TextDecoder().decode(stdout).trim();
    };
    const toolkit = folder.at("toolkit é");
    const CUDA_PATH = windowsPath(toolkit);

    const missing = await ask(["find", "nvrtc", "13000"], { CUDA_PATH });
    assertStringIncludes(missing, "nvrtc64_130_0.dll");
    assertStringIncludes(missing, "pip install nvidia-cuda-nvrtc");

    await stand(120, "toolkit é", "bin", "nvrtc64_120_0.dll");
    const old = `${CUDA_PATH}/bin/nvrtc64_120_0.dll 120`;
    assertEquals(await ask(["find", "nvrtc", "13000"], { CUDA_PATH }), old);
    await stand(130, "toolkit é", "bin", "x64", "nvrtc64_130_0.dll");
    const recent = `${CUDA_PATH}/bin/x64/nvrtc64_130_0.dll 130`;
    assertEquals(await ask(["find", "nvrtc", "13000"], { CUDA_PATH }), recent);
    // A driver of CUDA 12 cannot load the code of 13.
    assertEquals(await ask(["find", "nvrtc", "12080"], { CUDA_PATH }), old);
    // Versions are compared as numbers.
    for (const version of [9, 10]) {
      const nvidia = ["packages", "Lib", "site-packages", "nvidia", `cublas-${version}`, "bin"];
      await stand(version, ...nvidia, "cublasLt64_12.dll");
    }
    const VIRTUAL_ENV = windowsPath(folder.at("packages"));
    assertEquals(
      await ask(["find", "cublaslt", "13000"], { CUDA_PATH, VIRTUAL_ENV }),
      `${VIRTUAL_ENV}/Lib/site-packages/nvidia/cublas-10/bin/cublasLt64_12.dll 10`,
    );
    const chosen = windowsPath(folder.at("toolkit é", "bin")).replaceAll("/", "\\");
    assertEquals(await ask(["find", "nvrtc", "13000"], { CUDA_PATH, FORGE_NVRTC: chosen }), old);

    const devices = async (driver: string) =>
      JSON.parse(await ask(["devices", cuda!.path], { FORGE_CUDA_DRIVER: driver }));
    assertEquals(await devices("none"), []);
    assertEquals(await devices(windowsPath(folder.at("missing", "nvcuda.dll"))), []);
    await compile(folder.at("nvcuda.dll"), "-shared", "-DSTAND_IN_DRIVER");
    assertEquals(await devices(windowsPath(folder.at("nvcuda.dll"))), [
      { selector: "0", name: "Stand-in", memory_bytes: 2 ** 34, architecture: "sm_90" },
    ]);
  },
});

/**
 * Tests whose cases do not depend on concurrent calls. Those that take the longest are for the
 * kernels of the CPU.
 */
const operations = [
  ...drawn("operations of Windows", [
    ...["activations", "gather_columns", "kv", "matmul", "moe", "norms", "rope", "rows", "quant"],
    ...["sampling", "state"],
  ], 1 / 2),
  ...isThorough ? ["attention", "quantized_matmul"] : [],
].map((name) => `test/ops/${name}_test.ts`);

Deno.test({
  name: "windows: operations on Wine agree with the reference",
  ignore: !canRun,
  async fn() {
    const [library] = await build(computing);
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
        FORGE_TEST_WINDOWS_LIBRARY: library!.path,
        ...wineVariables,
      },
      // A library that hangs must not stop all tests. It takes a minute.
      signal: AbortSignal.timeout(400_000),
    }).output();
    const output = new TextDecoder().decode(stdout);
    assertStringIncludes(output, isThorough ? "(cpu:" : "(cpu)");
    assert(/ passed .*\| 0 failed/.test(output), output);
  },
});
