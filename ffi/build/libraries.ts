/** The table of libraries, their sources and their flags. */
import type { Platform } from "./targets.ts";

/**
 * Names of the libraries. File names are `libforge_<name>`, or `libflash_attn` for flash_attn,
 * which is usable without forge.
 */
export type LibraryName = "cpu" | "reference" | "cuda" | "metal" | "flash_attn";

/** Sources and flags of one library. */
export interface Library {
  readonly name: LibraryName;
  /** Compiler. @default the C++ compiler */
  readonly compiler?: "nvcc";
  /** Folder of the library's own sources; without sources the library is not built. */
  readonly folder: string;
  /** Folders of sources shared with other libraries, compiled once with {@linkcode sharedFlags}. */
  readonly shared: readonly string[];
  /** Folder inside `folder` whose files are compiled once per kernel target. */
  readonly kernels?: string;
  /** Sources that take long to compile; each is compiled alone and early. */
  readonly slow: readonly string[];
  /** Files embedded into the library, under their base names. */
  readonly embedded?: {
    readonly folders: readonly string[];
    readonly extensions: readonly string[];
  };
  /** Header whose `FORGE_API` (or `FLASH_ATTN_API`) functions are the only exports. */
  readonly header: string;
  /** File extensions of sources. */
  readonly extensions: readonly string[];
  /** Systems that can build it. */
  readonly systems: readonly Platform["os"][];
  /** Flags of the library's own sources. */
  readonly compileFlags: readonly string[];
  readonly linkFlags: readonly string[];
}

const cpp = {
  shared: ["csrc/common"],
  header: "csrc/forge.h",
  extensions: [".cpp"],
  systems: ["linux", "darwin", "windows"],
  slow: [],
  linkFlags: [],
} as const;

const sharedByGpus = [...cpp.shared, "csrc/gpu"];

// Results, such as those of --quantize, must not depend on which products and sums a compiler
// contracts. Clang contracts for arm64, GCC for every processor with fused multiply-add.
const noContraction = "-ffp-contract=off";

/** Flags of the folders that libraries share. */
export const sharedFlags: readonly string[] = ["-O3", noContraction];

/** All libraries. */
export const libraries: readonly Library[] = [
  {
    ...cpp,
    name: "cpu",
    folder: "csrc/cpu",
    kernels: "csrc/cpu/kernels",
    slow: ["int8_super_products", "int8_products", "attention", "float_products"]
      .map((name) => `csrc/cpu/kernels/${name}.cpp`),
    compileFlags: ["-O3", noContraction],
  },
  {
    ...cpp,
    name: "reference",
    folder: "csrc/reference",
    compileFlags: ["-O2", noContraction],
  },
  {
    ...cpp,
    name: "cuda",
    folder: "csrc/cuda",
    shared: sharedByGpus,
    embedded: {
      folders: ["kernels/arguments", "kernels/cuda", "csrc/flash_attn/device"],
      extensions: [".h", ".cu", ".cuh"],
    },
    systems: ["linux", "windows"],
    compileFlags: ["-O2", noContraction],
  },
  {
    ...cpp,
    name: "metal",
    folder: "csrc/metal",
    shared: sharedByGpus,
    embedded: { folders: ["kernels/arguments", "kernels/metal"], extensions: [".h", ".metal"] },
    extensions: [".cpp", ".mm"],
    systems: ["darwin"],
    compileFlags: ["-O2", noContraction, "-Ikernels/arguments"],
    // A program without windows has no Metal device unless CoreGraphics is linked.
    linkFlags: [
      ...["Foundation", "Metal", "CoreGraphics"].flatMap((name) => ["-framework", name]),
      "-lobjc",
    ],
  },
  {
    // Its flags are in nvcc.ts.
    name: "flash_attn",
    compiler: "nvcc",
    folder: "csrc/flash_attn",
    shared: [],
    slow: [],
    header: "csrc/flash_attn/flash_attn.h",
    extensions: [".cu", ".cpp"],
    systems: ["linux"],
    compileFlags: [],
    linkFlags: [],
  },
];

/** Flags of every compilation. */
export const commonCompileFlags: readonly string[] = [
  "-std=c++20",
  "-fPIC",
  "-fvisibility=hidden",
  "-fvisibility-inlines-hidden",
  "-pthread",
  "-Wall",
  "-Wextra",
];

/** Flags of every compilation and every link, by system. */
export const systemFlags: Readonly<Record<Platform["os"], readonly string[]>> = {
  linux: [],
  // The oldest supported system, independent of the build machine.
  darwin: ["-mmacosx-version-min=13.0"],
  // GCC assumes that the stack is aligned for wide vectors, which Windows does not promise (GCC bug
  // 54412): the assembler replaces aligned moves.
  windows: ["-Wa,-muse-unaligned-vector-move"],
};

/** Flags of every link, by system. */
export const commonLinkFlags: Readonly<Record<Platform["os"], readonly string[]>> = {
  linux: ["-shared", "-pthread", "-ldl", "-Wl,-z,defs", "-Wl,-z,now", "-Wl,--gc-sections"],
  darwin: ["-dynamiclib", "-pthread"],
  // Static: the libraries of MinGW are not part of Windows.
  windows: ["-shared", "-static", "-s", "-pthread", "-Wl,--gc-sections", "-lsynchronization"],
};

/**
 * Flags that let a library run on distributions with another C++ library. libgcc stays shared,
 * because Deno needs it anyway and the static one requires a newer libc. Sanitizer builds omit
 * these flags, because the sanitizer's runtime replaces functions of the C++ library.
 */
export const staticRuntimeFlags: Readonly<Record<Platform["os"], readonly string[]>> = {
  linux: ["-static-libstdc++"],
  darwin: [],
  windows: [],
};
