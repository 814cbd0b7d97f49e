import { assertEquals, assertMatch, assertStringIncludes } from "@std/assert";
import { join } from "@std/path";
import { ROOT } from "../../support/checkout.ts";

async function runTask(program: string, args: readonly string[], variables = {}) {
  const { code, stdout, stderr } = await new Deno.Command(Deno.execPath(), {
    args: ["run", "--quiet", "--allow-all", join(ROOT, program), ...args],
    env: { NO_COLOR: "1", ...variables },
  }).output();
  const decoder = new TextDecoder();
  return { code, output: decoder.decode(stdout), errors: decoder.decode(stderr) };
}

const programs = [
  "build.ts",
  "ffi/build/package.ts",
  "ffi/build/install.ts",
  "ffi/build/release/compile.ts",
  "ffi/build/release/pack_npm.ts",
];

Deno.test("build, package, install: --help goes to stdout", async () => {
  for (const program of programs) {
    const { code, output, errors } = await runTask(program, ["--help"]);
    assertEquals([code, errors], [0, ""]);
    assertMatch(output, /^Usage: deno task \w+ \[options\]\n/);
  }
});

Deno.test("build, package, install: an unknown option is one line and exit code 2", async () => {
  for (const program of programs) {
    const { code, output, errors } = await runTask(program, ["--optimise"]);
    assertEquals([code, output], [2, ""]);
    assertMatch(errors, /^error: Unknown option '--optimise'.*\n$/);
  }
});

Deno.test("build: an invalid value is quoted with the valid ones", async () => {
  const cases: readonly (readonly [string, string, string])[] = [
    ["--only", "cpu,gpu", '--only: unknown name "gpu"; valid are cpu, reference'],
    ["--only", "", '--only: unknown name ""'],
    ["--sanitize", "memory", '--sanitize: unknown name "memory"; valid are address'],
    ["--target", "mips", 'unknown target "mips"; valid are x86_64, aarch64 and windows'],
    ["--jobs", "0", '--jobs "0" is not a number from 1 to 9999'],
  ];
  for (const [option, value, message] of cases) {
    const { code, errors } = await runTask("build.ts", [option, value]);
    assertEquals(code, 2);
    assertStringIncludes(errors, `error: ${message}`);
  }
});

Deno.test("build: a missing compiler is exit code 1", async () => {
  const { code, output, errors } = await runTask("build.ts", [], { CXX: "no-such-compiler" });
  assertEquals([code, output], [1, ""]);
  assertEquals(errors, 'error: no compiler "no-such-compiler" found, named by the variable CXX\n');
});
