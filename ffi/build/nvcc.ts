/** Finds nvcc, and builds the graph of libraries of CUDA code. */
import { join } from "node:path";
import { type Compiler, runProcess } from "./compiler.ts";
import { exportedFunctions, exportList, headerText } from "./exports.ts";
import {
  type LibraryGraph,
  listSources,
  objectFolder,
  outputFolder,
  type Step,
  type Variant,
} from "./graph.ts";
import type { Library } from "./libraries.ts";
import type { Platform } from "./targets.ts";

/** Options of `findNvcc`. */
interface FindNvccOptions {
  /** Folders of toolkits: the variables CUDA_HOME and CUDA_PATH. */
  readonly toolkits?: readonly (string | undefined)[];
  /** Environment of the compiler. @default that of this process */
  readonly environment?: Readonly<Record<string, string>> | undefined;
}

/** Message for a missing nvcc. */
export const howToInstallNvcc =
  "no nvcc found (CUDA_HOME, CUDA_PATH, PATH); it comes with NVIDIA's CUDA toolkit, 12.0 or newer";

async function versionOf(
  program: string,
  environment: Readonly<Record<string, string>> | undefined,
): Promise<string | undefined> {
  try {
    const { ok, output } = await runProcess([program, "--version"], "/", environment);
    return ok ? output.match(/release [\d.]+, V[\d.]+/)?.[0] : undefined;
  } catch (error) {
    if (error instanceof Deno.errors.NotFound) return undefined;
    throw error;
  }
}

/** Returns the first working nvcc of the toolkits in the environment, and of PATH. */
export async function findNvcc(options: FindNvccOptions = {}): Promise<Compiler | undefined> {
  const toolkits = options.toolkits ?? [Deno.env.get("CUDA_HOME"), Deno.env.get("CUDA_PATH")];
  const programs = toolkits.filter((folder) => folder !== undefined && folder !== "")
    .map((folder) => join(folder ?? "", "bin", "nvcc"));
  for (const program of [...programs, "nvcc"]) {
    const version = await versionOf(program, options.environment);
    if (version !== undefined) return { command: [program], identity: `${program} ${version}` };
  }
  return undefined;
}

/** Target devices of the kernels in a folder. */
interface DeviceCode {
  /** Prefix of source paths below the library's folder. */
  readonly folder: string;
  readonly flags: readonly string[];
}

/**
 * Code for SM90's own instructions ("a"), which later devices lack, is in separate files: nvcc
 * compiles the host side of a kernel from the same source, where an `#if` on the architecture would
 * remove it. All other code is also embedded as PTX, which later devices translate. Decoding is
 * compiled for SM90 itself, where its kernels overlap (csrc/flash_attn/device/threads.cuh).
 */
const deviceCode: readonly DeviceCode[] = [
  { folder: "sm90/", flags: ["-gencode=arch=compute_90a,code=sm_90a"] },
  {
    folder: "decode/",
    flags: [
      "-gencode=arch=compute_80,code=sm_80",
      "-gencode=arch=compute_90,code=[sm_90,compute_90]",
    ],
  },
  { folder: "", flags: ["-gencode=arch=compute_80,code=[sm_80,sm_90,compute_80]"] },
];

const compileFlags = ["-std=c++20", "-O3", "-Xcompiler=-fPIC,-fvisibility=hidden,-Wall,-Wextra"];

/** Prints registers and spills per kernel. */
const reportFlags = ["-Xptxas=-v"];

const linkFlags = [
  "-shared",
  "-cudart=static",
  "-Xcompiler=-static-libstdc++",
  "-Xlinker=-z,defs,-z,now",
];

function compileStep(library: Library, folder: string, source: string, nvcc: Compiler): Step {
  const below = source.slice(library.folder.length + 1);
  const device = deviceCode.find((code) => below.startsWith(code.folder));
  const output = join(folder, `${below}.o`);
  return {
    label: source,
    output,
    record: `${output}.json`,
    report: `${output}.txt`,
    command: [
      ...nvcc.command,
      ...compileFlags,
      ...reportFlags,
      ...(source.endsWith(".cu") ? device?.flags ?? [] : []),
      `-I${library.folder}`,
      "-c",
      source,
    ],
    checks: [],
    compiler: nvcc.identity,
    inputs: [source],
    hasDepfile: true,
    isSlow: false,
  };
}

/** Returns the build graph of a library of CUDA code, linked with CUDA's static runtime. */
export function nvccGraph(
  root: string,
  library: Library,
  platform: Platform,
  variant: Variant,
  nvcc: Compiler,
): LibraryGraph {
  const folder = objectFolder(platform, variant, library.name);
  const compiles = listSources(root, library.folder, library.extensions)
    .map((source) => compileStep(library, folder, source, nvcc));
  const objects = compiles.map((step) => step.output);
  const exports = {
    path: join(folder, "exports.txt"),
    text: exportList(
      platform,
      exportedFunctions(headerText(join(root, library.header))),
    ),
  };
  const fileName = `lib${library.name}.so`;
  const output = join(outputFolder(platform, variant), fileName);
  const link: Step = {
    label: output,
    output,
    record: join(folder, `${fileName}.json`),
    command: [
      ...nvcc.command,
      `-Xlinker=-soname,${fileName},--version-script,${exports.path}`,
      ...objects,
      ...linkFlags,
    ],
    checks: [],
    compiler: nvcc.identity,
    inputs: [...objects, exports.path],
    hasDepfile: false,
    isSlow: false,
  };
  return { library, sources: [], compiles, exports, link };
}
