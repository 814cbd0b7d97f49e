/** Finding, opening and closing libraries. */
import {
  assert,
  assertEquals,
  assertRejects,
  assertStringIncludes,
  assertThrows,
} from "@std/assert";
import { join } from "@std/path";
import { ABI_VERSION } from "../../../ffi/abi.ts";
import { type Compiler, findCompiler, runProcess } from "../../../ffi/build/compiler.ts";
import { hostPlatform } from "../../../ffi/build/targets.ts";
import {
  findLibrary,
  Library,
  LIBRARY_PATH_VARIABLE,
  libraryCandidates,
  libraryFileName,
  platform,
} from "../../../ffi/library.ts";
import { NativeBackend } from "../../../ffi/native_backend.ts";
import type { Recorder, Step, StepInputs, Value } from "../../../src/backend.ts";
import { ForgeError } from "../../../src/errors.ts";
import { matrixOf } from "../../support/matrix.ts";
import { StepGraph, tokenInputs } from "../../support/step_graph.ts";
import { TempFolder } from "../../support/temp_folder.ts";

const path = findLibrary("reference");
const ignore = path === undefined;
if (ignore) console.error("skipping: the reference library is missing");

async function hostCompiler(): Promise<Compiler | undefined> {
  try {
    return await findCompiler(hostPlatform(), { cxx: Deno.env.get("CXX") });
  } catch (error) {
    if (!(error instanceof ForgeError)) throw error;
    console.error(`skipping: ${error.message.split("\n")[0]}`);
    return undefined;
  }
}

const compiler = await hostCompiler();

/** Compiles a shared library from a few lines of C++. */
async function compile(folder: TempFolder, name: string, source: string): Promise<string> {
  const file = folder.write(`${name}.cpp`, source);
  const output = folder.at(`${name}.so`);
  const command = [...compiler!.command, "-shared", "-fPIC", "-o", output, file];
  const { ok, errors } = await runProcess(command, folder.path);
  assert(ok, errors);
  return output;
}

/** Runs `body` with another value of the variable, or none. */
function withLibraryPath<T>(value: string | undefined, body: () => T): T {
  const before = Deno.env.get(LIBRARY_PATH_VARIABLE);
  const set = (value: string | undefined) =>
    value === undefined
      ? Deno.env.delete(LIBRARY_PATH_VARIABLE)
      : Deno.env.set(LIBRARY_PATH_VARIABLE, value);
  set(value);
  try {
    return body();
  } finally {
    set(before);
  }
}

Deno.test("library: search order", () => {
  const name = libraryFileName("cpu");
  const inRoot = [join("/root", "build", platform(), name), join("/root", "lib", platform(), name)];
  assertEquals(withLibraryPath(undefined, () => [...libraryCandidates("cpu", "/root")]), inRoot);
  assertEquals(withLibraryPath("", () => [...libraryCandidates("cpu", "/root")]), inRoot);
  assertEquals(
    withLibraryPath("/elsewhere", () => [...libraryCandidates("cpu", "/root")]),
    [join("/elsewhere", name), ...inRoot],
  );
});

Deno.test("library: the first existing one is taken", () => {
  using folder = new TempFolder();
  const found = withLibraryPath(undefined, () => findLibrary("reference"));
  assertEquals(withLibraryPath(folder.path, () => findLibrary("reference")), found);
  const mine = folder.write(libraryFileName("reference"), "not a library");
  assertEquals(withLibraryPath(folder.path, () => findLibrary("reference")), mine);
  assertEquals(withLibraryPath(folder.at("missing"), () => findLibrary("reference")), found);
  Deno.removeSync(mine);
  Deno.mkdirSync(mine);
  assertEquals(withLibraryPath(folder.path, () => findLibrary("reference")), found);
});

const missing = (["metal", "cuda"] as const).find((kind) => findLibrary(kind) === undefined);

Deno.test({
  name: "library: a missing one",
  ignore: missing === undefined,
  fn() {
    const error = assertThrows(() => Library.open(missing!), ForgeError, "deno task build");
    assertEquals(error.code, "not_found");
    for (const tried of libraryCandidates(missing!)) assertStringIncludes(error.message, tried);
    const opened = assertThrows(() => NativeBackend.open({ kind: missing! }), ForgeError);
    assertEquals(opened.message, error.message);
  },
});

Deno.test("library: a file of another format", () => {
  using folder = new TempFolder();
  for (const path of [folder.write("text.so", "hello"), folder.at("missing.so")]) {
    const error = assertThrows(
      () => Library.open("cpu", path),
      ForgeError,
      `cannot load ${path}: `,
    );
    assertEquals(error.code, "device");
  }
});

Deno.test({
  name: "library: another ABI version, or none",
  ignore: compiler === undefined,
  async fn() {
    using folder = new TempFolder();
    const version = (value: number) =>
      `extern "C" unsigned forge_abi_version() { return ${value}; }`;
    const other = await compile(folder, "other", version(ABI_VERSION + 1));
    const error = assertThrows(() => Library.open("cpu", other), ForgeError);
    assertEquals(
      error.message,
      `${other} implements ABI version ${ABI_VERSION + 1}, this forge needs ${ABI_VERSION}; ` +
        "rebuild it with: deno task build",
    );
    assertEquals(error.code, "device");

    // The right version without the functions, and an unrelated library.
    const empty = await compile(folder, "empty", version(ABI_VERSION));
    assertThrows(() => Library.open("cpu", empty), ForgeError, `cannot load ${empty}`);
    const foreign = await compile(folder, "foreign", "int answer() { return 42; }");
    assertThrows(() => Library.open("cpu", foreign), ForgeError, `cannot load ${foreign}`);
  },
});

Deno.test({
  name: "library: without the permission to open it, the error is Deno's",
  permissions: { read: true, env: true, ffi: false },
  ignore,
  fn() {
    assertThrows(() => Library.open("reference", path), Deno.errors.NotCapable);
  },
});

Deno.test({
  name: "library: its information",
  ignore,
  fn() {
    using library = Library.open("reference");
    const info = library.info();
    assertEquals(info.backend, "reference");
    assert(info.types.includes("Q4_K") && info.types.includes("MXFP4"));
    assertEquals(library.devices().map(({ selector }) => selector), [""]);
  },
});

Deno.test({
  name: "library: closed",
  ignore,
  fn() {
    const library = Library.open("reference");
    library.close();
    library.close();
    assertThrows(() => library.symbols, ForgeError, "the reference library is closed");
    assertThrows(() => library.info(), ForgeError, "is closed");
    assertThrows(() => library.devices(), ForgeError, "is closed");
  },
});

Deno.test({
  name: "device: an unknown selector",
  ignore,
  fn() {
    const error = assertThrows(
      () => NativeBackend.open({ kind: "reference", selector: "turbo" }),
      ForgeError,
      '"turbo"',
    );
    assertEquals(error.code, "device");
    assertThrows(
      () => NativeBackend.open({ kind: "reference", threads: 1025 }),
      ForgeError,
      "n_threads is 1025; valid is 0 to 1024",
    );
    assertThrows(
      () => NativeBackend.open({ kind: "reference", selector: "a\0b" }),
      TypeError,
      "NUL",
    );
  },
});

/** A device with a slow step, and its inputs. */
async function slowStep(): Promise<{
  readonly device: NativeBackend;
  readonly recorder: Recorder;
  readonly step: Step;
  readonly inputs: StepInputs;
}> {
  const device = NativeBackend.open({ kind: "reference" });
  const recorder = device.record({ maxTokens: 64, maxOutputs: 1, maxSequences: 1, maxPages: 1 });
  const graph = new StepGraph(device, recorder);
  let value = graph.input(matrixOf(64, 64, (row, col) => row - col));
  for (let i = 0; i < 300; i++) value = recorder.softcap(value, 2);
  return { device, recorder, step: await recorder.finish(), inputs: tokenInputs(64) };
}

Deno.test({
  name: "device: every call on a closed one is an error",
  ignore,
  async fn() {
    const { device, recorder, step, inputs } = await slowStep();
    const graph = new StepGraph(device, recorder);
    const kv = graph.kv({
      type: "F32",
      nPages: 1,
      pageTokens: 1,
      nKvHeads: 1,
      kHeadDim: 1,
      vHeadDim: 1,
    });
    const weight = device.uploadWeight("F32", 1, 1, new Uint8Array(4));
    device.close();
    device.close();
    const message = "the reference device is closed";
    assertThrows(() => device.uploadWeight("F32", 1, 1, new Uint8Array(4)), ForgeError, message);
    assertThrows(() => device.readWeight(weight, 0, 1), ForgeError, message);
    assertThrows(() => device.quantize("F32", 1, 1, new Float32Array(1)), ForgeError, message);
    assertThrows(() => device.mapWeight([], 1), ForgeError, message);
    assertThrows(
      () => device.record({ maxTokens: 1, maxOutputs: 1, maxSequences: 1, maxPages: 1 }),
      ForgeError,
      message,
    );
    assertThrows(() => kv.copyPage(0, 0), ForgeError, message);
    assertThrows(() => kv.readPage(0), ForgeError, message);
    assertThrows(() => kv.writePage(0, new Uint8Array(kv.pageBytes)), ForgeError, message);
    assertThrows(() => recorder.keep(graph.input(matrixOf(1, 1, () => 0))), ForgeError, message);
    await assertRejects(() => recorder.finish(), ForgeError, message);
    await assertRejects(() => step.run(inputs), ForgeError, message);
    step.cancel();
    step.release();
  },
});

Deno.test({
  name: "device: closing waits for the running step",
  ignore,
  async fn() {
    const { device, step, inputs } = await slowStep();
    const run = step.run(inputs);
    device.close();
    await assertRejects(() => step.run(inputs), ForgeError, "already running");
    assertEquals(await run, []);
    await assertRejects(() => step.run(inputs), ForgeError, "the reference device is closed");
  },
});

Deno.test({
  name: "device: a cancelled run on a device that is closed meanwhile",
  ignore,
  async fn() {
    const { device, step, inputs } = await slowStep();
    const run = step.run(inputs);
    step.cancel();
    device.close();
    const error = await assertRejects(() => run, ForgeError, "stopped on request");
    assertEquals(error.code, "cancelled");
  },
});

Deno.test({
  name: "device: releasing a step twice, and using it afterwards",
  ignore,
  async fn() {
    const { device, step, inputs } = await slowStep();
    const run = step.run(inputs);
    step.release();
    step.release();
    assertEquals(await run, [], "a run that is under way ends in peace");
    const error = await assertRejects(() => step.run(inputs), ForgeError, "step was released");
    assertEquals(error.code, "device");
    assertThrows(() => step.read(1 as Value, 64, 0, 1), ForgeError, "bad handle");
    device.close();
  },
});

Deno.test({
  name: "device: opened, used and closed repeatedly",
  ignore,
  async fn() {
    for (let i = 0; i < 20; i++) {
      const { device, step, inputs } = await slowStep();
      if (i % 2 === 0) step.release();
      else await step.run({ ...inputs, tokens: [0], positions: [0], sequences: [0] });
      device.close();
    }
  },
});
