import type {
  AttentionKernels,
  BackendKind,
  KvType,
  NumaNodes,
  ProductNumbers,
} from "../../backend.ts";
import { ForgeError } from "../../errors.ts";
import type { Checkpoint } from "../../formats/checkpoint.ts";
import { quantized, QUANTIZED_TYPES, type QuantizedType } from "../../formats/quantized.ts";
import { quote, quoteList } from "../../formats/quote.ts";
import { DEFAULT_CONTEXT, DEFAULT_PARALLEL, MAX_DEVICES, MAX_PARALLEL } from "../limits.ts";
import type { ProcessOptions } from "../processes/rendezvous.ts";
import type { AdapterOption } from "../request/adapters.ts";
import {
  checkWholeNumber,
  FUNCTION,
  NUMBER,
  OBJECT,
  type OptionChecks,
  STRING,
  STRINGS,
} from "../../formats/arguments.ts";

/** Options of loading a model. Every member has a default. */
export interface LoadOptions {
  /** `auto`, `cpu`, `cpu:VARIANT`, `cuda`, `cuda:N`, `metal` or `reference`. @default "auto" */
  readonly device?: string | undefined;
  /**
   * Devices of one kind in place of `device`, such as `["cuda:0", "cuda:1"]`. Each holds a replica,
   * or a part of one, and requests are distributed over the replicas. Repeated `cpu` divides the
   * threads and the memory.
   */
  readonly devices?: readonly string[] | undefined;
  /**
   * Number of replicas, on as many devices: the first GPUs of the machine, or a processor divided
   * into parts. @default the number of `devices`
   */
  readonly dataParallel?: number | undefined;
  /**
   * Number of devices that divide each layer of a replica (tensor parallelism), so that a model
   * may be larger than the memory of one. @default 1
   */
  readonly tensorParallel?: number | undefined;
  /**
   * Number of stages, each of which holds some of the layers of a replica (pipeline parallelism),
   * on `tensorParallel` devices of its own. @default 1
   */
  readonly pipelineParallel?: number | undefined;
  /**
   * This process among several, of one or of several machines, whose devices divide the model:
   * `tensorParallel` times `pipelineParallel` of them, as many in each. Process 0 loads the model;
   * the others call {@linkcode assist} with the same options. @default this process alone
   */
  readonly processes?: ProcessOptions | undefined;
  /** Threads that compute. @default one per core */
  readonly threads?: number | undefined;
  /** Most tokens of prompt and answer together. @default the model's own limit, at most 32768 */
  readonly contextLength?: number | undefined;
  /** Most sequences that each replica computes at a time; more of them wait. @default 32 */
  readonly parallel?: number | undefined;
  /**
   * Quantises weights stored as floats while they load. 4 bits take a quarter of the memory and are
   * up to four times as fast. Nothing is written. @default as they are stored
   */
  readonly quantize?: QuantizedType | undefined;
  /**
   * The most bytes of the KV cache and recurrent states on each device, for all sequences together.
   * @default a share of the memory that the weights leave: 3/4 on CUDA, 1/2 on Metal, 1/4 on a
   * processor
   */
  readonly kvMemory?: number | undefined;
  /**
   * Number of models that share the device: the share of memory above is divided by it.
   * @default 1
   */
  readonly modelsInMemory?: number | undefined;
  /**
   * The most bytes of weights, KV cache and activations together on a CPU. Weights that do not fit
   * stay in their files, and every token reads them from there. @default the free memory
   */
  readonly memory?: number | undefined;
  /**
   * Chat template, in Jinja's language, in place of the one in the model's files. @default theirs
   */
  readonly chatTemplate?: string | undefined;
  /**
   * Folder that keeps the keys and values of prompts, so that later processes need not compute them
   * again. Several processes may share it. @default none
   */
  readonly kvDir?: string | undefined;
  /**
   * The most bytes of the files in that folder; the least recently used are removed. @default 8 GiB
   */
  readonly kvDirSize?: number | undefined;
  /**
   * Receives a line about each file of that folder that had to be removed, and each replica whose
   * device failed. @default console.error
   */
  readonly onWarning?: ((line: string) => void) | undefined;
  /** Type of the KV cache. @default "F16"; "F32" on the reference device */
  readonly kvType?: KvType | undefined;
  /**
   * Kernels of attention on a CUDA device. Kernels that the device or the model does not support
   * are an error. @default "auto"
   */
  readonly attention?: AttentionKernels | undefined;
  /**
   * Numbers that products with BF16 and F16 weights multiply on a CPU with instructions for BF16:
   * `f32` is float32; `bf16` rounds activations and F16 weights to BF16, which is twice as fast;
   * `auto` rounds activations for BF16 weights, as PyTorch does. @default "auto"
   */
  readonly products?: ProductNumbers | undefined;
  /**
   * NUMA nodes of a CPU, each of which keeps and multiplies its share of the rows of every weight:
   * `auto` are those of the machine, `off` none. A number divides the threads into as many parts,
   * wherever the system runs them. No choice changes a result. @default "auto"
   */
  readonly numa?: NumaNodes | undefined;
  /** Low-rank adapters (LoRA), which requests choose by name; without a choice all apply. */
  readonly lora?: readonly AdapterOption[] | undefined;
  /**
   * Speculative decoding by the text itself and, if the files have one, by the model's layer for
   * multi-token prediction: `on` drafts as many tokens as pay, `off` none, a number from 1 to 32
   * always that many per sequence. On the CPU it changes no token; on a GPU it may change the last
   * digits of logits and, rarely, a token. `auto` is `on` where nothing changes.
   * @default "auto"
   */
  readonly speculate?: Speculation | undefined;
  /**
   * Path of a smaller model with the same vocabulary, or of an EAGLE-3 head for the model, which
   * drafts tokens that the text itself does not suggest. It turns speculative decoding on for every
   * device.
   */
  readonly draftModel?: string | undefined;
  /**
   * Number of draft tokens at each position, 1 to 8, by the model's layer for multi-token
   * prediction or an EAGLE-3 head: 1 drafts chains, more drafts trees, whose branches one step
   * verifies. `auto` branches where measured times say that it pays. Models with recurrent state,
   * and other drafters, draft chains. @default "auto"
   */
  readonly draftTree?: "auto" | number | undefined;
}

/** Types of {@linkcode LoadOptions}; ranges and names are checked where they are used. */
export const LOAD_OPTIONS: OptionChecks<LoadOptions> = {
  device: STRING,
  devices: STRINGS,
  dataParallel: NUMBER,
  tensorParallel: NUMBER,
  pipelineParallel: NUMBER,
  processes: OBJECT,
  threads: NUMBER,
  contextLength: NUMBER,
  parallel: NUMBER,
  quantize: STRING,
  kvMemory: NUMBER,
  modelsInMemory: NUMBER,
  memory: NUMBER,
  kvDir: STRING,
  kvDirSize: NUMBER,
  onWarning: FUNCTION,
  chatTemplate: STRING,
  kvType: STRING,
  attention: STRING,
  products: STRING,
  numa: {
    accepts: (value) => typeof value === "string" || typeof value === "number",
    valid: "auto, off or a number of nodes",
  },
  lora: { accepts: Array.isArray, valid: "an array of { path, scale, name }" },
  speculate: {
    accepts: (value) => typeof value === "string" || typeof value === "number",
    valid: "auto, on, off or a number of tokens",
  },
  draftModel: STRING,
  draftTree: {
    accepts: (value) => value === "auto" || typeof value === "number",
    valid: "auto or a number of tokens",
  },
};

/** Number of draft tokens per sequence, or how it is chosen. */
export type Speculation = "auto" | "on" | "off" | number;

/**
 * Returns the context length to open a model with.
 *
 * @param longest longest context of the model
 * @throws {ForgeError} `usage` if the one asked for is longer or not a positive whole number
 */
export function resolveContext(asked: number | undefined, longest: number): number {
  const contextLength = asked ?? Math.min(longest, DEFAULT_CONTEXT);
  if (!Number.isInteger(contextLength) || contextLength < 1 || contextLength > longest) {
    throw new ForgeError(
      "usage",
      `the context length is ${contextLength}; valid for this model is 1 to ${longest}`,
    );
  }
  return contextLength;
}

/**
 * Returns a checkpoint with its weights in the type asked for.
 *
 * @throws {ForgeError} `usage` for an unknown type, or if no weight can be quantised
 */
export function asLoaded(
  stored: Checkpoint,
  { quantize, chatTemplate }: Pick<LoadOptions, "quantize" | "chatTemplate">,
): Checkpoint {
  const checkpoint = chatTemplate === undefined ? stored : { ...stored, chatTemplate };
  if (quantize === undefined) return checkpoint;
  if (QUANTIZED_TYPES.includes(quantize)) return quantized(checkpoint, quantize);
  throw new ForgeError(
    "usage",
    `quantize is ${quote(String(quantize))}; valid is ${quoteList(QUANTIZED_TYPES)}`,
  );
}

/** Returns the type of the KV cache. */
export function resolveKvType(asked: KvType | undefined, device: BackendKind): KvType {
  return asked ?? (device === "reference" ? "F32" : "F16");
}

/** Returns the number of replicas asked for, which opening the devices checks. */
export function countReplicas(
  options: Pick<LoadOptions, "devices" | "dataParallel" | keyof DivisionOptions>,
): number {
  const { devices, dataParallel } = options;
  const { ranks, stages } = resolveDivision(options);
  return dataParallel ?? (devices === undefined ? 1 : Math.ceil(devices.length / ranks / stages));
}

type DivisionOptions = Pick<LoadOptions, "tensorParallel" | "pipelineParallel">;

/** Devices of one replica. */
export interface Division {
  /** Number of devices of each stage, which divide its layers. */
  readonly ranks: number;
  /** Number of stages, which divide the layers of the model among them. */
  readonly stages: number;
}

/**
 * Returns how many devices divide each replica. @throws {ForgeError} `usage` if out of range
 */
export function resolveDivision(
  { tensorParallel = 1, pipelineParallel = 1 }: DivisionOptions,
): Division {
  return {
    ranks: checkWholeNumber("tensorParallel", tensorParallel, 1, MAX_DEVICES),
    stages: checkWholeNumber("pipelineParallel", pipelineParallel, 1, MAX_DEVICES),
  };
}

/**
 * Returns the number of sequences computed at a time. @throws {ForgeError} `usage` if out of range
 */
export function resolveParallel(asked: number | undefined): number {
  return checkWholeNumber("parallel", asked ?? DEFAULT_PARALLEL, 1, MAX_PARALLEL);
}
