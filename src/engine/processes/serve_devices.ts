/** The loop of a process whose devices compute what process 0 records and runs. */
import type {
  Backend,
  KvCache,
  KvShape,
  Recorder,
  StateCache,
  StateShape,
  Step,
  StepInputs,
  Weight,
  WeightData,
} from "../../backend.ts";
import { ForgeError } from "../../errors.ts";
import type { Checkpoint } from "../../formats/checkpoint.ts";
import type { JsonObject } from "../../formats/json.ts";
import type { TensorType } from "../../formats/tensor_info.ts";
import type { ModelOptions } from "../../models/causal_lm.ts";
import { loadModel } from "../../models/registry.ts";
import type { LocalDevices } from "../load/open_backend.ts";
import type { Link, Message } from "./link.ts";
import { decodeInputs, decodeOperand, type GroupMessage, type RecordedStep } from "./messages.ts";

/** Objects of a device by their numbers, from 1. */
type RemoteObject = Weight | KvCache | StateCache;

/**
 * Computes what process 0 asks for until it says that all is done.
 *
 * @param options options of the model that do not depend on the device
 * @throws {ForgeError} the first error of this process, or `device` if process 0 has ended
 */
export async function serveDevices(
  link: Link,
  local: LocalDevices,
  checkpoint: Checkpoint,
  options: ModelOptions,
): Promise<void> {
  const { promise, resolve, reject } = Promise.withResolvers<void>();
  const devices = local.devices.map((device) => new ServedDevice(device));
  let inputs: StepInputs | undefined;

  const handle = async ({ body, bytes }: Message): Promise<JsonObject | undefined> => {
    const { op } = body;
    if (op === "end") return void resolve();
    if (op === "refuse") throw new ForgeError("device", String(body.reason));
    if (op === "abort") throw new ForgeError("device", `process 0 has failed: ${body.reason}`);
    if (op === "inputs") return void (inputs = decodeInputs({ body, bytes }));
    if (op === "group") {
      const { group } = body as unknown as { group: GroupMessage };
      await local.join({ ...group, keys: bytes });
      devices.forEach((device, i) => device.load(checkpoint, options, group, group.first + i));
      return {};
    }
    // From the first step on, process 0 is never silent for long.
    if (op === "record") link.watch();
    const device = devices[body.device as number];
    if (device === undefined) throw new ForgeError("device", `unknown message ${String(op)}`);
    return await device.handle({ body, bytes }, inputs);
  };

  const fail = (error: unknown) => {
    local.abort(String(error));
    reject(error);
  };
  link.listen({
    onMessage: (message) => {
      const { id, op } = message.body;
      handle(message).then((value) => {
        if (id !== undefined) link.send({ id, value: value ?? {} });
      }, (error) => {
        const { code, message } = error instanceof ForgeError
          ? error
          : new ForgeError("device", String(error));
        // Process 0 may try a step that does not fit with less; any other error ends this process.
        const isFinal = op !== "record";
        if (op !== "abort" && op !== "refuse") {
          link.send({ ...(isFinal ? {} : { id: id! }), error: { code, message } });
        }
        if (isFinal) fail(error);
      });
    },
    onEnd: (reason) => fail(new ForgeError("device", `process 0 (${link.address}) ${reason}`)),
  });
  try {
    await promise;
  } finally {
    await link.finish();
  }
}

/** A device of this process. */
class ServedDevice {
  readonly #device: Backend;
  readonly #objects: RemoteObject[] = [];
  readonly #steps = new Map<number, Step>();

  constructor(device: Backend) {
    this.#device = device;
  }

  /** Loads the part of a model that a device of the group holds, by its number there. */
  load(checkpoint: Checkpoint, options: ModelOptions, group: GroupMessage, number: number): void {
    const { nDevices, nStages, stageMemory: memory } = group;
    const count = nDevices / nStages;
    const rank = { index: number % count, count };
    const part = { rank, stage: { index: Math.floor(number / count), memory } };
    loadModel(this.#numbered(), checkpoint, { ...options, drafts: false, part });
  }

  /** Returns the device with weights that are added to its objects, as process 0 counts them. */
  #numbered(): Backend {
    const device = this.#device;
    // Process 0 makes no data, and so does not count the weights that are read for it.
    let makesData = false;
    const make = (data: WeightData) => {
      if (typeof data !== "function") return data;
      makesData = true;
      try {
        return data();
      } finally {
        makesData = false;
      }
    };
    const add = (weight: Weight) => {
      if (makesData) return weight;
      this.#objects.push(weight);
      if (weight.columnOrder !== undefined) this.#objects.push(weight.columnOrder);
      return weight;
    };
    return {
      kind: device.kind,
      info: device.info,
      memory: () => device.memory(),
      mapWeight: (...given) => add(device.mapWeight(...given)),
      uploadWeight: (type, rows, cols, data) =>
        add(device.uploadWeight(type, rows, cols, make(data))),
      readWeight: (...given) => device.readWeight(...given),
      createKv: (shape) => device.createKv(shape),
      createState: (shape) => device.createState(shape),
      record: (limits) => device.record(limits),
      close: () => {},
    };
  }

  async handle(
    { body, bytes }: Message,
    inputs: StepInputs | undefined,
  ): Promise<JsonObject | undefined> {
    switch (body.op) {
      case "weights":
        if (body.count === this.#objects.length) return;
        throw new ForgeError(
          "device",
          `this process has ${this.#objects.length} weights, process 0 expects ${body.count}`,
        );
      case "upload": {
        const { type, rows, cols } = body as { type: TensorType; rows: number; cols: number };
        this.#objects.push(this.#device.uploadWeight(type, rows, cols, bytes));
        return;
      }
      case "kv":
        this.#objects.push(this.#device.createKv(body.shape as unknown as KvShape));
        return;
      case "state":
        this.#objects.push(this.#device.createState(body.shape as unknown as StateShape));
        return;
      case "copyPage":
        (this.#object(body.handle) as KvCache).copyPage(Number(body.from), Number(body.to));
        return;
      case "copySlot":
        (this.#object(body.handle) as StateCache).copySlot(Number(body.from), Number(body.to));
        return;
      case "record": {
        const step = await this.#record(body.recorded as unknown as RecordedStep);
        this.#steps.set(Number(body.step), step);
        return { scratchBytes: step.scratchBytes };
      }
      case "run": {
        if (inputs === undefined) throw new ForgeError("device", "a run without inputs");
        const results = await this.#step(body.step).run(inputs);
        return { tokens: results.map((result) => "token" in result ? result.token : -1) };
      }
      case "profile":
        return this.#step(body.step).profile(body.enabled === true) as undefined;
      case "release":
        this.#step(body.step).release();
        this.#steps.delete(Number(body.step));
        return;
    }
    throw new ForgeError("device", `unknown message ${String(body.op)}`);
  }

  #record({ limits, operations, kept }: RecordedStep): Promise<Step> {
    const recorder: Recorder = this.#device.record(limits);
    for (const [name, operands] of operations) {
      const own = Object.entries(operands).map(([key, operand]) =>
        [key, decodeOperand(operand, (number) => this.#object(number))] as const
      );
      recorder.sink.record(name, Object.fromEntries(own));
    }
    for (const value of kept) recorder.sink.keep(value as Parameters<typeof recorder.sink.keep>[0]);
    return recorder.sink.finish();
  }

  #object(number: unknown): RemoteObject {
    const object = this.#objects[Number(number) - 1];
    if (object !== undefined) return object;
    throw new ForgeError("device", `process 0 named object ${number} of ${this.#objects.length}`);
  }

  #step(number: unknown): Step {
    const step = this.#steps.get(Number(number));
    if (step !== undefined) return step;
    throw new ForgeError("device", `process 0 named the unknown step ${number}`);
  }
}
