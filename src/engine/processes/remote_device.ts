/**
 * Devices of other processes, as process 0 uses them: what it records and runs is sent to the
 * process of the device, which has loaded its part of the model by itself.
 */
import {
  type Backend,
  type BackendKind,
  type DeviceInfo,
  type DeviceMemory,
  type KvCache,
  type KvShape,
  type Operand,
  type OperationSink,
  type OperationTime,
  Recorder,
  type StateCache,
  type StateShape,
  type Step,
  type StepInputs,
  type StepLimits,
  type StepResult,
  type Value,
  type Weight,
  type WeightData,
  type WeightSlice,
} from "../../backend.ts";
import { ForgeError } from "../../errors.ts";
import type { JsonObject, JsonValue } from "../../formats/json.ts";
import { tensorBytes, type TensorType } from "../../formats/tensor_info.ts";
import { KV_ELEMENT_BYTES } from "../cache/memory.ts";
import { kvBytesPerToken } from "../load/plan_model.ts";
import type { Message } from "./link.ts";
import { type DeviceReport, encodeInputs, encodeOperand, type RecordedStep } from "./messages.ts";
import type { Guest } from "./rendezvous.ts";

/** Another process, and what it has been asked. */
export class RemoteProcess {
  /** The process in messages, such as `process 1 (10.0.0.7)`. */
  readonly name: string;
  readonly #guest: Guest;
  readonly #pending = new Map<number, PromiseWithResolvers<JsonObject>>();
  readonly #onLost: (error: ForgeError) => void;
  #nRequests = 0;
  #failure: ForgeError | undefined;
  #ending: Promise<void> | undefined;
  #inputs: StepInputs | undefined;

  /** @param onLost called once, if the process ends or fails */
  constructor(guest: Guest, onLost: (error: ForgeError) => void) {
    this.name = guest.name;
    this.#guest = guest;
    this.#onLost = onLost;
    guest.link.listen({
      onMessage: (message) => this.#take(message),
      onEnd: (reason) => this.#lose(new ForgeError("device", `${this.name} ${reason}`)),
    });
  }

  /** Facts that it has told of its devices. */
  get devices(): readonly JsonObject[] {
    return this.#guest.devices;
  }

  /** @throws {ForgeError} `device` once the process, or its group, has failed */
  check(): void {
    if (this.#failure !== undefined) throw this.#failure;
  }

  post(body: JsonObject, bytes?: Uint8Array<ArrayBuffer>): void {
    if (this.#failure === undefined) this.#guest.link.send(body, bytes);
  }

  /** Sends a message and returns its answer. @throws {ForgeError} the error of the process */
  async call(body: JsonObject, bytes?: Uint8Array<ArrayBuffer>): Promise<JsonObject> {
    this.check();
    const id = this.#nRequests++;
    const answer = Promise.withResolvers<JsonObject>();
    this.#pending.set(id, answer);
    this.post({ ...body, id }, bytes);
    return await answer.promise;
  }

  /** Sends the inputs of a run, once for all devices of the process. */
  setInputs(inputs: StepInputs): void {
    if (this.#inputs === inputs) return;
    const { body, bytes } = encodeInputs(inputs);
    this.post(body, bytes);
    this.#inputs = inputs;
  }

  /** Ends the process if it is silent from now on. */
  watch(): void {
    this.#guest.link.watch();
  }

  /** Tells the process to end, with an error or, without a reason, because all is done. */
  async end(reason?: ForgeError): Promise<void> {
    if (this.#failure === undefined) {
      this.#fail(reason ?? new ForgeError("device", "the processes have ended"));
      this.#guest.link.send(
        reason === undefined ? { op: "end" } : { op: "abort", reason: reason.message },
      );
      this.#ending = this.#guest.link.finish();
    }
    await this.#ending;
  }

  #take({ body }: Message): void {
    const { id, error, value } = body as { id?: number; error?: JsonValue; value?: JsonObject };
    const failure = error === undefined ? undefined : this.#errorOf(error);
    const answer = id === undefined ? undefined : this.#pending.get(id);
    if (answer === undefined) {
      if (failure !== undefined) this.#lose(failure);
      return;
    }
    this.#pending.delete(id!);
    if (failure === undefined) answer.resolve(value ?? {});
    else answer.reject(failure);
  }

  #errorOf(error: JsonValue): ForgeError {
    const { code, message } = error as { code: ForgeError["code"]; message: string };
    return new ForgeError(code, `${this.name}: ${message}`);
  }

  #lose(error: ForgeError): void {
    if (this.#failure !== undefined) return;
    this.#fail(error);
    this.#guest.link.close();
    this.#onLost(error);
  }

  #fail(error: ForgeError): void {
    this.#failure = error;
    for (const { reject } of this.#pending.values()) reject(error);
    this.#pending.clear();
  }
}

/** A device of another process. Its weights and caches have numbers, from 1. */
export class RemoteDevice implements Backend {
  readonly kind: BackendKind = "cuda";
  readonly info: DeviceInfo;
  readonly #process: RemoteProcess;
  readonly #index: number;
  readonly #reader: WeightReader;
  readonly #memory: DeviceMemory;
  /** Returns each weight on a device of this process, to read it. */
  readonly #weights: (() => Weight)[] = [];
  #nObjects = 0;
  #nSteps = 0;
  #hasCaches = false;
  #reads = false;

  /**
   * @param index number of the device among those of its process
   * @param reader device of this process that reads weights
   */
  constructor(process: RemoteProcess, index: number, reader: WeightReader) {
    const { info, memory } = process.devices[index] as unknown as DeviceReport;
    this.info = info;
    this.#memory = memory;
    this.#process = process;
    this.#index = index;
    this.#reader = reader;
  }

  memory(): DeviceMemory {
    this.#process.check();
    return this.#memory;
  }

  mapWeight(
    parts: readonly WeightSlice[],
    cols: number,
    columnOrder?: Uint32Array<ArrayBuffer>,
  ): Weight {
    if (this.#reads) return this.#reader.mapWeight(parts, cols, columnOrder);
    const rows = parts.reduce((sum, part) => sum + rowsOf(part, cols), 0);
    const weight = this.#addWeight(rows, cols, () => this.#reader.mapWeight(parts, cols));
    if (columnOrder === undefined) return weight;
    const order = this.#addWeight(columnOrder.length / cols, cols, () => {
      throw new TypeError("the order of columns is not read");
    });
    return { ...weight, columnOrder: order };
  }

  /** Weights of the model are made by the process itself; tables of a step are sent. */
  uploadWeight(type: TensorType, rows: number, cols: number, data: WeightData): Weight {
    if (!this.#hasCaches) {
      return this.#addWeight(rows, cols, () => this.#reader.uploadWeight(type, rows, cols, data));
    }
    const bytes = typeof data === "function" ? this.#reading(data) : data;
    this.#post({ op: "upload", type, rows, cols }, bytes);
    return { handle: ++this.#nObjects, rows, cols };
  }

  readWeight(weight: Weight, firstRow: number, nRows: number): Float32Array {
    if (this.#reads) return this.#reader.readWeight(weight, firstRow, nRows);
    const own = this.#reading(this.#weights[weight.handle - 1]!);
    try {
      return this.#reader.readWeight(own, firstRow, nRows);
    } finally {
      this.#reader.releaseWeight(own);
    }
  }

  /** Makes data by the device that reads: the weights in between are none of this device. */
  #reading<T>(make: () => T): T {
    this.#reads = true;
    try {
      return make();
    } finally {
      this.#reads = false;
    }
  }

  #addWeight(rows: number, cols: number, own: () => Weight): Weight {
    if (this.#hasCaches) throw new TypeError("a weight of another process after its caches");
    this.#weights.push(own);
    return { handle: ++this.#nObjects, rows, cols };
  }

  /** Sends a message about a cache, the first of which says how many weights there are. */
  #addCache(body: JsonObject): number {
    if (!this.#hasCaches) {
      this.#post({ op: "weights", count: this.#nObjects });
      this.#hasCaches = true;
    }
    this.#post(body);
    return ++this.#nObjects;
  }

  createKv(shape: KvShape): KvCache {
    const handle = this.#addCache({ op: "kv", shape: { ...shape } });
    const pageBytes = shape.pageTokens * kvBytesPerToken([shape], KV_ELEMENT_BYTES[shape.type]);
    return {
      handle,
      pageBytes,
      copyPage: (from, to) => this.#post({ op: "copyPage", handle, from, to }),
      readPage: notHere,
      writePage: notHere,
    };
  }

  createState(shape: StateShape): StateCache {
    const handle = this.#addCache({ op: "state", shape: { ...shape } });
    return {
      handle,
      slotBytes: 4 * shape.rows * shape.cols,
      copySlot: (from, to) => this.#post({ op: "copySlot", handle, from, to }),
      readSlot: notHere,
      writeSlot: notHere,
    };
  }

  record(limits: StepLimits): Recorder {
    const prepare = async (recorded: RecordedStep) => {
      const step = this.#nSteps++;
      const { scratchBytes } = await this.#call({ op: "record", step, recorded: json(recorded) });
      this.#process.watch();
      return this.#step(step, scratchBytes as number);
    };
    return new Recorder(new RemoteSink(limits, prepare));
  }

  #step(step: number, scratchBytes: number): Step {
    return {
      scratchBytes,
      run: async (inputs) => {
        this.#process.setInputs(inputs);
        const { tokens } = await this.#call({ op: "run", step });
        return (tokens as number[]).map((token): StepResult => ({ token, logprob: 0, top: [] }));
      },
      read: notHere,
      nativeTime: notHere,
      profile: (enabled) => this.#post({ op: "profile", step, enabled }),
      operationTimes: (): OperationTime[] => [],
      cancel: () => {},
      release: () => this.#post({ op: "release", step }),
    };
  }

  async close(): Promise<void> {
    await this.#process.end();
  }

  #post(body: JsonObject, bytes?: Uint8Array<ArrayBuffer>): void {
    this.#process.post({ ...body, device: this.#index }, bytes);
  }

  async #call(body: JsonObject): Promise<JsonObject> {
    return await this.#process.call({ ...body, device: this.#index });
  }
}

/** Device of this process that reads weights. */
type WeightReader = Backend & { releaseWeight(weight: Weight): void };

/** Collects the operations of a step, whose values have the numbers that a library gives them. */
class RemoteSink implements OperationSink {
  readonly #limits: StepLimits;
  readonly #prepare: (step: RecordedStep) => Promise<Step>;
  readonly #operations: RecordedStep["operations"][number][] = [];
  readonly #kept: number[] = [];
  #nValues = 0;

  constructor(limits: StepLimits, prepare: (step: RecordedStep) => Promise<Step>) {
    this.#limits = limits;
    this.#prepare = prepare;
  }

  record(operation: string, operands: Readonly<Record<string, Operand>>): Value {
    const encoded = Object.entries(operands).map(([name, operand]) =>
      [name, encodeOperand(operand)] as const
    );
    this.#operations.push([operation, Object.fromEntries(encoded)]);
    const definesNone = operation === "sample" || operation === "send";
    return (definesNone ? 0 : ++this.#nValues) as Value;
  }

  keep(value: Value): void {
    this.#kept.push(value);
  }

  finish(): Promise<Step> {
    return this.#prepare({ limits: this.#limits, operations: this.#operations, kept: this.#kept });
  }
}

function rowsOf({ tensor, firstRow = 0, nRows }: WeightSlice, cols: number): number {
  if (nRows !== undefined) return nRows;
  const rowBytes = tensorBytes(tensor.type, [cols]);
  if (typeof rowBytes === "string") {
    throw new ForgeError("bad_model", `tensor "${tensor.name}": ${rowBytes}`);
  }
  return tensor.bytes / rowBytes - firstRow;
}

/** Converts a value of plain members for a message. */
function json(value: object): JsonObject {
  return value as unknown as JsonObject;
}

function notHere(): never {
  throw new ForgeError("unsupported", "the contents of other processes cannot be read or saved");
}
