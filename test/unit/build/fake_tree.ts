/**
 * A minimal source tree with every feature of the build: shared sources, a library with kernels,
 * one without.
 */
import { dirname, join } from "@std/path";
import { buildLibraries, type BuildOptions, type BuildReport } from "../../../build.ts";
import { findCompiler } from "../../../ffi/build/compiler.ts";
import { hostPlatform } from "../../../ffi/build/targets.ts";

const files: Readonly<Record<string, string>> = {
  "csrc/forge.h": `
    #ifndef FORGE_H
    #define FORGE_H
    #define FORGE_API __attribute__((visibility("default")))
    extern "C" {
    /* FORGE_API int in_a_comment(void); */
    FORGE_API int forge_sum(int a, int b);
    FORGE_API int forge_lanes(int target);
    }
    #endif
  `,
  "csrc/common/numbers.h": `
    #pragma once
    namespace forge {
    int one();
    }
  `,
  "csrc/common/one.cpp": `
    #include "numbers.h"
    int forge::one() { return 1; }
  `,
  "csrc/reference/sum.cpp": `
    #include "../forge.h"
    #include "../common/numbers.h"
    int forge_sum(int a, int b) { return a * forge::one() + b; }
    int forge_lanes(int) { return 1; }
  `,
  "csrc/cpu/sum.cpp": `
    #include <string>
    #include "../forge.h"
    #include "../common/numbers.h"
    #include "lanes.h"
    int forge_sum(int a, int b) {
      return a * forge::one() + std::stoi(std::to_string(b));
    }
    namespace portable { int lanes(); }
    namespace avx512 { int lanes(); }
    int forge_lanes(int target) {
      if (target == 0) return portable::lanes();
    #if defined(__x86_64__)
      return avx512::lanes();
    #else
      return 0;
    #endif
    }
  `,
  // Every kernel target makes its own copy of this function, and the linker keeps one.
  "csrc/cpu/lanes.h": `
    #pragma once
    __attribute__((noinline)) inline int shared_lanes() {
    #if defined(__AVX512F__)
      return 16;
    #else
      return 4;
    #endif
    }
  `,
  "csrc/cpu/kernels/lanes.cpp": `
    #include "../lanes.h"
    namespace FORGE_TARGET { int lanes() { return shared_lanes(); } }
  `,
  "csrc/cpu/kernels/avx512_bf16/pairs.cpp": `
    namespace FORGE_TARGET { int pairs() { return 32; } }
  `,
};

/** A source tree in a temporary folder, removed on disposal. */
export class FakeTree {
  readonly root = Deno.makeTempDirSync({ prefix: "forge build " });

  constructor() {
    for (const [path, text] of Object.entries(files)) this.write(path, text);
  }

  write(path: string, text: string): void {
    Deno.mkdirSync(dirname(join(this.root, path)), { recursive: true });
    Deno.writeTextFileSync(join(this.root, path), text);
  }

  read(path: string): string {
    return Deno.readTextFileSync(join(this.root, path));
  }

  /** Gives a file a modification time after the last build. */
  touch(path: string): void {
    const later = new Date(Date.now() - 1000);
    Deno.utimeSync(join(this.root, path), later, later);
  }

  /** Builds, and returns the report with the sorted labels of the compiled files. */
  async build(options: BuildOptions = {}): Promise<BuildReport & { readonly labels: string[] }> {
    const labels: string[] = [];
    const log = (line: string) => {
      const label = line.match(/^\[\d+\/\d+\] (.*)$/)?.[1];
      if (label !== undefined) labels.push(label);
      options.log?.(line);
    };
    const report = await buildLibraries({ root: this.root, jobs: 2, ...options, log });
    return { ...report, labels: labels.sort() };
  }

  [Symbol.dispose](): void {
    Deno.removeSync(this.root, { recursive: true });
  }
}

async function isAvailable(probe: () => Promise<unknown>): Promise<boolean> {
  try {
    await probe();
    return true;
  } catch {
    return false;
  }
}

/** True if this machine can compile C++; otherwise prints the reason for skipping tests. */
export const canCompile = await isAvailable(() =>
  findCompiler(hostPlatform(), { cxx: Deno.env.get("CXX") })
);
if (!canCompile) console.error("skipping tests of the build: no C++ compiler");

/** True if a program can be run; otherwise prints the reason for skipping a test. */
export async function toolAvailable(name: string): Promise<boolean> {
  const available = await isAvailable(() =>
    new Deno.Command(name, { args: ["--version"], stdout: "null", stderr: "null" }).output()
  );
  if (!available) console.error(`skipping: no ${name}`);
  return available;
}

/** Returns the path of a program on PATH; throws if it is missing. */
export function programPath(name: string): string {
  const folders = (Deno.env.get("PATH") ?? "").split(":");
  const found = folders.map((folder) => join(folder, name)).find((path) => {
    try {
      return Deno.statSync(path).isFile;
    } catch (error) {
      if (error instanceof Deno.errors.NotFound) return false;
      throw error;
    }
  });
  if (found === undefined) throw new Error(`no ${name} on PATH`);
  return found;
}
