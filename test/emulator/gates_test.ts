/**
 * Checks of the kernels by the GPU compiler, without a GPU: they compile for each architecture, use
 * a limited number of registers without spills, and contain the expected instructions.
 */
import { assert, assertEquals } from "@std/assert";
import { type CompiledKernel, KernelCompiler } from "../../bench/gpu_model/compiled_kernels.ts";
import { buildEmulator, emulatorUnavailable } from "./build.ts";
import { listKernels } from "./kernel_program.ts";
import {
  instructionsOf,
  instructionsPerProduct,
  touchedInFlight,
} from "../flash_attn/kernel_code.ts";
import { deviceSources, Nvrtc, targetOf } from "./nvrtc.ts";
import { drawn, isThorough } from "../support/thorough.ts";

const compiler = await Nvrtc.install();
const kernelCompiler = await KernelCompiler.open();
const noCompiler = typeof compiler === "string" || typeof kernelCompiler === "string";
if (typeof kernelCompiler === "string") console.error(`skipping: ${kernelCompiler}`);

/** Compiling all instances would take minutes, so a few represent those that differ in a number. */
function representative(instance: string): boolean {
  if (instance.includes("Blocks<")) return instance.includes("Blocks<13>");
  if (instance.includes("_attention<bf16")) return instance.endsWith(" 128>");
  // Of products by wgmma with quantised weights, the tiles that take the most registers.
  if (
    /quantized_gemm<Format(Q8_0|Q4_0|FP8), f16, 1>|grouped_quantized_gemm<FormatFP8/.test(instance)
  ) {
    return false;
  }
  // Of products with some tokens, those with the fewest and with the most, and all of three types,
  // one of which takes the most registers.
  if (/^(gated_)?decode_gemm<Format(?!BF16|Q[46]_K)\w+, \w+, [14]\b/.test(instance)) return false;
  return !/_attention<\w+, (16|32|96)>/.test(instance);
}

/**
 * Instances that only `deno task thorough` compiles for sm_90: they differ from others in how
 * blocks of weights or of a cache are decoded, or in a number. Those with the most registers stay,
 * and all kernels of which the machine code has to hold certain instructions.
 */
const THOROUGH_ONLY: readonly RegExp[] = [
  /gemm<Format(F16|FP8|Q8_0|Q4_0)/,
  /^gated_decode_gemm<(FormatQ4_K, f16|FormatBF16, bf16, (0|1|1, 0|8))\b/,
  /^(gated_)?grouped_decode_gemm<FormatQ4_K/,
  /^(grouped_)?gemm<FormatQ4_K/,
  /^decode_gemm<FormatQ4_K, f16, [18]>/,
  /^wgmma_(grouped_)?quantized_gemm<FormatQ4_K, f16, 2>/,
  /_attention<(bf16|q4), (?!128, Masked)/,
  /_attention<(f16|q8), (80|288)\b/,
  /^batched_decode_attention<(f16, \d+, Masked|q8, 64, Masked|q8, 256|f16, 256|q8, 64)>/,
  /^rope_decode_attention<(\w+, 64|f16, 256)>/,
  /^naive_attention<(float|q4|\w+>)/,
  /^(embed|dequantize)<Format(?!BF16|Q6_K)/,
  /^(grouped_)?matvec<[24]>/,
  /^gated_delta_rule<(2|8|16)>/,
  /^selective_scan<4>/,
  /^rope_append<(bf16|float|q4)>/,
];

/**
 * Instances that all runs compile for sm_80. It has the same sources but for the wait for the
 * previous kernel, so these are the kernels of which the registers limit the blocks or the loops.
 */
const ON_SM_80: readonly RegExp[] = [
  /^(grouped_)?gemm<(FormatBF16|Blocks)/,
  /^gemm<FormatQ4_K/,
  /^decode_gemm<(FormatBF16, bf16, (0|4)|FormatQ4_K, f16, 4)>/,
  /^(gated_)?grouped_decode_gemm<FormatBF16/,
  /^batched_decode_attention<(f16, 128|q8, 128, Masked|q8, 256)>/,
  /^rope_decode_attention<q8, 128>/,
  /^prefill_attention<(f16, 256|q8, 128)>/,
  /^latent_attention<q8, 576/,
  /^gated_delta_rule<32>/,
  /^selective_scan<8>/,
  /^(grouped_)?matvec<8>/,
];

/** True if an instance is compiled for an architecture in this run. */
function isChecked(instance: string, architecture: string): boolean {
  if (!representative(instance)) return false;
  const matches = (pattern: RegExp) => pattern.test(instance);
  return isThorough ||
    (architecture === "sm_80" ? ON_SM_80.some(matches) : !THOROUGH_ONLY.some(matches));
}

/**
 * Threads per block, and blocks per multiprocessor that the registers must allow, by the first
 * matching pattern. Kernels that read weights for a token or two need two blocks, for loads in
 * flight.
 */
const occupancies: readonly (readonly [RegExp, threads: number, blocks: number])[] = [
  [/^(grouped_)?matvec<[12]>/, 256, 2],
  [/^(grouped_)?matvec</, 256, 1],
  [/^gated_grouped_decode_gemm</, 256, 2],
  [/^(gated_)?decode_gemm<Format\w+, \w+, 0>|^grouped_decode_gemm<Format/, 256, 2],
  [/^(gated_)?decode_gemm<Format\w+, \w+, [14]>/, 512, 1],
  [/^(gated_|grouped_)?decode_gemm</, 256, 1],
  [/^(grouped_)?gemm</, 256, 2],
  [/^(gated_delta_rule|selective_scan)</, 128, 4],
  // Shared memory allows three blocks of decode attention.
  [/^(batched|rope)_decode_attention<\w+, 256\b/, 64, 3],
  [/^(batched|rope)_decode_attention</, 128, 3],
  [/^prefill_attention<\w+, 256>/, 128, 2],
  [/^prefill_attention<\w+, 128>/, 128, 3],
  [/^prefill_attention</, 128, 4],
  [/^latent_attention</, 256, 2],
  [/^dequantize</, 128, 4],
  [/^convert_(rows|pairs|gated_rows)</, 256, 4],
  // At launch; its warpgroups then divide the registers among themselves.
  [/^wgmma_/, 384, 1],
  // All other kernels may be launched with the largest blocks.
  [/./, 1024, 1],
];
/**
 * Registers of a multiprocessor, allocated to threads in units of eight, at most 255 per thread.
 */
const allRegisters = 65536;
function mostRegisters(kernel: string): number {
  const [, threads, blocks] = occupancies.find(([pattern]) => pattern.test(kernel))!;
  return Math.min(255, Math.floor(allRegisters / threads / blocks / 8) * 8);
}
/** Static shared memory available to every block on all GPUs. */
const mostShared = 48 * 1024;

const sources = deviceSources();
/** Kernels of tests: each instruction alone. */
const instructions = deviceSources("test/emulator/kernels/cuda").map((source) => ({
  ...source,
  headers: sources[0]?.headers ?? source.headers,
}));
/** Kernels of each architecture, by file. */
const compiled = new Map<string, Map<string, readonly CompiledKernel[]>>();

/** Compiles the representative instances of every source and keeps the results. */
async function compileAll(architecture: string): Promise<void> {
  if (typeof kernelCompiler === "string") throw new Error(kernelCompiler);
  const chosen = sources.filter(({ name }) => targetOf(name, architecture) !== undefined)
    .flatMap(({ name: file, instances }) => {
      const checked = instances.filter((instance) => isChecked(instance, architecture));
      // Of each file, so that no run leaves out all kernels of a kind.
      const share = architecture === "sm_90" ? 1 / 2 : 1;
      return drawn(`gates of ${file}`, checked, share).map((instance) => ({ file, instance }));
    });
  const kernels = await kernelCompiler.compile(chosen, architecture);
  const byFile = Map.groupBy(chosen, ({ file }) => file);
  compiled.set(
    architecture,
    new Map(Array.from(byFile, ([file, names]) => [
      file,
      names.map(({ instance }) => kernels.get(instance)!),
    ])),
  );
}

/**
 * Products whose 16 warps take all registers of a multiprocessor, or whose threads all that one may
 * have. A few that change once a tile may be spilled, but none in the loop over columns
 * (test/cuda/speed_gates_test.ts).
 */
const FULL_REGISTERS = /^(gated_)?decode_gemm<(Format\w+, \w+, 4|FormatQ6_K, f16, 8)>$/;
const MOST_SPILLED = 40;

/** Returns the kernels compiled for an architecture. */
function kernelsOf(architecture: string): CompiledKernel[] {
  return [...compiled.get(architecture)?.values() ?? []].flat();
}

function checkReports(architecture: string) {
  const problems: string[] = [];
  const kernels = kernelsOf(architecture);
  for (const { instance, registers, spillBytes, sharedBytes } of kernels) {
    const most = mostRegisters(instance);
    if (registers < 8 || registers > most) problems.push(`${instance}: ${registers} registers`);
    const spilled = FULL_REGISTERS.test(instance) ? MOST_SPILLED : 0;
    if (spillBytes > spilled) problems.push(`${instance}: ${spillBytes} bytes spilled`);
    if (sharedBytes > mostShared) problems.push(`${instance}: ${sharedBytes} bytes shared`);
  }
  const least = isThorough ? 100 : architecture === "sm_90" ? 60 : 20;
  assert(kernels.length > least, `only ${kernels.length} kernels were reported on`);
  assertEquals(problems, []);
}

Deno.test({
  name: "kernels compile for sm_80 and sm_90 with the registers that they have",
  ignore: noCompiler,
  fn: async (t) => {
    for (const architecture of ["sm_80", "sm_90"]) {
      await t.step(architecture, async () => {
        await compileAll(architecture);
        checkReports(architecture);
      });
    }
  },
});

Deno.test({
  name: "one kernel of each file compiles for the architectures between and after those",
  ignore: !isThorough || noCompiler,
  fn: async () => {
    if (typeof compiler === "string") return;
    const known = compiler.architectures();
    for (const architecture of ["sm_89", "sm_100"].filter((name) => known.includes(name))) {
      const all = [...sources, ...instructions];
      const compilable = all.filter(({ name }) => targetOf(name, architecture) !== undefined);
      await Promise.all(compilable.map(async (source) => {
        const { reports } = await compiler.compile(source, architecture, [
          source.instances[0] ?? "",
        ]);
        assert(reports.length >= 1, source.name);
      }));
    }
  },
});

Deno.test({
  name: "the emulator knows kernels by the symbols that NVRTC gives them",
  ignore: noCompiler || emulatorUnavailable() !== undefined,
  fn: async () => {
    const emulated = await listKernels((await buildEmulator()).tests);
    let compared = 0;
    for (const { instance, symbol } of [...compiled.keys()].flatMap(kernelsOf)) {
      assertEquals(emulated.get(instance), symbol);
      compared++;
    }
    assert(compared > (isThorough ? 100 : 80));
    const listed = [...sources, ...instructions].flatMap((source) => source.instances);
    // The library writes its source (csrc/cuda/step_kernel.cpp).
    listed.push("step_kernel");
    assertEquals([...emulated.keys()].sort(), listed.sort());
  },
});

/**
 * Instructions that must occur in the machine code of kernels, and local memory, which must not.
 */
interface Expectation {
  readonly file: string;
  readonly instance: RegExp;
  readonly has: readonly RegExp[];
}

const loads128 = /\bLDG\.E\.(NA\.)?128/;
const tensorCores = /\bHMMA\.16816\.F32/;
const fromShared = /\bLDSM\.16\.M(T)?88\.4/;
const asynchronous = /\bLDGSTS\.E\.BYPASS\.128/;
/** The parts of a merge: eight loads without a branch between them, which would wait for each. */
const mergedLoads = /(\bLDG\.E\.128(?:(?!\bBRA\b)[^])*?){8}/;

const expectations: readonly Expectation[] = [
  ...["wgmma_gemm.cu", "wgmma_grouped_gemm.cu"].map((file) => ({
    file,
    instance: /./,
    has: [/\bHGMMA\.64x128x16\.F32/, /\bUTMALDG\.4D\b/, /\bUSETMAXREG\b/],
  })),
  ...["wgmma_quantized_gemm.cu", "wgmma_grouped_quantized_gemm.cu"].map((file) => ({
    file,
    instance: /./,
    has: [/\bHGMMA\.64x64x16\.F32/, /\bUTMALDG\.4D\b/, /\bUSETMAXREG\b/, loads128],
  })),
  ...["matvec.cu", "grouped_matvec.cu"].map((file) => ({ file, instance: /./, has: [loads128] })),
  ...["decode_gemm.cu", "gated_decode_gemm.cu", "grouped_decode_gemm.cu"].flatMap((file) => [
    { file, instance: /Format/, has: [tensorCores, asynchronous] },
    { file, instance: /^grouped_decode_gemm<Format\w+, \w+, 1>/, has: [loads128] },
    // Weights pass through shared memory.
    {
      file,
      instance: /^(gated_)?decode_gemm<Format|Format\w+, \w+(, 0)?>/,
      has: [/\bLDS\.128/],
    },
  ]),
  ...["gemm.cu", "grouped_gemm.cu"].map((file) => ({
    file,
    instance: /Format/,
    has: [loads128, tensorCores, fromShared, asynchronous],
  })),
  {
    file: "prefill_attention.cu",
    instance: /f16/,
    has: [tensorCores, fromShared, asynchronous],
  },
  { file: "prefill_attention.cu", instance: /q[84]/, has: [tensorCores, fromShared] },
  {
    file: "latent_attention.cu",
    instance: /f16/,
    has: [tensorCores, fromShared, asynchronous],
  },
  { file: "latent_attention.cu", instance: /q[84]/, has: [tensorCores, fromShared] },
  { file: "selective_scan.cu", instance: /./, has: [/\bLDS\.128/, loads128, /\bSTG\.E\.128/] },
  {
    file: "batched_decode_attention.cu",
    instance: /decode_attention</,
    has: [tensorCores, fromShared, asynchronous, mergedLoads],
  },
];

function missing(code: string, name: string, { has }: Expectation): string[] {
  const problems = has.filter((pattern) => !pattern.test(code)).map((p) => `${name} lacks ${p}`);
  // Arrays with an index unknown to the compiler are placed in local memory.
  const mayUse = FULL_REGISTERS.test(name.slice(name.indexOf(" ") + 1));
  if (!mayUse && /\b(STL|LDL)\b/.test(code)) problems.push(`${name} uses local memory`);
  return problems;
}

Deno.test({
  name: "tensor cores, 128-bit loads and asynchronous copies are in the machine code",
  ignore: noCompiler,
  fn: () => {
    const problems: string[] = [];
    let checked = 0;
    for (const [architecture, kernels] of compiled) {
      for (const expectation of expectations) {
        for (const { instance, code } of kernels.get(expectation.file) ?? []) {
          if (!expectation.instance.test(instance)) continue;
          problems.push(...missing(code, `${architecture} ${instance}`, expectation));
          checked++;
        }
      }
    }
    assert(checked >= (isThorough ? 100 : 40), `only ${checked} kernels were looked at`);
    assertEquals(problems, []);
  },
});

/**
 * Kernels that copy weights, which no kernel writes, to shared memory before they wait for the
 * previous kernel: by a loop over the stages of a ring.
 */
const fillsRing = /^(gated_)?decode_gemm<Format/;

/**
 * Returns the first instruction that accesses global memory before the wait for the previous
 * kernel. From sm_90 on, kernels start while the previous one may still be running. Copies to a
 * ring do not count in kernels that have one, and must be there.
 */
function earlyAccess(name: string, code: string): string | undefined {
  const wait = code.search(/\bACQBULK\b/);
  if (wait < 0) return "no ACQBULK at all";
  const before = code.slice(0, wait);
  const accesses = before.match(/\b(LDG|STG|LDGSTS|ATOMG|RED|LD|ST)\b[^;]*/g) ?? [];
  if (!fillsRing.test(name)) return accesses[0];
  if (!accesses.some((access) => asynchronous.test(access))) return "no copy before the wait";
  return accesses.find((access) => !access.startsWith("LDGSTS"));
}

/** An atomic operation emulated by a compare-and-swap loop, in which conflicting threads retry. */
const atomicLoop = /\bATOMS\.CAS[^;]*/;

Deno.test({
  name: "every kernel of sm_90 waits for the one before it, and none for turns in shared memory",
  ignore: noCompiler,
  fn: () => {
    const problems: string[] = [];
    const kernels = kernelsOf("sm_90");
    for (const { instance, code } of kernels) {
      const early = earlyAccess(instance, code);
      if (early !== undefined) problems.push(`${instance}: ${early}`);
      const spin = atomicLoop.exec(code)?.[0];
      if (spin !== undefined) problems.push(`${instance}: ${spin}`);
    }
    assert(
      kernels.length >= (isThorough ? 100 : 60),
      `only ${kernels.length} kernels were looked at`,
    );
    assertEquals(problems, []);
  },
});

Deno.test({
  name: "products of wgmma follow each other, and nothing touches their sums meanwhile",
  ignore: noCompiler,
  fn: () => {
    let checked = 0;
    for (const [file, kernels] of compiled.get("sm_90") ?? []) {
      if (!file.startsWith("wgmma_")) continue;
      for (const { instance: name, code, remarks } of kernels) {
        // On products that wait for each other, and on an ignored setmaxnreg.
        assertEquals(remarks, "");
        const kernel = instructionsOf(code);
        assertEquals(touchedInFlight(kernel).map(({ operands }) => operands), [], name);
        const others = instructionsPerProduct(kernel);
        const isQuantized = name.includes("quantized");
        // One loop over columns, or one each for up to 64 tokens and for more, of four groups. The
        // tensor cores take 64 or 32 clocks for a product of a warpgroup, in which each of its
        // warps could issue as many instructions.
        assertEquals(others.length, isQuantized ? 8 : 1, name);
        const most = isQuantized ? 32 : 8;
        assert(
          others.every((count) => count <= most),
          `${name}: ${others} instructions a product`,
        );
        checked++;
      }
    }
    assert(checked >= (isThorough ? 16 : 5), `only ${checked} kernels were looked at`);
  },
});
