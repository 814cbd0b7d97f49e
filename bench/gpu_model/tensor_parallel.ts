/**
 * Expected times of decoding on several H100 with every layer divided among them: the launches of
 * one GPU, as the library plans them, with the all-reduces among them.
 */
import { type ModelShape, SHAPES } from "../../src/bench/synthetic/shapes.ts";
import type { KernelCompiler } from "./compiled_kernels.ts";
import type { Libraries } from "./launches.ts";
import { modelledLlama } from "./models.ts";
import { H100 } from "./nvidia.ts";
import { type Division, isAllReduce, predictSteps } from "./predictions.ts";

/** Connection of GPUs. */
export interface Link {
  readonly name: string;
  /** Of one GPU in each direction, in 10^9 bytes per second. */
  readonly bandwidth: number;
  /** Microseconds from one GPU of a ring to the next, by protocol. */
  readonly hops: Readonly<Record<Protocol, number>>;
}

/**
 * NCCL's protocols: LL sends 4 bytes of data with 4 of flags, LL128 120 with 8, Simple data alone.
 */
type Protocol = "LL" | "LL128" | "Simple";

/*
 * Latencies: the table by which NCCL 2.19 to 2.27 chooses a protocol (src/graph/tuning.cc), for
 * rings. Bandwidths: NVLink 4 has 450 GB/s each way; PCIe 5.0 x16 has 63 GB/s less about a fifth
 * for packets.
 */
export const NVLINK: Link = {
  name: "NVLink",
  bandwidth: 450,
  hops: { LL: 0.6, LL128: 1.9, Simple: 3.4 },
};
export const PCIE: Link = {
  name: "PCIe",
  bandwidth: 50,
  hops: { LL: 1.0, LL128: 2.5, Simple: 5.7 },
};

/** Microseconds of a call without data, and share of the bandwidth, from the same table. */
const PROTOCOLS: Readonly<Record<Protocol, { readonly base: number; readonly share: number }>> = {
  LL: { base: 6.6, share: 0.5 },
  LL128: { base: 14.0, share: 120 / 128 },
  Simple: { base: 8.4, share: 1 },
};

/** Returns the microseconds of one all-reduce over a ring, by the fastest protocol. */
export function allReduceTime(bytes: number, devices: number, link: Link): number {
  if (devices === 1) return 0;
  const hops = 2 * (devices - 1);
  const sent = hops / devices * bytes;
  return Math.min(
    ...Object.entries(PROTOCOLS).map(([name, { base, share }]) =>
      base + hops * link.hops[name as Protocol] + sent / (1e3 * link.bandwidth * share)
    ),
  );
}

/** A model to divide. */
interface DividedModel {
  readonly name: string;
  readonly shape: ModelShape;
}

const LLAMA_8B = SHAPES["llama-3.1-8b"]!;

export const DIVIDED_MODELS: readonly DividedModel[] = [
  { name: "8B", shape: LLAMA_8B },
  {
    name: "70B",
    shape: { ...LLAMA_8B, nLayers: 80, hiddenSize: 8192, intermediateSize: 28672, nHeads: 64 },
  },
];

/**
 * Returns the shape of one GPU's part; KV heads are repeated if there are fewer of them than GPUs.
 */
export function partOf(shape: ModelShape, devices: number): ModelShape {
  return {
    ...shape,
    nHeads: shape.nHeads / devices,
    nKvHeads: Math.max(1, shape.nKvHeads / devices),
    intermediateSize: shape.intermediateSize / devices,
    vocabSize: shape.vocabSize / devices,
  };
}

/** Expected time of a decoding step on several GPUs. */
export interface DividedPrediction {
  readonly model: string;
  readonly devices: number;
  readonly link: string;
  readonly batch: number;
  readonly time_us: number;
  /** Time of the all-reduces within it. */
  readonly all_reduce_us: number;
  /** Share of the sum of the nominal bandwidths. */
  readonly share: number;
  /** True if the weights fit the 80 GB of each GPU. */
  readonly fits: boolean;
}

/** Nominal memory of an H100. */
const MEMORY_BYTES = 80e9;
const BATCHES = [1, 64];
const DEPTH = 512;

/**
 * Goal of the share at batch 1 of 70B in BF16 on eight GPUs with NVLink: the latency of its 162
 * all-reduces is the difference from one GPU.
 */
export const DIVIDED_GOAL = { model: "70B", devices: 8, link: "NVLink", batch: 1, share: 0.6 };

/** Predicts decoding in BF16 on several H100, for each link. */
export async function predictDivided(
  compiler: KernelCompiler,
  libraries: Libraries,
  { name, shape }: DividedModel,
  counts: readonly number[] = [1, 2, 4, 8],
): Promise<DividedPrediction[]> {
  const result: DividedPrediction[] = [];
  const model = modelledLlama(name, shape);
  const steps = BATCHES.map((batch) => ({ batch, tokens: 1, depth: DEPTH }));
  for (const devices of counts) {
    for (const link of devices === 1 ? [NVLINK] : [NVLINK, PCIE]) {
      const division: Division = {
        ranks: devices,
        allReduceTime: (bytes) => allReduceTime(bytes, devices, link),
      };
      const predicted = await predictSteps(
        ...[compiler, H100, model, "BF16", libraries, steps, undefined, division] as const,
      );
      for (const { step: { batch }, launches, predictions } of predicted) {
        const { time_us, share } = predictions.find(({ workload }) => workload === "decode")!;
        result.push({
          model: name,
          devices,
          link: devices === 1 ? "" : link.name,
          batch,
          time_us,
          all_reduce_us: launches.filter(isAllReduce)
            .reduce((sum, { count, microseconds }) => sum + count * microseconds, 0),
          share,
          fits: 2 * parametersOf(partOf(shape, devices)) < MEMORY_BYTES,
        });
      }
    }
  }
  return result;
}

/** Returns the number of weights of a model without its norms. */
function parametersOf(shape: ModelShape): number {
  const { nLayers, hiddenSize, intermediateSize, nHeads, nKvHeads, headDim, vocabSize } = shape;
  const attention = 2 * (nHeads + nKvHeads) * headDim;
  return hiddenSize * (nLayers * (attention + 3 * intermediateSize) + 2 * vocabSize);
}
