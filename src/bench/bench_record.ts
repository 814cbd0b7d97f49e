import type { BenchModel } from "./bench_model.ts";
import type { Sample } from "./measure.ts";
import { mean, sampleDeviation } from "./statistics.ts";
import type { Workload } from "./workload.ts";

/**
 * One measured test, under the names that llama-bench prints the same things by; `device`,
 * `decode_bytes`, `weight_gb_s`, `read_gb_s` and `peak_memory` are forge's own.
 */
export interface BenchRecord {
  readonly forge_version: string;
  readonly device: string;
  readonly backends: string;
  readonly model_filename: string;
  readonly model_type: string;
  readonly model_size: number;
  readonly model_n_params: number;
  /** The most tokens of a prompt that are computed at once. */
  readonly n_batch: number;
  readonly n_threads: number;
  readonly type_k: string;
  readonly type_v: string;
  readonly n_prompt: number;
  readonly n_gen: number;
  readonly n_depth: number;
  /** Sequences at once; `n_prompt`, `n_gen` and `n_depth` are of each of them. */
  readonly n_parallel: number;
  /** When the test ended, ISO 8601. */
  readonly test_time: string;
  readonly avg_ns: number;
  readonly stddev_ns: number;
  /** What of it the prompts took, and what decoding took. */
  readonly avg_prefill_ns: number;
  readonly avg_decode_ns: number;
  /** Tokens a second, prompt and generated ones of all sequences: mean over the repetitions. */
  readonly avg_ts: number;
  readonly stddev_ts: number;
  /** Bytes of weights that decoding one token reads. */
  readonly decode_bytes: number;
  /** `decode_bytes` times `avg_ts`, in 10^9 bytes a second; `null` for tests with a prompt, or of several sequences. */
  readonly weight_gb_s: number | null;
  /** What the device reads of its memory at most, 10^9 bytes a second; `null` where unknown. */
  readonly read_gb_s: number | null;
  /** The most memory that the process had held resident when the test ended; `null` where unknown. */
  readonly peak_memory: number | null;
  readonly samples_ns: readonly number[];
  readonly samples_ts: readonly number[];
}

/** Where and when something was measured. */
export interface BenchSession {
  readonly version: string;
  readonly time: Date;
  /** Bytes that the process has held resident at most; 0 where unknown. */
  readonly peakMemory: number;
}

/** @param samples what each repetition took, at least one */
export function benchRecord(
  model: Pick<BenchModel, "backend" | "batch" | "device" | "kvType" | "readBandwidth" | "summary">,
  name: string,
  { nPrompt, nGen, nDepth, nParallel = 1, nBatch = model.batch }: Workload,
  samples: readonly Sample[],
  session: BenchSession,
): BenchRecord {
  const { summary, device, kvType } = model;
  const samples_ns = samples.map(({ prefill, decode }) => prefill + decode);
  const samples_ts = samples_ns.map((ns) => nParallel * (nPrompt + nGen) / ns * 1e9);
  const avg_ts = mean(samples_ts);
  return {
    forge_version: session.version,
    device: device.name,
    backends: model.backend,
    model_filename: name,
    model_type: summary.type,
    model_size: summary.bytes,
    model_n_params: summary.parameters,
    n_batch: Math.min(model.batch, nBatch),
    n_threads: device.threads,
    type_k: kvType.toLowerCase(),
    type_v: kvType.toLowerCase(),
    n_prompt: nPrompt,
    n_gen: nGen,
    n_depth: nDepth,
    n_parallel: nParallel,
    test_time: session.time.toISOString(),
    avg_ns: Math.round(mean(samples_ns)),
    stddev_ns: Math.round(sampleDeviation(samples_ns)),
    avg_prefill_ns: Math.round(mean(samples.map(({ prefill }) => prefill))),
    avg_decode_ns: Math.round(mean(samples.map(({ decode }) => decode))),
    avg_ts,
    stddev_ts: sampleDeviation(samples_ts),
    decode_bytes: summary.decodeBytes,
    weight_gb_s: nPrompt === 0 && nParallel === 1 ? summary.decodeBytes * avg_ts / 1e9 : null,
    read_gb_s: model.readBandwidth > 0 ? model.readBandwidth / 1e9 : null,
    peak_memory: session.peakMemory > 0 ? session.peakMemory : null,
    samples_ns,
    samples_ts,
  };
}
