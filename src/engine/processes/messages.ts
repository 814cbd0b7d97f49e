/** Messages between the processes that divide a model, and the inputs of steps in them. */
import type {
  Device,
  DeviceInfo,
  DeviceMemory,
  Operand,
  OutputRequest,
  StepInputs,
  StepLimits,
} from "../../backend.ts";
import { ForgeError } from "../../errors.ts";
import type { JsonObject, JsonValue } from "../../formats/json.ts";
import type { Message } from "./link.ts";

/** The part of a group that a process gets. */
export interface GroupMessage {
  readonly nDevices: number;
  readonly nStages: number;
  /** Number in the group of the first device of the process. */
  readonly first: number;
  /** Bytes that each stage has free, by which layers are divided. */
  readonly stageMemory: readonly number[];
}

/** A device as its process reports it. */
export interface DeviceReport {
  readonly info: DeviceInfo;
  readonly memory: DeviceMemory;
}

/** Returns the report of a device, of which the bound limits what is free. */
export function reportOf(device: Device): DeviceReport {
  const { total, free } = device.memory();
  return { info: device.info, memory: { total, free: Math.min(free, device.memoryBound ?? free) } };
}

/** An operand in a message: JSON has no infinite numbers, which are sent as text. */
type SentOperand = Operand | { readonly number: string };

/**
 * A step as it was recorded. Operands that have a handle are objects of the device by their number:
 * weights in the order of loading, then caches and tables.
 */
export interface RecordedStep {
  readonly limits: StepLimits;
  readonly operations: readonly (readonly [string, Readonly<Record<string, SentOperand>>])[];
  readonly kept: readonly number[];
}

/** Returns an operand as it is sent: an object as its number alone. */
export function encodeOperand(operand: Operand): SentOperand {
  if (typeof operand === "object" && "handle" in operand) return { handle: operand.handle };
  const isInfinite = typeof operand === "number" && !Number.isFinite(operand);
  return isInfinite ? { number: String(operand) } : operand;
}

/**
 * Returns the operand that {@linkcode encodeOperand} encoded.
 *
 * @param objectOf returns an object of the device by its number
 */
export function decodeOperand(
  operand: SentOperand,
  objectOf: (number: number) => Operand,
): Operand {
  if (typeof operand !== "object") return operand;
  if ("number" in operand) return Number(operand.number);
  return "handle" in operand ? objectOf(operand.handle) : operand;
}

/** Inputs that are lists of integers. */
const LISTS = [
  "tokens",
  "positions",
  "sequences",
  "parents",
  "slots",
  "keyLengths",
  "endTokens",
] as const satisfies readonly (keyof StepInputs)[];

/** Sampling parameters and requests as JSON. */
interface OutputJson {
  readonly output: Omit<OutputRequest, "sampling" | "history" | "fillMask">;
  readonly sampling: Omit<OutputRequest["sampling"], "seed" | "bias" | "mask">;
  readonly seed: string;
  /** Numbers as text, since they may be infinite. */
  readonly bias: readonly (readonly [number, string])[];
  readonly history: readonly number[];
}

/**
 * Encodes the inputs of a run for other processes.
 *
 * @throws {ForgeError} `unsupported` for inputs that only one device of a group takes
 */
export function encodeInputs(inputs: StepInputs): Message {
  const { outputs, pageTables, attentionMask, adapterScales = [], nSteps = 1 } = inputs;
  const hasMask = outputs.some(({ sampling, fillMask }) => sampling.mask ?? fillMask);
  if (attentionMask !== undefined || hasMask) {
    throw new ForgeError("unsupported", "masks are not sent to other processes");
  }
  const lists = LISTS.map((name) => inputs[name] ?? null);
  const lengths = lists.map((list) => list?.length ?? null);
  const all = [...lists.filter((list) => list !== null), ...pageTables];
  const numbers = new Int32Array(all.reduce((sum, { length }) => sum + length, 0));
  let at = 0;
  for (const list of all) {
    numbers.set(list, at);
    at += list.length;
  }
  const body = {
    op: "inputs",
    lengths,
    pages: pageTables.map(({ length }) => length),
    adapterScales: Array.from(adapterScales),
    nSteps,
    outputs: outputs.map((output) => outputJson(output) as unknown as JsonValue),
  };
  return { body, bytes: new Uint8Array(numbers.buffer) };
}

function outputJson({ sampling, history, fillMask: _, ...output }: OutputRequest): OutputJson {
  const { seed, bias = [], mask: _mask, ...parameters } = sampling;
  return {
    output,
    sampling: parameters,
    seed: String(seed),
    bias: Array.from(bias, ([id, value]) => [id, String(value)]),
    history: Array.from(history),
  };
}

/** Decodes what {@linkcode encodeInputs} returned. @throws {ForgeError} `device` otherwise */
export function decodeInputs({ body, bytes }: Message): StepInputs {
  const { lengths, pages, adapterScales, nSteps, outputs } = body as JsonObject & {
    lengths: (number | null)[];
    pages: number[];
    adapterScales: number[];
    nSteps: number;
    outputs: unknown;
  };
  const numbers = new Int32Array(bytes.buffer, 0, Math.floor(bytes.length / 4));
  let at = 0;
  const take = (length: number) => numbers.subarray(at, at += length);
  const lists = lengths.map((length) => length === null ? undefined : take(length));
  const pageTables = pages.map(take);
  if (lists.length !== LISTS.length || 4 * at !== bytes.length) {
    throw new ForgeError("device", `inputs of ${bytes.length} bytes; expected ${4 * at}`);
  }
  const named = Object.fromEntries(LISTS.map((name, i) => [name, lists[i]]));
  return {
    ...named as unknown as Pick<StepInputs, "tokens" | "positions" | "sequences">,
    pageTables,
    adapterScales: adapterScales.length === 0 ? undefined : adapterScales,
    nSteps,
    outputs: (outputs as OutputJson[]).map(({ output, sampling, seed, bias, history }) => ({
      ...output,
      history,
      sampling: {
        ...sampling,
        seed: BigInt(seed),
        bias: new Map(bias.map(([id, value]) => [id, Number(value)])),
      },
    })),
  };
}
