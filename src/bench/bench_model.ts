import type { AttentionKernels, DeviceInfo, KvType } from "../backend.ts";
import { asLoaded } from "../engine/load/options.ts";
import { openBackend } from "../engine/load/open_backend.ts";
import { PAGE_TOKENS, Runner } from "../engine/runner.ts";
import { ForgeError } from "../errors.ts";
import { type Checkpoint, openCheckpoint } from "../formats/checkpoint.ts";
import type { QuantizedType } from "../formats/quantized.ts";
import { quote } from "../formats/quote.ts";
import { loadModel } from "../models/registry.ts";
import { type ModelSummary, summarizeModel } from "./model_summary.ts";

/** How a model is opened to be measured. */
export interface BenchModelOptions {
  /** What messages call the model. */
  readonly name: string;
  readonly device: string;
  /** 0 for one a core. */
  readonly threads: number;
  /** Positions that the longest test takes of one sequence. */
  readonly contextLength: number;
  /** Sequences that a test computes at once, at most. @default 1 */
  readonly maxSequences?: number | undefined;
  /** Positions of all sequences together. @default as many as they can have */
  readonly cacheTokens?: number | undefined;
  /** What weights that are stored as floats are quantised to. @default as they are stored */
  readonly quantize?: QuantizedType | undefined;
  /** @default "F16"; "F32" on the reference device */
  readonly kvType?: KvType | undefined;
  /** Which kernels compute attention. @default "auto" */
  readonly attention?: AttentionKernels | undefined;
  /** Whether to measure what the device's memory gives, before anything is loaded. @default false */
  readonly measuresBandwidth?: boolean | undefined;
}

/** A model loaded to be measured: all of the engine below the tokenizer. */
export interface BenchModel extends Disposable {
  readonly runner: Runner;
  readonly summary: ModelSummary;
  readonly device: DeviceInfo;
  /** As `--device` names it, such as `cpu:avx512`. */
  readonly backend: string;
  readonly kvType: KvType;
  /** The most tokens of a prompt that are computed at once. */
  readonly batch: number;
  /** Bytes a second that the device reads of its memory at most; 0 where unknown. */
  readonly readBandwidth: number;
  /** Bytes that the process has held resident at most so far; 0 where unknown. */
  peakMemory(): number;
}

/**
 * Loads a model, from its path or as it was opened.
 *
 * @throws {ForgeError} as `load` of the public API; `usage` when a test is longer than the model's
 * context.
 */
export async function openBenchModel(
  model: string | Checkpoint,
  options: BenchModelOptions,
): Promise<BenchModel> {
  const { contextLength } = options;
  const stored = typeof model === "string" ? openCheckpoint(model) : model;
  const checkpoint = asLoaded(stored, options);
  const backend = openBackend(options.device, options.threads, options.attention);
  try {
    const readBandwidth = options.measuresBandwidth ? backend.readBandwidth() : 0;
    const { lm, weights } = loadModel(backend, checkpoint, contextLength);
    if (contextLength > lm.contextLength) {
      throw new ForgeError(
        "usage",
        `a test takes ${contextLength} tokens, but the context of ${quote(options.name)} holds ` +
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
      peakMemory: () => backend.peakMemory(),
      [Symbol.dispose]: () => backend.close(),
    };
  } catch (error) {
    backend.close();
    throw error;
  }
}
