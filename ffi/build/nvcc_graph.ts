/**
 * The steps that build a library of CUDA code with nvcc: a compilation for every source file, for
 * the architectures of its folder, and a link with CUDA's runtime inside.
 */
import { join } from "@std/path";
import type { Compiler } from "./compiler.ts";
import { exportedFunctions, exportList, headerText } from "./exports.ts";
import { type LibraryGraph, listSources, objectFolder, outputFolder, type Step } from "./graph.ts";
import type { Variant } from "./graph.ts";
import type { Library } from "./libraries.ts";
import type { Platform } from "./targets.ts";

/** Code for which devices a folder's kernels are compiled to. */
interface DeviceCode {
  /** Files whose path below the library's folder starts so. */
  readonly folder: string;
  readonly flags: readonly string[];
}

/**
 * Instructions of SM90 that later devices do not have ("a") keep to files of their own: nvcc makes
 * the host's part of a kernel from the same source, where an `#if` on the architecture would leave
 * none. Everything else is also there as PTX, which later devices translate.
 */
const deviceCode: readonly DeviceCode[] = [
  { folder: "sm90/", flags: ["-gencode=arch=compute_90a,code=sm_90a"] },
  { folder: "", flags: ["-gencode=arch=compute_80,code=[sm_80,sm_90,compute_80]"] },
];

const compileFlags = ["-std=c++20", "-O3", "-Xcompiler=-fPIC,-fvisibility=hidden,-Wall,-Wextra"];

/** A report of registers and spills per kernel goes to the compiler's output. */
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

/** The graph of a library that nvcc builds. */
export function nvccGraph(
  root: string,
  library: Library,
  platform: Platform,
  variant: Variant,
  nvcc: Compiler,
): LibraryGraph {
  const folder = objectFolder(platform, variant, library);
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
