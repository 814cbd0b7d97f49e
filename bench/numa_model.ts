/**
 * Decoding on machines with many cores and several NUMA nodes that exist on paper only: bytes read
 * from the memory of the own node and of others, and the time in which memory waits for threads.
 * The jobs of a token are simulated with the division of work of the CPU device
 * (`bench/native/numa_model.cpp`).
 */
import { type ModelShape, SHAPES } from "../src/bench/synthetic/shapes.ts";
import { openBackend } from "../src/engine/load/open_backend.ts";
import { PAGE_TOKENS } from "../src/engine/runner.ts";
import type { BenchOptions } from "./bench_options.ts";
import { compileProgram } from "./limits.ts";
import { continuedSequences } from "./step_inputs.ts";

/** Bandwidths in 10^9 bytes a second. */
interface PaperMachine {
  readonly name: string;
  readonly nodes: number;
  readonly coresPerNode: number;
  /** Of the memory of a node. */
  readonly nodeGbs: number;
  /** From one node to another. */
  readonly linkGbs: number;
  readonly threads: readonly number[];
}

/** 85% of the nominal bandwidth of DDR5-4800, on 8 and 12 channels a socket; xGMI of EPYC 9004. */
export const MACHINES: readonly PaperMachine[] = [
  {
    name: "64 cores, 8 channels",
    ...{ nodes: 1, coresPerNode: 64, nodeGbs: 261, linkGbs: 261 },
    threads: [8, 16, 32, 64],
  },
  {
    name: "2 sockets of 96 cores, 12 channels each",
    ...{ nodes: 2, coresPerNode: 96, nodeGbs: 392, linkGbs: 150 },
    threads: [8, 32, 64, 96, 128, 192],
  },
  {
    name: "the same as 8 nodes",
    ...{ nodes: 8, coresPerNode: 24, nodeGbs: 98, linkGbs: 50 },
    threads: [8, 64, 192],
  },
];

/** Read by one core in a nanosecond, in bytes: measured on a core of the test machine. */
const THREAD_GBS = 25;

/**
 * Nanoseconds for changing a word that another core of the socket has changed, or one of another
 * socket, as published for EPYC 9004.
 */
const LINE_NS = 70, REMOTE_LINE_NS = 200;

/** Positions in one split of attention: kAttentionSplit. */
const SPLIT = 256;

const DEPTH = 4096;

/** Bytes of a weight, and of the activation that it is multiplied with. */
const TYPES = {
  Q4_0: { weight: 18 / 32, x: 36 / 32 },
  BF16: { weight: 2, x: 2 },
} as const;

/** The result of a simulation. */
export interface Simulated {
  readonly time_us: number;
  /** If all threads read all the time. */
  readonly reading_us: number;
  readonly local: number;
  readonly remote: number;
}

/** Returns the jobs of a decoded token of a llama, as the program takes them. */
export function jobsOf(shape: ModelShape, type: keyof typeof TYPES, depth: number): string[] {
  const { nLayers, hiddenSize, intermediateSize, nHeads, nKvHeads, headDim, vocabSize } = shape;
  const { weight, x } = TYPES[type];
  const product = (count: number, kind: "plain" | "gated", rows: number, cols: number) =>
    `${count} ${kind} ${rows} ${cols * weight} ${cols * x}`;
  const kvBytes = 2 * headDim * 2; // F16
  return [
    product(nLayers, "plain", (nHeads + 2 * nKvHeads) * headDim, hiddenSize),
    `${nLayers} attention ${nKvHeads} ${Math.ceil(depth / SPLIT)} ${SPLIT * kvBytes}`,
    product(nLayers, "plain", hiddenSize, nHeads * headDim),
    product(nLayers, "gated", intermediateSize, hiddenSize),
    product(nLayers, "plain", hiddenSize, intermediateSize),
    product(1, "plain", vocabSize, hiddenSize),
  ];
}

/** Compiles the program that simulates jobs. */
export async function compileSimulation() {
  const host = ["thread_pool", "topology"].map((name) => `csrc/cpu/host/${name}.cpp`);
  const run = await compileProgram("numa_model", host);
  return {
    /** Measures a job of 2 threads that do nothing on this machine. */
    measureJob: () => run("job") as Promise<{ readonly job_ns: number }>,
    simulate: (machine: PaperMachine, threads: number, jobs: readonly string[]) => {
      const { nodes, coresPerNode, nodeGbs, linkGbs } = machine;
      const rates = [THREAD_GBS, nodeGbs, linkGbs];
      const numbers = [threads, coresPerNode, nodes, LINE_NS, REMOTE_LINE_NS, ...rates];
      return run("simulate", numbers.join(" "), ...jobs) as Promise<Simulated>;
    },
  };
}

/** Prints a table for each type of weights. */
export async function benchNumaModel(options: BenchOptions): Promise<void> {
  const { measureJob, simulate } = await compileSimulation();
  const { job_ns } = await measureJob();
  const shape = SHAPES["llama-3.1-8b"]!;
  const alone = await measureAlone(shape, options.rounds);
  console.log(
    `measured here: ${job_ns.toFixed(0)} ns for a job of 2 threads, and ` +
      `${(alone / 1e3).toFixed(2)} ms a token of work that one thread does alone`,
  );
  for (const type of ["Q4_0", "BF16"] as const) {
    console.log(`\n8B in ${type} after ${DEPTH} tokens, on paper`);
    for (const machine of MACHINES) {
      console.log(`  ${machine.name}`);
      for (const threads of machine.threads) {
        const jobs = jobsOf(shape, type, DEPTH);
        const times = await simulate(machine, threads, jobs);
        console.log(`    ${describe(times, alone, threads)}`);
      }
    }
  }
}

function describe(times: Simulated, alone: number, threads: number): string {
  const { time_us, reading_us, local, remote } = times;
  const whole = time_us + alone;
  const percent = (share: number) => `${(100 * share).toFixed(1).padStart(5)}%`;
  return `${threads.toString().padStart(3)} threads ${
    (whole / 1e3).toFixed(2).padStart(7)
  } ms a token;` +
    ` memory waits ${percent(1 - reading_us / whole)}, of which one thread alone ${
      percent(alone / whole)
    }; read locally ${percent(local / (local + remote))}`;
}

/** Returns microseconds of the operations that one thread computes alone, of a decoded token. */
async function measureAlone(shape: ModelShape, rounds: number): Promise<number> {
  const { nLayers, hiddenSize, nHeads, nKvHeads, headDim, vocabSize } = shape;
  const backend = openBackend("cpu", 1);
  const ones = (cols: number) =>
    backend.uploadWeight("F32", 1, cols, new Uint8Array(new Float32Array(cols).fill(1).buffer));
  const limits = { maxTokens: 1, maxOutputs: 1, maxSequences: 1, maxPages: 1 };
  const recorder = backend.record(limits);
  const qkv = recorder.embed(ones((nHeads + 2 * nKvHeads) * headDim));
  const norm = ones(hiddenSize);
  let hidden = recorder.embed(norm);
  for (let layer = 0; layer < nLayers; layer++) {
    const kvShape = { nPages: 1, pageTokens: PAGE_TOKENS, nKvHeads, kHeadDim: headDim };
    const kv = backend.createKv({ type: "F16", ...kvShape, vHeadDim: headDim });
    recorder.ropeAppend(qkv, kv, { nHeads, eps: 1e-5, ropeLayout: "half" });
    for (let i = 0; i < 2; i++) hidden = recorder.rmsNorm(hidden, norm, { eps: 1e-5 });
  }
  recorder.sample(recorder.gatherOutputs(recorder.embed(ones(vocabSize))), 1);
  const step = await recorder.finish();
  const inputs = continuedSequences([0], 1, 0, [Int32Array.of(0)], 1);
  let least = Infinity;
  for (let round = 0; round < 10 * rounds; round++) {
    await step.run(inputs);
    least = Math.min(least, step.nativeTime());
  }
  step.release();
  backend.close();
  return least / 1e3;
}
