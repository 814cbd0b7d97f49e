/**
 * Built libraries: those of the fake tree, then the real ones.
 */
import { assert, assertEquals } from "@std/assert";
import { join } from "@std/path";
import { buildLibraries, type BuiltLibrary } from "../../../build.ts";
import { exportedFunctions, headerText } from "../../../ffi/build/exports.ts";
import {
  crossCompilers,
  hostPlatform,
  type Platform,
  platformName,
} from "../../../ffi/build/targets.ts";
import { canCompile, FakeTree, toolAvailable } from "./fake_tree.ts";
import { ROOT } from "../../support/checkout.ts";
import { crossFlags } from "../../support/cross_build.ts";
import { isThorough, testedLibraries } from "../../support/thorough.ts";

const host = hostPlatform();
const isElf = host.os === "linux";
const hasReadelf = isElf && await toolAvailable("readelf");

async function run(program: string, args: readonly string[]): Promise<string> {
  const { success, stdout, stderr } = await new Deno.Command(program, { args: [...args] }).output();
  const decoder = new TextDecoder();
  assert(success, `${program} ${args.join(" ")}: ${decoder.decode(stderr)}`);
  return decoder.decode(stdout);
}

/** Returns the sorted names of the exported symbols of an ELF library. */
async function definedSymbols(path: string): Promise<string[]> {
  const lines = (await run("readelf", ["--wide", "--dyn-syms", path])).split("\n");
  const names: string[] = [];
  for (const line of lines) {
    const [number, , , , binding, , section, name] = line.trim().split(/\s+/);
    if (!/^\d+:$/.test(number ?? "") || binding === "LOCAL" || section === "UND") continue;
    names.push(name?.replace(/@.*/, "") ?? "");
  }
  return names.sort();
}

async function assertExportsHeader(path: string, header: string): Promise<void> {
  const functions = exportedFunctions(headerText(header));
  assert(functions.length > 0);
  assertEquals(await definedSymbols(path), functions.sort());
}

/**
 * Asserts that an ELF library runs with the oldest supported glibc: csrc/common/glibc_floor.cpp.
 */
async function assertOldGlibc(path: string): Promise<void> {
  const versions = (await run("readelf", ["--wide", "--version-info", path]))
    .match(/(?<=Name: GLIBC_2\.)\d+/g) ?? [];
  assert(versions.length > 0, path);
  assert(Math.max(...versions.map(Number)) <= 28, `${path} needs glibc 2.${versions}`);
}

/** Objects of kernel targets above the baseline. */
function* kernelObjects(folder: string): Generator<string> {
  for (const entry of Deno.readDirSync(folder)) {
    const path = join(folder, entry.name);
    if (entry.isDirectory) yield* kernelObjects(path);
    else if (
      /\.(avx2|avx2_vnni|avx512|avx512_bw|avx512_bf16|avx512_amx|neon_dot|neon_i8mm|neon_bf16)\.o$/
        .test(
          entry.name,
        )
    ) yield path;
  }
}

Deno.test({
  name: "libraries: those of the fake tree export exactly the functions of the header",
  ignore: !canCompile || !hasReadelf,
  async fn() {
    using tree = new FakeTree();
    for (const { path } of (await tree.build()).libraries) {
      await assertExportsHeader(path, join(tree.root, "csrc", "forge.h"));
    }
  },
});

Deno.test({
  name: "libraries: a function defined by all kernel targets is taken from the baseline",
  ignore: !canCompile || host.arch !== "x86_64",
  async fn() {
    using tree = new FakeTree();
    const [library] = (await tree.build({ only: ["cpu"] })).libraries;
    const opened = Deno.dlopen(library?.path ?? "", {
      forge_lanes: { parameters: ["i32"], result: "i32" },
    });
    assertEquals(opened.symbols.forge_lanes(0), 4);
    assertEquals(opened.symbols.forge_lanes(1), 4);
    opened.close();
  },
});

Deno.test({
  name: "libraries: those of this tree export their header and contain their C++ library",
  ignore: !canCompile || !hasReadelf,
  async fn(t) {
    const { libraries } = await buildLibraries({ strict: true, only: testedLibraries });
    assert(libraries.length > 0);
    for (const { name, path } of libraries) {
      await t.step(name, async () => {
        const header = name === "flash_attn" ? "flash_attn/flash_attn.h" : "forge.h";
        await assertExportsHeader(path, join(ROOT, "csrc", header));
        const dynamic = await run("readelf", ["--dynamic", path]);
        assert(dynamic.includes("NEEDED") && !dynamic.includes("libstdc++"), dynamic);
        // CUDA's runtime, which flash_attn contains, is the compiler's.
        if (name !== "flash_attn") await assertOldGlibc(path);
      });
    }
  },
});

Deno.test({
  name: "libraries: loading one runs no code of a kernel's instruction set",
  ignore: !canCompile || !hasReadelf,
  async fn() {
    await buildLibraries({ strict: true, only: testedLibraries });
    for (const object of kernelObjects(join(ROOT, "build", "obj", platformName(host)))) {
      const sections = await run("readelf", ["--wide", "--section-headers", object]);
      assert(!sections.includes(".init_array"), `${object} has a static initialiser`);
    }
  },
});

const arm: Platform = { os: "linux", arch: "aarch64" };
// Compiling takes minutes: other runs compile products only (test/ops/emulated_products_test.ts).
const canCross = isThorough && isElf && host.arch !== "aarch64" && hasReadelf &&
  await toolAvailable(crossCompilers.linux.aarch64.command);

/** Builds this tree for aarch64, incrementally. */
async function buildForArm(): Promise<readonly BuiltLibrary[]> {
  const { libraries } = await buildLibraries({
    platform: arm,
    strict: true,
    cxx: "",
    flags: crossFlags,
  });
  assert(libraries.length > 0);
  return libraries;
}

Deno.test({
  name: "libraries: those of this tree compile for aarch64 without a warning",
  ignore: !canCross,
  async fn() {
    for (const { path } of await buildForArm()) {
      assert((await run("readelf", ["--file-header", path])).includes("AArch64"), path);
      await assertExportsHeader(path, join(ROOT, "csrc", "forge.h"));
      await assertOldGlibc(path);
    }
  },
});

Deno.test({
  name: "libraries: those of this tree load on an emulated aarch64",
  ignore: !canCross || !await toolAvailable("qemu-aarch64"),
  async fn() {
    const libraries = await buildForArm();
    const folder = Deno.makeTempDirSync({ prefix: "forge-arm-" });
    try {
      const source = join(folder, "open.cpp");
      const program = join(folder, "open");
      Deno.writeTextFileSync(
        source,
        `#include <dlfcn.h>
        #include <cstdint>
        #include <cstdio>
        int main(int, char **argv) {
          void *library = dlopen(argv[1], RTLD_NOW);
          if (!library) return std::fprintf(stderr, "%s\\n", dlerror()), 1;
          auto version = reinterpret_cast<uint32_t (*)()>(dlsym(library, "forge_abi_version"));
          std::printf("%u\\n", version());
        }`,
      );
      await run(crossCompilers.linux.aarch64.command, [source, "-o", program, "-ldl"]);
      const header = headerText(join(ROOT, "csrc", "forge.h"));
      const version = header.match(/#define FORGE_ABI_VERSION (\d+)/)?.[1];
      for (const { path } of libraries) {
        const prefix = ["-L", "/usr/aarch64-linux-gnu"];
        assertEquals(await run("qemu-aarch64", [...prefix, program, path]), `${version}\n`);
      }
    } finally {
      Deno.removeSync(folder, { recursive: true });
    }
  },
});
