import type {
  AttentionKernels,
  DeviceInfo,
  KvType,
  NumaNodes,
  ProductNumbers,
} from "../backend.ts";
import { asLoaded } from "../engine/load/options.ts";
import { openBackends, type OpenDevice } from "../engine/load/open_backend.ts";
import { PAGE_TOKENS, Runner } from "../engine/runner.ts";
import { ForgeError } from "../errors.ts";
import { type Checkpoint, openCheckpoint } from "../formats/checkpoint.ts";
import type { QuantizedType } from "../formats/quantized.ts";
import { quote } from "../formats/quote.ts";
import { loadModel } from "../models/registry.ts";
import { type ModelSummary, summarizeModel } from "./model_summary.ts";

/** Options for opening a model to measure. */
interface BenchModelOptions {
  /** Name of the model in messages. */
  readonly name: string;
  readonly device: string;
  /** Number of threads; 0 for one per core. */
  readonly threads: number;
  /** Positions of the longest test in one sequence. */
  readonly contextLength: number;
  /** Maximum number of sequences computed at once. @default 1 */
  readonly maxSequences?: number | undefined;
  /** Positions of all sequences together. @default enough for `maxSequences` full contexts */
  readonly cacheTokens?: number | undefined;
  /** Quantizes weights stored as floats to this type. @default no conversion */
  readonly quantize?: QuantizedType | undefined;
  /** @default "F16"; "F32" on the reference device */
  readonly kvType?: KvType | undefined;
  /** Attention kernels to use. @default "auto" */
  readonly attention?: AttentionKernels | undefined;
  /** Numbers that products multiply. @default "auto" */
  readonly products?: ProductNumbers | undefined;
  /** Number of devices that divide every layer. @default 1 */
  readonly tensorParallel?: number | undefined;
  /** NUMA nodes of a CPU. @default "auto" */
  readonly numa?: NumaNodes | undefined;
  /** True to measure what bounds the device before loading. @default false */
  readonly measuresLimits?: boolean | undefined;
}

/** A model loaded for measuring: all of the engine below the tokenizer. */
export interface BenchModel extends Disposable {
  readonly runner: Runner;
  readonly summary: ModelSummary;
  readonly device: DeviceInfo;
  /** As `--device` names it, such as `cpu:avx512`. */
  readonly backend: string;
  readonly kvType: KvType;
  /** Maximum number of prompt tokens computed at once. */
  readonly batch: number;
  /** Measured read bandwidth of the device's memory in bytes per second; 0 if unknown. */
  readonly readBandwidth: number;
  /** Measured operations per second of the device's products of matrices; 0 if unknown. */
  readonly matrixRate: number;
  /** Peak resident memory of the process in bytes; 0 if unknown. */
  peakMemory(): number;
}

/**
 * Loads a model from its path or from an open checkpoint.
 *
 * @throws {ForgeError} as `load` of the public API; `usage` if a test is longer than the model's
 * context
 */
export async function openBenchModel(
  model: string | Checkpoint,
  options: BenchModelOptions,
): Promise<BenchModel> {
  const { contextLength } = options;
  const stored = typeof model === "string" ? openCheckpoint(model) : model;
  const checkpoint = asLoaded(stored, options);
  const [backend] = openBackends(options) as [OpenDevice];
  try {
    const readBandwidth = options.measuresLimits ? backend.readBandwidth?.() ?? 0 : 0;
    const matrixRate = options.measuresLimits ? backend.matrixRate?.() ?? 0 : 0;
    const { lm, weights } = loadModel(backend, checkpoint, {
      sessionLength: contextLength,
    });
    if (lm.isBidirectional) {
      throw new ForgeError(
        "unsupported",
        `${quote(checkpoint.path)} embeds or scores texts; measured are models that generate`,
      );
    }
    if (contextLength > lm.contextLength) {
      throw new ForgeError(
        "usage",
        `a test takes ${contextLength} tokens, but the context of ${quote(options.name)} has ` +
          `${lm.contextLength}; give smaller numbers for -p, -n or -d`,
      );
    }
    const kvType = options.kvType ?? (backend.kind === "reference" ? "F32" : "F16");
    const { kind, info } = backend;
    const { maxSequences = 1 } = options;
    const allTokens = maxSequences * Math.ceil(contextLength / PAGE_TOKENS) * PAGE_TOKENS;
    const { cacheTokens = allTokens } = options;
    const runner = await Runner.open(backend, lm, {
      contextLength,
      kvType,
      maxSequences,
      cacheTokens,
    });
    return {
      runner,
      summary: summarizeModel(checkpoint, weights.mappedTensors),
      device: info,
      backend: info.kernels === kind ? kind : `${kind}:${info.kernels}`,
      kvType,
      batch: runner.limits.maxTokens,
      readBandwidth,
      matrixRate,
      peakMemory: () => backend.peakMemory?.() ?? 0,
      [Symbol.dispose]: () => backend.close(),
    };
  } catch (error) {
    backend.close();
    throw error;
  }
}
