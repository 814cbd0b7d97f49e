/**
 * Devices that divide a model. Each stage of a group holds some of its layers, and the ranks of a
 * stage hold parts of their weights. All run the same steps.
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

/** A device, and its weights that stay in their files, as {@linkcode Meter} reports them. */
type Member = Backend & { streamedBytes?(): StreamedBytes };

/** Place of a device in a group. */
interface GroupPlace {
  /** Index among the devices of its stage. */
  readonly rank: number;
  readonly stage: number;
}

/** The division of a group, as its recorders and steps need it. */
interface Ranks {
  /** Number of devices of each stage. */
  readonly nRanks: number;
  /**
   * Ends the runs of all devices if other processes have some of them. Then a run is not cancelled,
   * which the others would not notice, and a failure is the end of the group.
   */
  readonly onFailure: ((error: unknown) => void) | undefined;
}

/**
 * A group of devices that have been joined. Bytes are those of each device, not of all together.
 */
export class DeviceGroup implements Device, Ranks {
  readonly kind: BackendKind;
  readonly info: DeviceInfo;
  readonly memoryBound: number | undefined;
  /** All devices, stage after stage. */
  readonly devices: readonly Member[];
  readonly nStages: number;
  readonly nRanks: number;
  readonly onFailure: ((error: unknown) => void) | undefined;
  #stageMemory: readonly number[] | undefined;

  constructor(devices: readonly Member[], nStages = 1, onFailure?: (error: unknown) => void) {
    const [first] = devices;
    if (first === undefined || devices.length % nStages !== 0) {
      throw new RangeError(`${devices.length} devices in ${nStages} stages`);
    }
    const { kind, info } = first;
    const bounds = devices.map(({ memoryBound = Infinity }) => memoryBound);
    this.devices = devices;
    this.nStages = nStages;
    this.nRanks = devices.length / nStages;
    this.onFailure = onFailure;
    this.kind = kind;
    this.memoryBound = bounds.some(Number.isFinite) ? Math.min(...bounds) : undefined;
    this.info = {
      ...info,
      name: `${devices.length} x ${info.name}`,
      threads: devices.reduce((sum, { info }) => sum + info.threads, 0),
      // Saved keys and values depend on the division of heads, not on that of layers.
      kernels: this.nRanks === 1 ? info.kernels : `${info.kernels} x ${this.nRanks}`,
    };
  }

  placeOf(device: number): GroupPlace {
    return { rank: device % this.nRanks, stage: Math.floor(device / this.nRanks) };
  }

  /** Returns the memory of the device with the least that is free. */
  memory(): DeviceMemory {
    return this.devices.map((device) => device.memory())
      .reduce((least, memory) => memory.free < least.free ? memory : least);
  }

  /**
   * Returns the bytes that each stage had free at the first call, equal ones if a device does not
   * report them. Layers are divided by them.
   */
  stageMemory(): readonly number[] {
    return this.#stageMemory ??= this.#readStageMemory();
  }

  #readStageMemory(): number[] {
    const free = this.devices.map((device) =>
      Math.min(device.memory().free, device.memoryBound ?? Infinity)
    );
    const stages = Array.from(
      { length: this.nStages },
      (_, stage) => Math.min(...free.slice(stage * this.nRanks, (stage + 1) * this.nRanks)),
    );
    return stages.every((bytes) => bytes > 0) ? stages : stages.map(() => 1);
  }

  streamedBytes(): StreamedBytes {
    const each = this.devices.map((device) => device.streamedBytes?.() ?? { all: 0, perToken: 0 });
    return each.reduce((sum, { all, perToken }) => {
      return { all: sum.all + all, perToken: sum.perToken + perToken };
    });
  }

  createKv(shape: KvShape): RankedKv {
    const { stage = 0 } = shape;
    return new RankedKv(stage, this.#ranksOf(stage).map((rank) => rank.createKv(shape)));
  }

  createState(shape: StateShape): StateCache {
    const [only, other] = this.#ranksOf(shape.stage ?? 0);
    if (other === undefined) return only!.createState(shape);
    throw new ForgeError("unsupported", "recurrent state is not divided among devices");
  }

  record(limits: StepLimits): RankedRecorder {
    const recorders = this.devices.map((device) => device.record(limits));
    return new RankedRecorder(recorders, this);
  }

  /**
   * Releases all devices. Returns when those of other processes have been told.
   *
   * @param error reason, if it is not that all is done
   */
  async close(error?: unknown): Promise<void> {
    if (error !== undefined) this.onFailure?.(error);
    await Promise.all(this.devices.map((device) => device.close()));
  }

  #ranksOf(stage: number): readonly Member[] {
    return this.devices.slice(stage * this.nRanks, (stage + 1) * this.nRanks);
  }
}

/** Returns the devices of a group, or the device. */
export function devicesOf(device: Device): readonly Device[] {
  return device instanceof DeviceGroup ? device.devices : [device];
}

/** The parts of a KV cache on the ranks. A page has the bytes of each rank, one after another. */
export class RankedKv implements KvCache {
  /** The stage that holds it. */
  readonly stage: number;
  readonly ranks: readonly KvCache[];
  readonly pageBytes: number;

  constructor(stage: number, ranks: readonly KvCache[]) {
    this.stage = stage;
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

/**
 * Recorders of the devices of a group. What is recorded through this one follows the layers, so it
 * is recorded by the ranks of the last stage.
 */
export class RankedRecorder extends Recorder {
  /** Of each device, stage after stage. */
  readonly devices: readonly Recorder[];

  constructor(devices: readonly Recorder[], ranks: Ranks) {
    super(new RankedSink(devices.map(({ sink }) => sink), ranks));
    this.devices = devices;
  }
}

/** Returns what the ranks of a stage have in common: the number of a value in their steps. */
export function common(values: readonly Value[]): Value {
  const [first] = values;
  if (first !== undefined && values.every((value) => value === first)) return first;
  throw new RangeError(`the steps of the ranks differ: ${values.join(", ")}`);
}

class RankedSink implements OperationSink {
  readonly #devices: readonly OperationSink[];
  readonly #ranks: Ranks;

  constructor(devices: readonly OperationSink[], ranks: Ranks) {
    this.#devices = devices;
    this.#ranks = ranks;
  }

  get #lastStage(): readonly OperationSink[] {
    return this.#devices.slice(-this.#ranks.nRanks);
  }

  record(operation: string, operands: Readonly<Record<string, Operand>>): Value {
    return common(this.#lastStage.map((rank) => rank.record(operation, operands)));
  }

  keep(value: Value): void {
    for (const rank of this.#lastStage) rank.keep(value);
  }

  async finish(): Promise<Step> {
    const results = await Promise.allSettled(this.#devices.map((device) => device.finish()));
    const steps = results.flatMap((result) => result.status === "fulfilled" ? [result.value] : []);
    const failed = results.find((result) => result.status === "rejected");
    if (failed === undefined) return new RankedStep(steps, this.#ranks);
    // A step that fits some devices only takes no memory there.
    for (const step of steps) step.release();
    throw failed.reason;
  }
}

/** A step of all devices. The last device samples; its results are those of the step. */
class RankedStep implements Step {
  readonly #devices: readonly Step[];
  readonly #ranks: Ranks;

  constructor(devices: readonly Step[], ranks: Ranks) {
    this.#devices = devices;
    this.#ranks = ranks;
  }

  /** The step that samples. */
  get #last(): Step {
    return this.#devices.at(-1)!;
  }

  get #isOneStage(): boolean {
    return this.#devices.length === this.#ranks.nRanks;
  }

  /** Bytes of the activations of all devices. */
  get scratchBytes(): number {
    return this.#devices.reduce((sum, { scratchBytes }) => sum + scratchBytes, 0);
  }

  /**
   * Runs the step on all devices at once. If one fails, the others are stopped, since they would
   * wait for it, and its error is thrown. Of several steps, stages run only the first, since the
   * tokens that it chooses are known to the last stage alone.
   */
  async run(asked: StepInputs): Promise<StepResult[]> {
    const inputs = this.#isOneStage ? asked : { ...asked, nSteps: 1, endTokens: undefined };
    const isSeries = (inputs.nSteps ?? 1) > 1;
    // The tokens of a series are inputs of its next steps, so that all ranks choose them, from
    // equal logits.
    const others = isSeries ? inputs : { ...inputs, outputs: inputs.outputs.map(unsampled) };
    let failure: unknown;
    const runOne = async (step: Step, inputs: StepInputs) => {
      try {
        return await step.run(inputs);
      } catch (error) {
        failure ??= error;
        this.#stop(error);
        return [];
      }
    };
    const sampling = this.#last;
    const rest = this.#devices.filter((step) => step !== sampling)
      .map((step) => runOne(step, others));
    // The device that samples begins last: it fills masks while all of them compute.
    const [results, ...copies] = await Promise.all([runOne(sampling, inputs), ...rest]);
    if (failure !== undefined) throw failure;
    if (isSeries) { for (const copy of copies) assertSameTokens(results, copy); }
    return results;
  }

  read(value: Value, cols: number, firstRow: number, nRows: number): Float32Array {
    return this.#last.read(value, cols, firstRow, nRows);
  }

  nativeTime(): number {
    return this.#last.nativeTime();
  }

  profile(enabled: boolean): void {
    for (const step of this.#devices) step.profile(enabled);
  }

  /** Returns the times of the last rank of each stage, stage after stage. */
  operationTimes(): OperationTime[] {
    return this.#devices.filter((_, i) => (i + 1) % this.#ranks.nRanks === 0)
      .flatMap((step) => step.operationTimes());
  }

  cancel(): void {
    if (this.#ranks.onFailure !== undefined) return;
    for (const step of this.#devices) step.cancel();
  }

  /** Stops the devices that wait for one that failed. */
  #stop(error: unknown): void {
    if (this.#ranks.onFailure === undefined) this.cancel();
    else this.#ranks.onFailure(error);
  }

  release(): void {
    for (const step of this.#devices) step.release();
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
