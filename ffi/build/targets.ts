/** Target platforms of the build, and the instruction sets of kernels. */
import { ForgeError } from "../../src/errors.ts";

/** Operating system and processor of a library. */
export interface Platform {
  readonly os: "linux" | "darwin" | "windows";
  readonly arch: "x86_64" | "aarch64";
}

/** One compilation of every kernel file, as `-DFORGE_TARGET=<name>`. */
export interface KernelTarget {
  readonly name: string;
  readonly arch: Platform["arch"];
  readonly flags: readonly string[];
  /** Target with the kernels that the folder named as this target lacks. @default none */
  readonly base?: string;
}

const avx2 = ["-mavx2", "-mfma", "-mf16c", "-mbmi2"];
const avx512bw = [...avx2, "-mavx512f", "-mavx512bw", "-mavx512dq", "-mavx512vl"];
const avx512 = [...avx512bw, "-mavx512vnni"];

/**
 * Instruction sets of each processor, from the least to the most capable; objects are linked in
 * this order (see `libraryGraph`).
 */
export const kernelTargets: readonly KernelTarget[] = [
  { name: "portable", arch: "x86_64", flags: [] },
  { name: "avx2", arch: "x86_64", flags: avx2 },
  { name: "avx2_vnni", arch: "x86_64", flags: [...avx2, "-mavxvnni"] },
  { name: "avx512_bw", arch: "x86_64", flags: avx512bw },
  { name: "avx512", arch: "x86_64", flags: avx512 },
  { name: "avx512_bf16", arch: "x86_64", flags: [...avx512, "-mavx512bf16"], base: "avx512" },
  {
    name: "avx512_amx",
    arch: "x86_64",
    flags: [...avx512, "-mavx512bf16", "-mamx-tile", "-mamx-int8", "-mamx-bf16"],
    base: "avx512",
  },
  { name: "portable", arch: "aarch64", flags: [] },
  { name: "neon_dot", arch: "aarch64", flags: ["-march=armv8.2-a+dotprod+fp16"] },
  { name: "neon_i8mm", arch: "aarch64", flags: ["-march=armv8.2-a+dotprod+fp16+i8mm"] },
  {
    name: "neon_bf16",
    arch: "aarch64",
    flags: ["-march=armv8.2-a+dotprod+fp16+i8mm+bf16"],
    base: "neon_i8mm",
  },
];

/** A compiler for another processor. */
interface CrossCompiler {
  readonly command: string;
  readonly howToInstall: string;
}

/** Cross compilers by platform. */
export const crossCompilers: Readonly<
  Record<Platform["os"], Readonly<Record<Platform["arch"], CrossCompiler>>>
> = {
  linux: {
    x86_64: {
      command: "x86_64-linux-gnu-g++",
      howToInstall: "on Debian and Ubuntu: sudo apt-get install g++-x86-64-linux-gnu",
    },
    aarch64: {
      command: "aarch64-linux-gnu-g++",
      howToInstall: "on Debian and Ubuntu: sudo apt-get install g++-aarch64-linux-gnu",
    },
  },
  darwin: {
    x86_64: { command: "clang++ -arch x86_64", howToInstall: "xcode-select --install" },
    aarch64: { command: "clang++ -arch arm64", howToInstall: "xcode-select --install" },
  },
  windows: {
    x86_64: {
      command: "x86_64-w64-mingw32-g++-posix",
      howToInstall: "on Debian and Ubuntu: sudo apt-get install g++-mingw-w64-x86-64-posix",
    },
    aarch64: { command: "aarch64-w64-mingw32-g++", howToInstall: "GCC for Windows on arm64" },
  },
};

/** Returns the folder name of a platform, such as `linux-x86_64`. */
export function platformName(platform: Platform): string {
  return `${platform.os}-${platform.arch}`;
}

/** Returns the file name of a shared library, such as `libforge_cpu.so`. */
export function libraryFileName(platform: Platform, name: string): string {
  const extension = { linux: "so", darwin: "dylib", windows: "dll" }[platform.os];
  return `libforge_${name}.${extension}`;
}

/**
 * Returns the platform of this process.
 *
 * @throws {ForgeError} `unsupported` if no library can be built, for example on Windows
 */
export function hostPlatform(): Platform {
  const { os, arch } = Deno.build;
  if (os !== "linux" && os !== "darwin" && os !== "windows") {
    throw new ForgeError(
      "unsupported",
      `forge cannot build its libraries on ${os}; Linux, macOS and Windows are supported`,
    );
  }
  return { os, arch };
}

/**
 * Returns the platform of `--target`: this machine's system on a processor, or Windows.
 *
 * @throws {ForgeError} `usage` for an unknown target
 */
export function targetPlatform(arch: string): Platform {
  if (arch === "windows") return { os: "windows", arch: "x86_64" };
  if (arch !== "x86_64" && arch !== "aarch64") {
    throw new ForgeError(
      "usage",
      `unknown target "${arch}"; valid are x86_64, aarch64 and windows`,
    );
  }
  return { os: hostPlatform().os, arch };
}
