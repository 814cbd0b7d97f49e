/** Tests a native library that is missing, outdated, of another ABI version or prebuilt. */
import { assert, assertEquals, assertStringIncludes } from "@std/assert";
import { findLibrary, LIBRARY_PATH_VARIABLE, libraryFileName } from "../../ffi/library.ts";
import { TempFolder } from "../support/temp_folder.ts";
import { writeScriptedLlama } from "../support/tiny_llama.ts";
import { canCompile } from "../unit/build/fake_tree.ts";
import { denoArgs, forge } from "./forge.ts";
import { ROOT } from "../support/checkout.ts";

const SOURCES = ["deno.json", "deno.lock", "main.ts", "build.ts", "src", "ffi", "csrc", "models"];

/** Copies the sources of this tree, without builds, to a folder. */
function bareTree(folder: TempFolder): string {
  for (const name of SOURCES) Deno.symlinkSync(`${ROOT}/${name}`, folder.at(name));
  return folder.path;
}

/** Runs forge in a tree; `allow` adds folders from which it may load libraries. */
async function run(root: string, env: Record<string, string>, allow: readonly string[] = []) {
  const [first, ...rest] = denoArgs(["run", "-p", "Hi", "-n", "4"], root);
  const { code, stdout, stderr } = await new Deno.Command(Deno.execPath(), {
    args: [first!, ...allow.map((path) => `--allow-ffi=${path}`), ...rest],
    env: { NO_COLOR: "1", ...env },
    stdin: "null",
  }).output();
  const decoder = new TextDecoder();
  return { code, stdout: decoder.decode(stdout), stderr: decoder.decode(stderr) };
}

Deno.test("library: without a library or a compiler, the error says what to install", async () => {
  using folder = new TempFolder();
  const root = bareTree(folder);
  const { code, stdout, stderr } = await run(root, { PATH: folder.at("nowhere"), CXX: "" });
  assertEquals([code, stdout], [1, ""]);
  assertStringIncludes(stderr, "compiler");
});

Deno.test("library: a prebuilt library is used without a compiler", async () => {
  using folder = new TempFolder();
  const root = bareTree(folder);
  const library = findLibrary("cpu");
  assert(library !== undefined, "the CPU library is built before the tests run");
  const place = folder.at("lib", `${Deno.build.os}-${Deno.build.arch}`);
  Deno.mkdirSync(place, { recursive: true });
  Deno.copyFileSync(library, `${place}/${libraryFileName("cpu")}`);
  const { code, stdout, stderr } = await run(root, { PATH: folder.at("nowhere"), CXX: "" });
  assertEquals([code, stderr], [0, ""]);
  assert(stdout.length > 0);
});

/** Builds a CPU library of another ABI version. */
async function compileForeign(folder: TempFolder, place: string): Promise<void> {
  const source = folder.write("other.c", "unsigned forge_abi_version(void) { return 999; }\n");
  const compiled = await new Deno.Command("c++", {
    args: ["-x", "c", "-shared", "-fPIC", "-o", `${place}/${libraryFileName("cpu")}`, source],
  }).output();
  assert(compiled.success, new TextDecoder().decode(compiled.stderr));
}

Deno.test({
  name: "library: a library built from other sources is rebuilt",
  ignore: !canCompile,
  async fn() {
    using folder = new TempFolder();
    const root = bareTree(folder);
    const place = folder.at("build", `${Deno.build.os}-${Deno.build.arch}`);
    Deno.mkdirSync(place, { recursive: true });
    await compileForeign(folder, place);
    // Without a compiler it fails, and the error says why a compiler is needed.
    const { code, stdout, stderr } = await run(root, { PATH: folder.at("nowhere"), CXX: "" });
    assertEquals([code, stdout], [1, ""]);
    for (const part of ["another version of forge", "no C++ compiler found"]) {
      assertStringIncludes(stderr, part);
    }
    const doctor = await forge(["doctor"], { root });
    assertStringIncludes(doctor.stdout, "Models can run; the next run builds the library.");
    const helpless = await forge(["doctor"], { root, env: { CXX: folder.at("nothing") } });
    assertEquals(helpless.code, 1);
    assertStringIncludes(helpless.stdout, "No model can run");
  },
});

Deno.test({
  name: "library: a library of another ABI version is rejected by name",
  ignore: !canCompile,
  async fn() {
    using folder = new TempFolder();
    await compileForeign(folder, folder.path);
    const env = { [LIBRARY_PATH_VARIABLE]: folder.path };
    const { code, stderr } = await run(ROOT, env, [folder.path]);
    assertEquals(code, 1);
    for (const part of ["version 999", "deno task build"]) assertStringIncludes(stderr, part);
  },
});

Deno.test("library: another project imports forge through a link to its folder", async () => {
  using folder = new TempFolder();
  writeScriptedLlama(folder.at("model"), ["one ", "two"]);
  const imports = { "@forge/forge": "jsr:@forge/forge@^0.1.0" };
  folder.write("deno.json", JSON.stringify({ links: [ROOT], imports }));
  const script = folder.write(
    "main.ts",
    `import { load } from "@forge/forge";
await using model = await load(${JSON.stringify(folder.at("model"))});
console.log((await model.complete("x", { temperature: 0 })).text);
`,
  );
  const { stdout, stderr } = await new Deno.Command(Deno.execPath(), {
    args: ["run", "--quiet", "--no-prompt", "--allow-all", script],
    cwd: folder.path,
    stdin: "null",
  }).output();
  const decoder = new TextDecoder();
  assertEquals([decoder.decode(stdout), decoder.decode(stderr)], ["one two\n", ""]);
});
