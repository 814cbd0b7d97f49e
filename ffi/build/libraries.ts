/**
 * The libraries and what each is made of. A new library, or a new flag of one, is a change to this
 * table.
 */
import type { Platform } from "./targets.ts";

/**
 * The libraries the build knows; the file of each is `libforge_<name>`, but that of flash_attn,
 * which is of use without forge, `libflash_attn`.
 */
export type LibraryName = "cpu" | "reference" | "cuda" | "metal" | "flash_attn";

/** How one library is built. */
export interface Library {
  readonly name: LibraryName;
  /** What compiles it. @default the C++ compiler */
  readonly compiler?: "nvcc";
  /** The folder of the library's own sources; where it holds none, the library is not built. */
  readonly folder: string;
  /** Folders of sources shared with other libraries. */
  readonly shared: readonly string[];
  /** The folder, inside `folder`, whose files are compiled once for every kernel target. */
  readonly kernels?: string;
  /** Sources that take longer to compile than most: each by itself, and before the others. */
  readonly slow: readonly string[];
  /** Files that the library carries inside (`embed.ts`), under their bare names. */
  readonly embedded?: { readonly folder: string; readonly extensions: readonly string[] };
  /** The header whose `FORGE_API` (or `FLASH_ATTN_API`) functions the library exports, and nothing else. */
  readonly header: string;
  /** Names of source files end in one of these. */
  readonly extensions: readonly string[];
  /** Systems that can build it. */
  readonly systems: readonly Platform["os"][];
  readonly compileFlags: readonly string[];
  readonly linkFlags: readonly string[];
}

const cpp = {
  shared: ["csrc/common"],
  header: "csrc/forge.h",
  extensions: [".cpp"],
  systems: ["linux", "darwin"],
  slow: [],
  linkFlags: [],
} as const;

const sharedByGpus = [...cpp.shared, "csrc/gpu"];

// Results must not depend on where a compiler chooses to contract a product and a sum.
const noContraction = "-ffp-contract=off";

/** The libraries that a tree can build, the fastest backend of each system among them. */
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
    embedded: { folder: "kernels/cuda", extensions: [".cu", ".cuh"] },
    systems: ["linux"],
    compileFlags: ["-O2"],
    linkFlags: ["-ldl"],
  },
  {
    ...cpp,
    name: "metal",
    folder: "csrc/metal",
    shared: sharedByGpus,
    embedded: { folder: "kernels/metal", extensions: [".metal", ".h"] },
    extensions: [".cpp", ".mm"],
    systems: ["darwin"],
    compileFlags: ["-O2"],
    // A program without windows has no Metal device unless CoreGraphics is there.
    linkFlags: [
      ...["Foundation", "Metal", "CoreGraphics"].flatMap((name) => ["-framework", name]),
      "-lobjc",
    ],
  },
  {
    // Its flags are in nvcc_graph.ts.
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
  // The oldest system that the libraries run on, whatever the one that builds them.
  darwin: ["-mmacosx-version-min=13.0"],
};

/** Flags of every link, by system. */
export const commonLinkFlags: Readonly<Record<Platform["os"], readonly string[]>> = {
  linux: ["-shared", "-pthread", "-Wl,-z,defs", "-Wl,-z,now", "-Wl,--gc-sections"],
  darwin: ["-dynamiclib", "-pthread"],
};

/**
 * Flags that let a library run on a distribution with another C++ library. libgcc stays shared:
 * Deno needs it anyway, and the static one asks for a newer libc. With a sanitizer, whose runtime
 * replaces functions of the C++ library, they are left out.
 */
export const staticRuntimeFlags: Readonly<Record<Platform["os"], readonly string[]>> = {
  linux: ["-static-libstdc++"],
  darwin: [],
};
