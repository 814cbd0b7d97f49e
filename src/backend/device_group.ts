/**
 * Devices that divide a model: the ranks of a group, which run the same steps on parts of the
 * weights.
 */
import type {
  Backend,
  BackendKind,
  Device,
  DeviceInfo,
  DeviceMemory,
  StreamedBytes,
} from "../backend.ts";
import { ForgeError } from "../errors.ts";
import type { KvCache, KvShape, StateCache, StateShape } from "./memory.ts";
import { type Operand, type OperationSink, Recorder } from "./recorder.ts";
import type {
  OperationTime,
  OutputRequest,
  Step,
  StepInputs,
  StepLimits,
  StepResult,
  Value,
} from "./step.ts";

/** Weights of a rank that stay in their files, as {@linkcode Meter} reports them. */
type Rank = Backend & { streamedBytes?(): StreamedBytes };

/**
 * A group of devices that have been joined. Bytes are those of each device, not of all together.
 */
export class DeviceGroup implements Device {
  readonly kind: BackendKind;
  readonly info: DeviceInfo;
  readonly memoryBound: number | undefined;
  readonly ranks: readonly Rank[];

  constructor(ranks: readonly Rank[]) {
    const [first] = ranks;
    if (first === undefined) throw new RangeError("a group without devices");
    const { kind, info } = first;
    const bounds = ranks.map(({ memoryBound = Infinity }) => memoryBound);
    this.ranks = ranks;
    this.kind = kind;
    this.memoryBound = bounds.some(Number.isFinite) ? Math.min(...bounds) : undefined;
    this.info = {
      ...info,
      name: `${ranks.length} x ${info.name}`,
      threads: ranks.reduce((sum, { info }) => sum + info.threads, 0),
      // Saved keys and values depend on their division.
      kernels: `${info.kernels} x ${ranks.length}`,
    };
  }

  /** Returns the memory of the device with the least that is free. */
  memory(): DeviceMemory {
    return this.ranks.map((rank) => rank.memory())
      .reduce((least, memory) => memory.free < least.free ? memory : least);
  }

  streamedBytes(): StreamedBytes {
    const each = this.ranks.map((rank) => rank.streamedBytes?.() ?? { all: 0, perToken: 0 });
    return each.reduce((sum, { all, perToken }) => {
      return { all: sum.all + all, perToken: sum.perToken + perToken };
    });
  }

  createKv(shape: KvShape): RankedKv {
    return new RankedKv(this.ranks.map((rank) => rank.createKv(shape)));
  }

  createState(_shape: StateShape): StateCache {
    throw new ForgeError("unsupported", "recurrent state is not divided among devices");
  }

  record(limits: StepLimits): RankedRecorder {
    return new RankedRecorder(this.ranks.map((rank) => rank.record(limits)));
  }

  close(): void {
    for (const rank of this.ranks) rank.close();
  }
}

/** Returns the devices of a group, or the device. */
export function devicesOf(device: Device): readonly Device[] {
  return device instanceof DeviceGroup ? device.ranks : [device];
}

/** The parts of a KV cache on the ranks. A page has the bytes of each rank, one after another. */
export class RankedKv implements KvCache {
  readonly ranks: readonly KvCache[];
  readonly pageBytes: number;

  constructor(ranks: readonly KvCache[]) {
    this.ranks = ranks;
    this.pageBytes = ranks.reduce((sum, { pageBytes }) => sum + pageBytes, 0);
  }

  /** Belongs to a single device; a group has none. */
  get handle(): number {
    throw new TypeError("a cache of several devices has no handle");
  }

  copyPage(from: number, to: number): void {
    for (const rank of this.ranks) rank.copyPage(from, to);
  }

  readPage(page: number): Uint8Array<ArrayBuffer> {
    const bytes = new Uint8Array(this.pageBytes);
    let at = 0;
    for (const rank of this.ranks) {
      bytes.set(rank.readPage(page), at);
      at += rank.pageBytes;
    }
    return bytes;
  }

  writePage(page: number, data: Uint8Array<ArrayBuffer>): void {
    let at = 0;
    for (const rank of this.ranks) rank.writePage(page, data.slice(at, at += rank.pageBytes));
  }
}

/** Recorders of the ranks. What is recorded through this one is recorded by each of them. */
export class RankedRecorder extends Recorder {
  readonly ranks: readonly Recorder[];

  constructor(ranks: readonly Recorder[]) {
    super(new RankedSink(ranks.map(({ sink }) => sink)));
    this.ranks = ranks;
  }
}

/** Returns what all ranks have in common: the number of a value in their steps. */
export function common(values: readonly Value[]): Value {
  const [first] = values;
  if (first !== undefined && values.every((value) => value === first)) return first;
  throw new RangeError(`the steps of the ranks differ: ${values.join(", ")}`);
}

class RankedSink implements OperationSink {
  readonly #ranks: readonly OperationSink[];

  constructor(ranks: readonly OperationSink[]) {
    this.#ranks = ranks;
  }

  record(operation: string, operands: Readonly<Record<string, Operand>>): Value {
    return common(this.#ranks.map((rank) => rank.record(operation, operands)));
  }

  keep(value: Value): void {
    for (const rank of this.#ranks) rank.keep(value);
  }

  async finish(): Promise<Step> {
    const results = await Promise.allSettled(this.#ranks.map((rank) => rank.finish()));
    const steps = results.flatMap((result) => result.status === "fulfilled" ? [result.value] : []);
    const failed = results.find((result) => result.status === "rejected");
    if (failed === undefined) return new RankedStep(steps);
    // A step that fits some devices only takes no memory there.
    for (const step of steps) step.release();
    throw failed.reason;
  }
}

/** A step of all ranks. The first rank samples; its results are those of the step. */
class RankedStep implements Step {
  readonly #ranks: readonly Step[];

  constructor(ranks: readonly Step[]) {
    this.#ranks = ranks;
  }

  get #first(): Step {
    return this.#ranks[0]!;
  }

  /** Bytes of the activations of all ranks. */
  get scratchBytes(): number {
    return this.#ranks.reduce((sum, { scratchBytes }) => sum + scratchBytes, 0);
  }

  /**
   * Runs the step on all ranks at once. If a rank fails, the others are stopped, since they would
   * wait for it, and its error is thrown.
   */
  async run(inputs: StepInputs): Promise<StepResult[]> {
    const isSeries = (inputs.nSteps ?? 1) > 1;
    // The tokens of a series are inputs of its next steps, so that all ranks choose them, from
    // equal logits.
    const others = isSeries ? inputs : { ...inputs, outputs: inputs.outputs.map(unsampled) };
    let failure: unknown;
    const runRank = async (step: Step, inputs: StepInputs) => {
      try {
        return await step.run(inputs);
      } catch (error) {
        failure ??= error;
        this.cancel();
        return [];
      }
    };
    // The first rank begins last: it fills masks while all of them compute.
    const rest = this.#ranks.slice(1).map((step) => runRank(step, others));
    const [results, ...copies] = await Promise.all([runRank(this.#first, inputs), ...rest]);
    if (failure !== undefined) throw failure;
    if (isSeries) { for (const copy of copies) assertSameTokens(results, copy); }
    return results;
  }

  read(value: Value, cols: number, firstRow: number, nRows: number): Float32Array {
    return this.#first.read(value, cols, firstRow, nRows);
  }

  nativeTime(): number {
    return this.#first.nativeTime();
  }

  profile(enabled: boolean): void {
    for (const rank of this.#ranks) rank.profile(enabled);
  }

  operationTimes(): OperationTime[] {
    return this.#first.operationTimes();
  }

  cancel(): void {
    for (const rank of this.#ranks) rank.cancel();
  }

  release(): void {
    for (const rank of this.#ranks) rank.release();
  }
}

/** Returns an output of the same row whose token nobody reads. */
function unsampled({ row, stream, position }: OutputRequest): OutputRequest {
  const off = {
    repeatPenalty: 1,
    presencePenalty: 0,
    frequencyPenalty: 0,
    topK: 0,
    topP: 1,
    minP: 0,
  };
  return {
    row,
    stream,
    position,
    sampling: { ...off, temperature: 0, seed: 0n },
    history: [],
    nTop: 0,
  };
}

function assertSameTokens(results: readonly StepResult[], copy: readonly StepResult[]): void {
  const differs = results.some((result, i) => tokenOf(result) !== tokenOf(copy[i]));
  if (!differs && results.length === copy.length) return;
  throw new ForgeError(
    "device",
    "devices of one model chose different tokens from the same logits",
  );
}

function tokenOf(result: StepResult | undefined): number | undefined {
  return result !== undefined && "token" in result ? result.token : undefined;
}
