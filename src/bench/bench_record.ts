import type { BenchModel } from "./bench_model.ts";
import type { Sample } from "./measure.ts";
import { mean, sampleDeviation } from "./statistics.ts";
import type { Workload } from "./workload.ts";

/**
 * One measured test. Fields have llama-bench's names, except forge's own `device`, `decode_bytes`,
 * `weight_gb_s`, `read_gb_s`, `prompt_tflops`, `matrix_tflops` and `peak_memory`.
 */
export interface BenchRecord {
  readonly forge_version: string;
  readonly device: string;
  readonly backends: string;
  readonly model_filename: string;
  readonly model_type: string;
  readonly model_size: number;
  readonly model_n_params: number;
  /** Maximum number of prompt tokens computed at once. */
  readonly n_batch: number;
  readonly n_threads: number;
  readonly type_k: string;
  readonly type_v: string;
  readonly n_prompt: number;
  readonly n_gen: number;
  readonly n_depth: number;
  /** Number of sequences; `n_prompt`, `n_gen` and `n_depth` apply to each. */
  readonly n_parallel: number;
  /** End of the test, ISO 8601. */
  readonly test_time: string;
  readonly avg_ns: number;
  readonly stddev_ns: number;
  /** Time of the prompts, and time of decoding. */
  readonly avg_prefill_ns: number;
  readonly avg_decode_ns: number;
  /** Tokens per second, prompt and generated, of all sequences: mean of the repetitions. */
  readonly avg_ts: number;
  readonly stddev_ts: number;
  /** Bytes of weights read per decoded token. */
  readonly decode_bytes: number;
  /**
   * `decode_bytes` times `avg_ts` in 10^9 bytes per second; `null` with a prompt or several
   * sequences.
   */
  readonly weight_gb_s: number | null;
  /** Measured read bandwidth of the device in 10^9 bytes per second; `null` if unknown. */
  readonly read_gb_s: number | null;
  /**
   * Products of prompt tokens with weights in 10^12 operations per second, two for each weight;
   * `null` if tokens were decoded too.
   */
  readonly prompt_tflops: number | null;
  /** Measured products of matrices in 10^12 operations per second; `null` if unknown. */
  readonly matrix_tflops: number | null;
  /** Peak resident memory of the process at the end of the test; `null` if unknown. */
  readonly peak_memory: number | null;
  readonly samples_ns: readonly number[];
  readonly samples_ts: readonly number[];
}

/** Circumstances of a measurement. */
interface BenchSession {
  readonly version: string;
  readonly time: Date;
  /** Peak resident memory of the process in bytes; 0 if unknown. */
  readonly peakMemory: number;
}

/** Builds the record of a test. @param samples times of the repetitions, at least one */
export function benchRecord(
  model: Pick<
    BenchModel,
    "backend" | "batch" | "device" | "kvType" | "matrixRate" | "readBandwidth" | "summary"
  >,
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
    prompt_tflops: nGen === 0 ? 2 * summary.promptWeights * avg_ts / 1e12 : null,
    matrix_tflops: model.matrixRate > 0 ? model.matrixRate / 1e12 : null,
    peak_memory: session.peakMemory > 0 ? session.peakMemory : null,
    samples_ns,
    samples_ts,
  };
}
