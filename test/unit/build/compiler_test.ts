import { assertEquals, assertRejects, assertStringIncludes } from "@std/assert";
import { join } from "@std/path";
import { findCompiler, runProcess } from "../../../ffi/build/compiler.ts";
import { hostPlatform, type Platform } from "../../../ffi/build/targets.ts";
import { ForgeError } from "../../../src/errors.ts";

const host = hostPlatform();
const otherArch = host.arch === "x86_64" ? "aarch64" : "x86_64";
const other: Platform = { os: host.os, arch: otherArch };

/** A folder of fake compilers, used as PATH. */
class FakePath {
  readonly folder = Deno.makeTempDirSync({ prefix: "forge-path-" });
  readonly environment = { PATH: this.folder };

  /** Adds a compiler that prints these macros. */
  addCompiler(name: string, macros: Readonly<Record<string, string>>): void {
    const lines = Object.entries(macros).map(([name, value]) => `#define ${name} ${value}`);
    this.addProgram(name, `cat <<'END'\n${lines.join("\n")}\nEND\n`);
  }

  addProgram(name: string, script: string): void {
    const path = join(this.folder, name);
    Deno.writeTextFileSync(path, `#!/bin/sh\nPATH=/usr/bin:/bin\n${script}`, { mode: 0o755 });
  }

  [Symbol.dispose](): void {
    Deno.removeSync(this.folder, { recursive: true });
  }
}

function macros(arch: Platform["arch"], version: string): Record<string, string> {
  return { __cplusplus: "202002L", [`__${arch}__`]: "1", __VERSION__: `"${version}"` };
}

Deno.test("findCompiler: takes the first available of c++, g++ and clang++", async () => {
  using path = new FakePath();
  const find = () => findCompiler(host, { environment: path.environment });
  path.addCompiler("clang++", macros(host.arch, "clang 18"));
  assertEquals((await find()).command, ["clang++"]);
  path.addCompiler("g++", macros(host.arch, "12.2.0"));
  assertEquals(await find(), { command: ["g++"], identity: `g++ 12.2.0 ${host.arch}` });
});

Deno.test("findCompiler: CXX comes first, and may have arguments", async () => {
  using path = new FakePath();
  path.addCompiler("g++", macros(host.arch, "12.2.0"));
  path.addCompiler("ccache", macros(host.arch, "14.1.0"));
  const { command } = await findCompiler(host, {
    cxx: " ccache g++ ",
    environment: path.environment,
  });
  assertEquals(command, ["ccache", "g++"]);
});

Deno.test("findCompiler: without a compiler, says what to install", async () => {
  using path = new FakePath();
  const error = await assertRejects(
    () => findCompiler(host, { environment: path.environment }),
    ForgeError,
    "no C++ compiler found (tried c++, g++, clang++)",
  );
  assertEquals(error.code, "not_found");
  for (const command of ["apt-get install g++", "dnf install", "apk add", "xcode-select"]) {
    assertStringIncludes(error.message, command);
  }
});

Deno.test("findCompiler: a missing CXX is named", async () => {
  const error = await assertRejects(
    () => findCompiler(host, { cxx: "no-such-compiler" }),
    ForgeError,
    'no compiler "no-such-compiler" found, named by the variable CXX',
  );
  assertEquals(error.code, "not_found");
});

Deno.test("findCompiler: another processor's compiler is rejected", async () => {
  using path = new FakePath();
  path.addCompiler("cross", macros(otherArch, "12.2.0"));
  const error = await assertRejects(
    () => findCompiler(host, { cxx: "cross", environment: path.environment }),
    ForgeError,
    `"cross" compiles for ${otherArch}, not for ${host.arch}`,
  );
  assertEquals(error.code, "usage");
});

Deno.test("findCompiler: a compiler without C++20 is rejected with its own message", async () => {
  using path = new FakePath();
  path.addProgram("c++", "echo \"unrecognized option '-std=c++20'\" >&2\nexit 1\n");
  const error = await assertRejects(
    () => findCompiler(host, { environment: path.environment }),
    ForgeError,
    "unrecognized option '-std=c++20'",
  );
  assertEquals(error.code, "not_found");

  // GCC 10 has the number of a draft.
  path.addCompiler("c++", { ...macros(host.arch, "10.2.0"), __cplusplus: "201709L" });
  assertEquals((await findCompiler(host, { environment: path.environment })).command, ["c++"]);
  path.addCompiler("c++", { ...macros(host.arch, "9.4.0"), __cplusplus: "201402L" });
  await assertRejects(
    () => findCompiler(host, { environment: path.environment }),
    ForgeError,
    '"c++" cannot compile C++20',
  );
});

Deno.test("findCompiler: CXX comes before the cross compiler of a platform", async () => {
  using path = new FakePath();
  path.addCompiler("other++", macros(otherArch, "12.2.0"));
  const { environment } = path;
  const { command } = await findCompiler(other, { cxx: "other++", environment });
  assertEquals(command, ["other++"]);
});

Deno.test("findCompiler: without a cross compiler, names its package", async () => {
  using path = new FakePath();
  const error = await assertRejects(
    () => findCompiler(other, { environment: path.environment }),
    ForgeError,
    "sudo apt-get install g++-",
  );
  assertEquals(error.code, "not_found");
  assertStringIncludes(error.message, `${host.os}-${otherArch}`);
});

Deno.test("runProcess: a program gets the given variables and no others", async () => {
  const { output } = await runProcess(["/usr/bin/env"], "/", { FORGE_GIVEN: "1" });
  assertEquals(output, "FORGE_GIVEN=1\n");
});

Deno.test("runProcess: Ctrl-C, which also ends the compiler, is reported as cancelled", async () => {
  const error = await assertRejects(
    () => runProcess(["/bin/sh", "-c", "kill -INT $$"], "/"),
    ForgeError,
  );
  assertEquals(error.code, "cancelled");
});
