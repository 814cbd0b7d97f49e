import { assert, assertEquals, assertStringIncludes, assertThrows } from "@std/assert";
import { join } from "@std/path";
import type { Compiler } from "../../../ffi/build/compiler.ts";
import { exportedFunctions, exportList, headerText } from "../../../ffi/build/exports.ts";
import {
  embeddedSource,
  type LibraryGraph,
  libraryGraph,
  type Variant,
} from "../../../ffi/build/graph.ts";
import { libraries, type LibraryName } from "../../../ffi/build/libraries.ts";
import { parseDepfile } from "../../../ffi/build/record.ts";
import type { Platform } from "../../../ffi/build/targets.ts";
import { ForgeError } from "../../../src/errors.ts";
import { FakeTree } from "./fake_tree.ts";

const compiler: Compiler = { command: ["ccache", "g++"], identity: "g++ 12" };
const release: Variant = { debug: false, sanitizers: [], strict: false };

function graphOf(
  name: LibraryName,
  platform: Platform,
  variant: Variant = release,
): LibraryGraph {
  using tree = new FakeTree();
  const library = libraries.find((library) => library.name === name);
  assert(library !== undefined);
  return libraryGraph(tree.root, library, platform, variant, compiler);
}

const linux: Platform = { os: "linux", arch: "x86_64" };
const linuxArm: Platform = { os: "linux", arch: "aarch64" };
const mac: Platform = { os: "darwin", arch: "aarch64" };

Deno.test("libraryGraph: kernels are compiled once for every instruction set, a folder of one for it alone", () => {
  const labels = (platform: Platform) =>
    graphOf("cpu", platform).compiles.map((step) => step.label);
  assertEquals(labels(linux), [
    "csrc/common/one.cpp",
    "csrc/cpu/sum.cpp",
    "csrc/cpu/kernels/lanes.cpp (portable)",
    "csrc/cpu/kernels/lanes.cpp (avx2)",
    "csrc/cpu/kernels/lanes.cpp (avx2_vnni)",
    "csrc/cpu/kernels/lanes.cpp (avx512_bw)",
    "csrc/cpu/kernels/lanes.cpp (avx512)",
    "csrc/cpu/kernels/avx512_bf16/pairs.cpp (avx512_bf16)",
  ]);
  assertEquals(labels(linuxArm).slice(2), [
    "csrc/cpu/kernels/lanes.cpp (portable)",
    "csrc/cpu/kernels/lanes.cpp (neon_dot)",
    "csrc/cpu/kernels/lanes.cpp (neon_i8mm)",
  ]);
});

Deno.test("libraryGraph: only the kernels of a target use its instructions", () => {
  for (const { label, command } of graphOf("cpu", linux).compiles) {
    assertEquals(command.includes("-mavx512bf16"), label.endsWith("(avx512_bf16)"), label);
    assertEquals(command.includes("-mavx512f"), /\(avx512(_bw|_bf16)?\)$/.test(label), label);
    assertEquals(
      command.includes("-mavx2"),
      /\(avx(2|2_vnni|512|512_bw|512_bf16)\)$/.test(label),
      label,
    );
    assertEquals(command.includes("-DFORGE_TARGET=portable"), label.endsWith("(portable)"), label);
  }
});

Deno.test("libraryGraph: objects are linked from the least to the most capable", () => {
  const { compiles, link, exports } = graphOf("cpu", linux);
  assertEquals(link.inputs, [...compiles.map(({ output }) => output), exports.path]);
  const objects = link.command.filter((argument) => argument.endsWith(".o"));
  assertEquals(objects, compiles.map((step) => step.output));
  assertEquals(objects.map((path) => path.match(/\.(\w+)\.o$/)?.[1]), [
    "cpp",
    "cpp",
    "portable",
    "avx2",
    "avx2_vnni",
    "avx512_bw",
    "avx512",
    "avx512_bf16",
  ]);
});

Deno.test("libraryGraph: every object has its own path, and those of shared folders one", () => {
  const variants = [
    release,
    { ...release, debug: true },
    { ...release, sanitizers: ["address"] as const },
    { ...release, debug: true, sanitizers: ["address"] as const },
  ];
  const steps = (["cpu", "reference"] as const).flatMap((name) =>
    variants.flatMap((variant) => graphOf(name, linux, variant).compiles)
  );
  const commands = new Map(steps.map(({ output, command }) => [output, command]));
  for (const { output, command } of steps) assertEquals(commands.get(output), command);
  const shared = steps.filter(({ inputs }) => inputs[0]?.startsWith("csrc/common/"));
  assert(shared.length > 0);
  assertEquals(commands.size, steps.length - shared.length / 2);
});

Deno.test("libraryGraph: small files of a folder are compiled together, slow ones alone", () => {
  const [library] = libraries.filter(({ name }) => name === "cpu");
  assert(library !== undefined);
  using tree = new FakeTree();
  const slow = "csrc/cpu/kernels/slow.cpp";
  tree.write(slow, "");
  tree.write("csrc/cpu/kernels/more.cpp", "");
  for (let i = 10; i < 24; ++i) tree.write(`csrc/common/two_${i}.cpp`, "");
  const compiles = (variant: Variant) =>
    libraryGraph(tree.root, { ...library, slow: [slow] }, linux, variant, compiler).compiles;

  const steps = compiles(release);
  assertEquals(steps.map(({ label }) => label).slice(0, 5), [
    "csrc/common/one.cpp to two_16.cpp",
    "csrc/common/two_17.cpp to two_23.cpp",
    "csrc/cpu/sum.cpp",
    "csrc/cpu/kernels/lanes.cpp to more.cpp (portable)",
    "csrc/cpu/kernels/slow.cpp (portable)",
  ]);
  assertEquals(steps.filter(({ isSlow }) => isSlow).length, 5);
  assertEquals(steps[1]?.inputs.length, 7);
  for (const { command, inputs } of steps) {
    const compiled = command.filter((_, i) => ["-include", "-c"].includes(command[i - 1] ?? ""));
    assertEquals(compiled, inputs);
  }

  // Alone, a file with a missing include does not compile.
  assertEquals(compiles({ ...release, debug: true }).length, 16 + 5 * 3 + 1);
});

Deno.test("libraryGraph: the reference contracts nothing", () => {
  for (const { command } of graphOf("reference", linux).compiles) {
    assert(command.includes("-ffp-contract=off"));
  }
});

Deno.test("libraryGraph: the link fits the system", () => {
  const { link } = graphOf("cpu", linux);
  assertEquals(link.output, "build/linux-x86_64/libforge_cpu.so");
  assert(link.command.includes("-static-libstdc++") && link.command.includes("-shared"));
  const onMac = graphOf("cpu", mac);
  assertEquals(onMac.link.output, "build/darwin-aarch64/libforge_cpu.dylib");
  assert(onMac.link.command.includes("-dynamiclib"));
  assert(!onMac.link.command.some((argument) => /soname|version-script|static/.test(argument)));
});

Deno.test("libraryGraph: a sanitizer is compiled and linked in", () => {
  const { compiles, link } = graphOf("cpu", linux, {
    ...release,
    sanitizers: ["address", "undefined"],
  });
  assertEquals(link.output, "build/linux-x86_64-address-undefined/libforge_cpu.so");
  for (const { command } of [...compiles, link]) {
    assert(command.includes("-fsanitize=address,undefined"));
  }
});

Deno.test("embeddedSource: texts that a literal cannot contain are rejected", () => {
  const source = embeddedSource([{ name: "a.h", text: 'x\n"y"' }]);
  assertStringIncludes(source, '    "a.h", R"embedded(x\n"y")embedded",\n    nullptr,');
  for (const text of [')embedded"', "a\0b"]) {
    assertThrows(
      () => embeddedSource([{ name: "a.h", text }]),
      ForgeError,
      "a.h cannot be embedded",
    );
  }
});

Deno.test("exportedFunctions: the functions of a header, without comments and macros", () => {
  const header = `
    #define FORGE_API __attribute__((visibility("default")))
    #define FORGE_TWICE(x) \\
      FORGE_API int forge_from_a_macro(int x)
    /* FORGE_API int forge_commented(void);
     */
    // FORGE_API int forge_commented_too(void);
    FORGE_API uint32_t forge_abi_version(void);
    FORGE_API forge_status forge_info(char *text,
                                      uint64_t capacity);
    FORGE_API const char *forge_name(void (*callback)(int));
    int not_exported(void);
  `;
  assertEquals(exportedFunctions(header), ["forge_abi_version", "forge_info", "forge_name"]);
});

Deno.test("headerText: relative includes are expanded", () => {
  using tree = new FakeTree();
  tree.write(
    "csrc/whole.h",
    '#include "parts/base.h"\n#include "parts/one.h" /* why */\nint last(void);\n',
  );
  tree.write("csrc/parts/one.h", '#include <stdint.h>\n#include "two.h"\nint one(void);\n');
  tree.write("csrc/parts/two.h", '#include "base.h"\nint two(void);\n');
  tree.write("csrc/parts/base.h", "int base(void);\n");
  assertEquals(
    headerText(join(tree.root, "csrc/whole.h")).split("\n").filter((line) => line !== ""),
    [
      "int base(void);",
      ...["#include <stdint.h>", "int two(void);", "int one(void);", "int last(void);"],
    ],
  );
});

Deno.test("exportList: the formats of both linkers", () => {
  assertEquals(exportList(mac, ["a", "b"]), "_a\n_b\n");
  assertEquals(exportList(linux, ["a"]), "{\n  global:\n    a;\n  local: *;\n};\n");
});

Deno.test("parseDepfile: continued lines, blanks, dollars and a colon in a name", () => {
  const text =
    "build/c:d.o: csrc/a.cpp csrc/with\\ blank.h \\\n csrc/c++$$1.h \\\r\n  csrc/x\\#.h\n";
  assertEquals(parseDepfile(text), [
    "csrc/a.cpp",
    "csrc/with blank.h",
    "csrc/c++$1.h",
    "csrc/x#.h",
  ]);
});
