/**
 * A Hugging Face folder as the contents of a GGUF file: its settings and tensors under GGUF's
 * names.
 *
 * The names come from a load of the folder. A load of the result must then record the same step, so
 * that a setting that GGUF cannot express is found before a file is written.
 */
import {
  type Backend,
  type KvCache,
  type Operand,
  Recorder,
  type StateCache,
  type Step,
  type Value,
  type Weight,
  type WeightData,
  type WeightSlice,
} from "../backend.ts";
import { ForgeError } from "../errors.ts";
import type { Checkpoint } from "../formats/checkpoint.ts";
import type { GgufValue } from "../formats/gguf/gguf.ts";
import type { GgufField } from "../formats/gguf/writer.ts";
import { quote } from "../formats/quote.ts";
import { tensorBytes, type TensorInfo } from "../formats/tensor_info.ts";
import type { CausalLm } from "./causal_lm.ts";
import type { GgufRules, GgufSink, TensorRows } from "./gguf_rules.ts";
import { ggufKey } from "./config/config_reader.ts";
import { ggufRules, loadModel } from "./registry.ts";

/** A tensor of a GGUF file, with the weight that its rows are read from. */
export interface FolderTensor extends TensorRows {
  readonly name: string;
  /** Added to every number. */
  readonly offset: number;
  /** Rows of a head whose two halves alternate in the file; 0 for rows in their order. */
  readonly headRows: number;
}

/** The contents of a GGUF file, without its tokenizer. */
interface FolderContents {
  readonly architecture: string;
  readonly fields: Readonly<Record<string, GgufField>>;
  readonly tensors: readonly FolderTensor[];
  /** Tensors of computed numbers, by name. */
  readonly numbers: ReadonlyMap<string, Float32Array<ArrayBuffer>>;
  readonly vocabSize: number;
}

/**
 * Converts a folder. The only weights that it reads are vectors that the load itself reads.
 *
 * @param backend a device that leaves weights in their files until they are read
 * @throws {ForgeError} `unsupported` for a family that forge does not write, or a setting that GGUF
 * does not have
 */
export function folderAsGguf(backend: Backend, checkpoint: Checkpoint): FolderContents {
  const rules = ggufRules(checkpoint);
  const collected = new Collector();
  const { lm } = loadModel(backend, checkpoint, { sink: collected, drafts: rules.mayPredict });
  if (!lm.hasHead) {
    throw new ForgeError(
      "unsupported",
      `${quote(checkpoint.path)} has no output matrix; forge writes models that generate`,
    );
  }
  const { architecture } = rules;
  const { kHeadDim, vHeadDim } = lm.kvLayers[0] ?? { kHeadDim: 1, vHeadDim: 1 };
  const settings: Record<string, GgufField> = {
    vocab_size: ["u32", lm.vocabSize],
    "attention.key_length": ["u32", kHeadDim],
    "attention.value_length": ["u32", vHeadDim],
    ...Object.fromEntries(collected.settings),
  };
  const contents: FolderContents = {
    architecture,
    fields: Object.fromEntries(
      Object.entries(settings).map(([key, field]) => [ggufKey(architecture, key), field]),
    ),
    tensors: Array.from(collected.tensors, ([name, rows]): FolderTensor => ({
      ...rows,
      name,
      offset: rules.addsToNorms && name.endsWith("norm.weight") ? 1 : 0,
      headRows: rules.reordersHeads && /\.attn_[qk]\.(weight|bias)$/.test(name) ? kHeadDim : 0,
    })),
    numbers: collected.vectors,
    vocabSize: lm.vocabSize,
  };
  assertSameStep(checkpoint, rules, traceOf(backend, lm), contents);
  return contents;
}

/** Collects what a load reads, by its GGUF names. */
class Collector implements GgufSink {
  readonly settings = new Map<string, GgufField>();
  readonly tensors = new Map<string, TensorRows>();
  readonly vectors = new Map<string, Float32Array<ArrayBuffer>>();

  setting(key: string, field: GgufField): void {
    this.settings.set(key, field);
  }

  tensor(name: string, rows: TensorRows): void {
    this.tensors.set(name, rows);
  }

  numbers(name: string, values: Float32Array<ArrayBuffer>): void {
    this.vectors.set(name, values);
  }
}

/** An operation of a step, with names in place of handles. */
interface TracedOperation {
  readonly name: string;
  readonly operands: Readonly<Record<string, string | number | readonly number[]>>;
}

/**
 * Records the step of a model, then the one of its head for drafts, if any. Weights are numbered as
 * they are used first.
 */
function traceOf(backend: Backend, lm: CausalLm): TracedOperation[] {
  const operations: TracedOperation[] = [];
  const weights = new Map<number, number>();
  const numberOf = ({ handle }: Weight) => {
    const number = weights.get(handle) ?? weights.size;
    weights.set(handle, number);
    return number;
  };
  const describe = (name: string, operand: Operand): string | number | readonly number[] => {
    if (operand === undefined) return "none";
    if (typeof operand === "number" || typeof operand === "string") return operand;
    if (typeof operand === "boolean") return String(operand);
    if (!("handle" in operand)) return JSON.stringify(operand);
    if (!("rows" in operand)) return `cache ${operand.handle}`;
    const weight = operand as Weight;
    // The frequencies are computed from settings; other weights come from the files.
    if (name === "inv_freq") return Array.from(backend.readWeight(weight, 0, 1));
    return `weight ${numberOf(weight)} of ${weight.rows} x ${weight.cols}`;
  };
  const recorder = new Recorder({
    record: (name, operands) => {
      const described = Object.entries(operands).map(([key, value]) => [key, describe(key, value)]);
      operations.push({ name, operands: Object.fromEntries(described) });
      return operations.length as Value;
    },
    keep: () => {},
    finish: (): Promise<Step> => Promise.reject(new Error("a trace cannot be run")),
  });
  const caches = (count: number) => Array.from({ length: count }, (_, handle) => ({ handle }));
  const kv = caches(lm.kvLayers.length) as unknown as KvCache[];
  lm.forward?.(recorder, kv, caches(lm.stateLayers.length) as unknown as StateCache[]);
  lm.draft?.(recorder, kv);
  const { contextLength } = lm;
  return [...operations, { name: "end", operands: { "context length": contextLength } }];
}

/** Rejects a folder if a load of the contents records another step than a load of the folder. */
function assertSameStep(
  checkpoint: Checkpoint,
  rules: GgufRules,
  own: readonly TracedOperation[],
  contents: FolderContents,
): void {
  const device = new WrittenDevice(contents);
  const expected = own.map((operation) => asWritten(operation, rules));
  let difference: string | undefined;
  try {
    const { lm } = loadModel(device, device.checkpoint(checkpoint.path), { drafts: true });
    const written = traceOf(device, lm);
    // Both have an operation "end", so the longer one differs where the other one ends.
    for (const [i, operation] of expected.entries()) {
      difference ??= compare(operation, written[i]!);
    }
  } catch (error) {
    if (!(error instanceof ForgeError)) throw error;
    difference = error.message;
  }
  if (difference === undefined) return;
  throw new ForgeError(
    "unsupported",
    `${quote(checkpoint.path)} cannot be a GGUF file of the architecture ` +
      `${quote(rules.architecture)}, which does not have all of its settings: ${difference}`,
  );
}

/** Returns an operation with the changes that the written tensors make up for. */
function asWritten({ name, operands }: TracedOperation, rules: GgufRules): TracedOperation {
  const changed = { ...operands };
  if (rules.addsToNorms && changed.weight_offset === 1) changed.weight_offset = 0;
  if (rules.reordersHeads && changed.rope !== "none" && changed.rope_layout === "half") {
    changed.rope_layout = "interleaved";
  }
  return { name, operands: changed };
}

/** Describes the first difference between two operations. */
function compare(own: TracedOperation, written: TracedOperation): string | undefined {
  if (own.name !== written.name) return `it needs ${own.name}, not ${written.name}`;
  for (const [key, value] of Object.entries(own.operands)) {
    const other = written.operands[key];
    if (isSame(value, other)) continue;
    const shown = [value, other].map((operand) => typeof operand === "object" ? "other" : operand);
    return `${own.name} needs ${key} ${shown[0]}, not ${shown[1]}`;
  }
  return undefined;
}

/** Settings and divisors are stored in float32. */
const ROUNDING = 2e-6;

function isSame(one: unknown, other: unknown): boolean {
  if (typeof one === "number" && typeof other === "number") {
    return Math.abs(one - other) <= ROUNDING * Math.abs(one);
  }
  if (!Array.isArray(one) || !Array.isArray(other)) return one === other;
  return one.length === other.length && one.every((value, i) => isSame(value, other[i]));
}

/** Device for a load of contents that are not written yet. Weights read as ones. */
class WrittenDevice implements Backend {
  readonly kind = "reference";
  readonly info = { name: "plan", threads: 0, features: [], kernels: "none" };
  readonly #contents: FolderContents;
  readonly #values = new Map<number, Float32Array<ArrayBuffer>>();
  #weights = 0;

  constructor(contents: FolderContents) {
    this.#contents = contents;
  }

  /** Returns the contents as a GGUF file at a path. */
  checkpoint(path: string): Checkpoint {
    const { architecture, fields, tensors, numbers } = this.#contents;
    const infos = [
      ...tensors,
      ...Array.from(numbers, ([name, { length }]) => ({ name, shape: [length] })),
    ].map(({ name, shape }): [string, TensorInfo] => {
      const bytes = Number(tensorBytes("F32", shape));
      return [name, { name, shape, type: "F32", file: path, offset: 0, bytes }];
    });
    const values = Object.entries(fields).map(([key, field]): [string, GgufValue] => {
      const value = field.at(-1) as GgufValue;
      return [key, field[0] === "f32" ? Math.fround(Number(value)) : value];
    });
    return {
      kind: "gguf",
      path,
      files: [path],
      tensors: new Map(infos),
      modelType: architecture,
      config: undefined,
      generationConfig: undefined,
      metadata: new Map(values),
      tokenizerJson: () => undefined,
      tokenizerConfig: () => undefined,
      chatTemplate: undefined,
    };
  }

  mapWeight(parts: readonly WeightSlice[], cols: number): Weight {
    const handle = ++this.#weights;
    const rows = parts.reduce(
      (sum, { tensor, firstRow = 0, nRows }) => sum + (nRows ?? tensor.bytes / 4 / cols - firstRow),
      0,
    );
    const values = this.#contents.numbers.get(parts[0]?.tensor.name ?? "");
    if (values !== undefined) this.#values.set(handle, values);
    return { handle, rows, cols };
  }

  uploadWeight(_type: unknown, rows: number, cols: number, data: WeightData): Weight {
    const handle = ++this.#weights;
    if (rows === 1 && typeof data !== "function") {
      this.#values.set(handle, new Float32Array(data.slice().buffer));
    }
    return { handle, rows, cols };
  }

  readWeight({ handle, cols }: Weight, _firstRow: number, nRows: number): Float32Array {
    return this.#values.get(handle) ?? new Float32Array(nRows * cols).fill(1);
  }

  memory() {
    return { total: 0, free: 0 };
  }

  createKv(): KvCache {
    throw new ForgeError("unsupported", "contents of a file have no KV cache");
  }

  createState(): StateCache {
    throw new ForgeError("unsupported", "contents of a file have no recurrent state");
  }

  record(): Recorder {
    throw new ForgeError("unsupported", "contents of a file cannot be run");
  }

  close(): void {}
}
