/** Constants of NVIDIA GPUs, each with its source. All times of the model follow from them. */

/** Execution pipes of a multiprocessor, and the slots in which its schedulers issue. */
export const PIPES = ["issue", "fma", "alu", "xu", "lsu", "tensor"] as const;
export type Pipe = typeof PIPES[number];

/** The rates and limits of a compute capability. */
export interface Architecture {
  /** As NVRTC names it. */
  readonly name: "sm_80" | "sm_90";
  /** Results per clock and multiprocessor. */
  readonly rates: {
    /** 32-bit floating-point and packed 16-bit multiply-add instructions. */
    readonly fma: number;
    /** 32-bit integer multiply-add. */
    readonly imad: number;
    /** Integer addition, logic, shifts, comparison, selection, permutation, packing conversions. */
    readonly alu: number;
    /** Special functions, counts of bits, and conversions that are not packing. */
    readonly xu: number;
    /** Lanes of a memory instruction or shuffle. */
    readonly lsu: number;
    /** Bytes of a shared-memory or L1 access. */
    readonly l1Bytes: number;
    /** 16-bit multiply-adds of mma.sync; twice as many for 8-bit integers. */
    readonly mma: number;
    /** 16-bit multiply-adds of wgmma. */
    readonly wgmma: number;
  };
  readonly registers: number;
  /** Shared memory for all blocks; each block takes 1 KB more than it asks for. */
  readonly sharedBytes: number;
  readonly warps: number;
  readonly blocks: number;
}

/*
 * Rates: CUDA C++ Programming Guide 12.x, "Throughput of Native Arithmetic Instructions", columns
 * 8.0 and 9.0; limits: its table "Technical Specifications per Compute Capability". mma.sync on
 * SM90 reaches about 62% of wgmma (Luo et al., "Benchmarking and Dissecting the Nvidia Hopper GPU
 * Architecture via Microbenchmarking", 2024).
 */
export const SM80: Architecture = {
  name: "sm_80",
  rates: { fma: 64, imad: 64, alu: 64, xu: 16, lsu: 32, l1Bytes: 128, mma: 1024, wgmma: 0 },
  registers: 65536,
  sharedBytes: 164 * 1024,
  warps: 64,
  blocks: 32,
};
export const SM90: Architecture = {
  name: "sm_90",
  rates: { fma: 128, imad: 64, alu: 64, xu: 16, lsu: 32, l1Bytes: 128, mma: 1270, wgmma: 2048 },
  registers: 65536,
  sharedBytes: 228 * 1024,
  warps: 64,
  blocks: 32,
};

/** Warp instructions that a multiprocessor issues per clock: one per scheduler. */
export const ISSUE_PER_CLOCK = 4;

/**
 * Clocks of an instruction of a warp. Dependent arithmetic takes 4 (Luo et al. 2024), and products
 * of 1 to 16 tokens take 4.0 on an H200, with 8 and with 16 warps a multiprocessor
 * (bench/results/2026-11-28-nvidia-h200.md).
 */
export const CLOCKS_PER_INSTRUCTION = 4;

/** Clocks from a load to its use. */
export interface Latencies {
  readonly shared: number;
  readonly l1: number;
  readonly l2: number;
  /** Of memory under load. */
  readonly memory: number;
}

/** A GPU. */
export interface NvidiaGpu {
  readonly name: string;
  readonly architecture: Architecture;
  readonly multiprocessors: number;
  /** Under load, in 10^9 per second. */
  readonly clock: number;
  /** Nominal bandwidth, in 10^9 bytes per second. */
  readonly bandwidth: number;
  /** Share of the nominal bandwidth that a read-only kernel reaches. */
  readonly readable: number;
  /** Dense 16-bit tensor-core throughput that power allows under load, in 10^12 per second. */
  readonly teraflops: number;
  /** Bytes per clock from L2 to all multiprocessors, by loads and by copies of TMA. */
  readonly l2BytesPerClock: number;
  readonly bulkBytesPerClock: number;
  readonly l2Bytes: number;
  readonly latencies: Latencies;
}

/*
 * Multiprocessors, bandwidth and A100's clock: NVIDIA's data sheets and architecture white papers.
 * An H200 ran at 1,980 MHz while it read memory, at 120 to 550 W, and read 4,476 GB/s, 93.2%
 * (bench/results/2026-11-28-nvidia-h200.md). H100 has the same chip and the same highest clock.
 * 93% readable: published read benchmarks of HBM2e and HBM3 (babelstream's dot reaches 92 to 94%).
 * Latencies under light load: Luo et al. 2024 for H100 (L1 33 to 41, shared 29 to 33, L2 about 260
 * to 280 clocks), Sun et al. 2022 for A100. Memory under load: about 560 ns (FlashInfer's and
 * NVIDIA's tuning guides ask for 32 KB in flight per multiprocessor at 3.35 TB/s).
 * L2: 64 bytes per clock and multiprocessor can be requested; all together about 5.5 TB/s on H100.
 * Copies of TMA are whole lines in long rows, to all slices at once: they are taken to reach 85% of
 * the 5,120 bytes that NVIDIA's white paper gives for a clock of the L2 of A100, which H100's, at
 * 1.755 GHz, is assumed not to fall short of.
 * Tensor cores: 312 and 989 TFLOP/s nominal; long products of random numbers run at lower clocks
 * and reach about 290 and 800 (published cuBLAS results).
 */
const LATENCIES_80: Latencies = { shared: 29, l1: 38, l2: 260, memory: 790 };
const LATENCIES_90: Latencies = { shared: 31, l1: 40, l2: 280, memory: 1110 };

export const A100: NvidiaGpu = {
  name: "A100",
  architecture: SM80,
  multiprocessors: 108,
  clock: 1.41,
  bandwidth: 2039,
  readable: 0.92,
  teraflops: 290,
  l2BytesPerClock: 3400,
  bulkBytesPerClock: 0,
  l2Bytes: 40 * 2 ** 20,
  latencies: LATENCIES_80,
};
export const H100: NvidiaGpu = {
  name: "H100",
  architecture: SM90,
  multiprocessors: 132,
  clock: 1.98,
  bandwidth: 3350,
  readable: 0.93,
  teraflops: 800,
  l2BytesPerClock: 2830,
  bulkBytesPerClock: 3860,
  l2Bytes: 50 * 2 ** 20,
  latencies: LATENCIES_90,
};
export const H200: NvidiaGpu = {
  ...H100,
  name: "H200",
  bandwidth: 4800,
  readable: 0.932,
  l2Bytes: 60 * 2 ** 20,
};

export const NVIDIA_GPUS: readonly NvidiaGpu[] = [A100, H100, H200];

/** Costs that do not depend on a kernel's machine code. */
export const COSTS = {
  /**
   * Microseconds from the end of a kernel to the first instruction of the next in a graph without
   * programmatic dependent launch (published measurements: 1.3 to 1.6), and with it to the end of
   * the wait for the kernel before. Published are 0.7 to 0.9; on an H200 a chain of products took
   * what 1.3 explains, and no longer without dependent launch
   * (bench/results/2026-11-28-nvidia-h200.md).
   */
  serialLaunch: 1.4,
  dependentLaunch: 1.3,
  /**
   * Microseconds in which a multiprocessor reads nothing when blocks of products end and others
   * take their places: the last products, sums, the launch of a block, its first requests and their
   * latency. 1.9 a wave in products of 1 to 16 tokens on an H200, and 1.9 to 2.2 a kernel in chains
   * of products with rings (the same results).
   */
  turn: 1.9,
  /**
   * Microseconds from the end of a kernel until blocks of the second kernel after it request
   * weights, if the kernel between leaves room for them: in chains of products with rings, a kernel
   * of 3 us between two of them took 3.0 us (the same results).
   */
  launchAhead: 3,
  /**
   * Microseconds for each load of a sum's parts by a thread, of those that blocks add up last (the
   * same results).
   */
  mergedSum: 0.32,
  /** Microseconds in which a block rounds 2,048 columns of a row of x (the same results). */
  roundedColumns: 0.8,
  /**
   * Microseconds in which a block converts the first of these columns: what the model expects of
   * convert_rows after its gap, 334 instructions and five loads from L2 in turn.
   */
  convertedRow: 1.4,
  /**
   * Microseconds on an H100 from a release to a counter until blocks that wait for it go on, and of
   * a barrier of cooperative groups with one block a multiprocessor, all of which come at once and
   * have stored nothing (github.com/revollllt/flash-vla, hardware-unit-test: 651 and 1,089 ns; a
   * launch in a graph takes 1.29 times as long as that barrier). Hazy Research's persistent kernel
   * ("Look Ma, No Bubbles!", 2025) reads an H100 at 78% of its bandwidth for 1B in BF16.
   */
  arrival: 0.65,
  gridBarrier: 1.09,
  /**
   * Submission of graphs, copies of inputs and results, and the synchronisation of a run of steps,
   * in us: a run of six small kernels took 80 on an H200, 33 of them inside the library.
   */
  run: 65,
  /** The kernel between two steps of a run, in us. */
  nextStep: 2,
  /** A kernel that computes next to nothing: parameters, two loads in turn, a barrier, in us. */
  smallKernel: 1.2,
  /**
   * Microseconds from the wait for the previous kernel to the first product of a kernel whose rings
   * hold weights: the number of rows and x, from L2 in turn (560 clocks), and barriers.
   */
  inputs: 0.6,
  /** The same for a single token, whose row is requested together with the number of rows. */
  rowInputs: 0.44,
  /** Bytes per clock that a multiprocessor loads from L2 (Luo et al. 2024: 64). */
  l2BytesPerMultiprocessor: 64,
  /**
   * Share of the tensor cores' peak that cuBLASLt reaches in large products: 0.73 to 0.80 of BF16
   * on an H200, and 0.58 to 0.68 of F16.
   */
  library: 0.78,
  /** Share of the peak that libflash_attn reaches in prefill where flash_model.ts has no kernel. */
  flash: 0.48,
  /**
   * Terms of a time that overlap imperfectly are joined by this norm: two equal terms take 1.19
   * times as long as one.
   */
  norm: 4,
} as const;
