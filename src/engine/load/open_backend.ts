import {
  builtLibrary,
  canBuildLibraries,
  findLibrary,
  isOutdated,
  Library,
} from "../../../ffi/library.ts";
import { type GroupPart, NativeBackend } from "../../../ffi/native_backend.ts";
import {
  ATTENTION_KERNELS,
  type AttentionKernels,
  type Backend,
  type BackendKind,
  DeviceGroup,
  type Meter,
  type NumaNodes,
  PRODUCT_NUMBERS,
  type ProductNumbers,
  type Quantizer,
} from "../../backend.ts";
import { ForgeError } from "../../errors.ts";
import { isFile } from "../../formats/file.ts";
import { quote, show } from "../../formats/quote.ts";
import { MAX_DEVICES, MAX_NODES, MAX_THREADS } from "../limits.ts";
import { checkWholeNumber } from "../../formats/arguments.ts";
import type { ProcessOptions } from "../processes/rendezvous.ts";
import { type LoadOptions, resolveDivision } from "./options.ts";

export { fetchLibraries } from "../../../ffi/library.ts";

/** Names of devices, for `--device` and the API. */
const DEVICE_NAMES = "auto, cpu, cpu:VARIANT, cuda, cuda:N, metal or reference";

/** Libraries that can be opened, fastest first. */
export const BACKEND_KINDS: readonly BackendKind[] = ["cuda", "metal", "cpu", "reference"];

/** Kind of GPU of machines with this operating system. */
const GPU_KIND: BackendKind = Deno.build.os === "darwin" ? "metal" : "cuda";

/** Places of the library of NVIDIA's driver: of distributions, WSL and containers, or Windows. */
const DRIVERS = Deno.build.os === "windows"
  ? [`${Deno.env.get("SystemRoot") ?? "C:\\Windows"}\\System32\\nvcuda.dll`]
  : [
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/usr/lib64",
    "/usr/lib",
    "/usr/lib/wsl/lib",
    "/usr/local/nvidia/lib64",
    "/run/opengl-driver/lib",
  ].map((folder) => `${folder}/libcuda.so.1`);

/** Choices of a device's kernels and memory. */
interface DeviceChoices {
  /** @default "auto" */
  readonly attention?: AttentionKernels | undefined;
  /** @default "auto" */
  readonly products?: ProductNumbers | undefined;
  /** @default "auto" */
  readonly numa?: NumaNodes | undefined;
  /** Most bytes of weights, caches and activations on a CPU. @default the free memory */
  readonly memory?: number | undefined;
}

/**
 * Opens a device: `auto` for the fastest one, or a kind with an optional variant after a colon,
 * such as `cpu:avx2` or `cuda:1`.
 *
 * @param threads threads that compute; 0 for one per core
 * @throws {ForgeError} `usage` for an unknown device, or threads out of range; `not_found` or
 * `device` if its library is missing or fails; `unsupported` if it does not have the kernels.
 */
export function openBackend(
  device: string,
  threads?: number,
  choices?: DeviceChoices,
): Backend & Quantizer & Meter {
  return openNative(device, threads, choices);
}

function openNative(
  device: string,
  threads = 0,
  { attention = "auto", products = "auto", numa = "auto", memory }: DeviceChoices = {},
): NativeBackend {
  if (!Number.isInteger(threads) || threads < 0 || threads > MAX_THREADS) {
    throw new ForgeError(
      "usage",
      `threads is ${
        show(threads)
      }; valid is a whole number from 0 (one per core) to ${MAX_THREADS}`,
    );
  }
  if (!ATTENTION_KERNELS.includes(attention)) {
    throw new ForgeError(
      "usage",
      `attention is "${attention}"; valid are ${ATTENTION_KERNELS.join(", ")}`,
    );
  }
  if (!PRODUCT_NUMBERS.includes(products)) {
    throw new ForgeError(
      "usage",
      `products is "${products}"; valid are ${PRODUCT_NUMBERS.join(", ")}`,
    );
  }
  if (typeof numa === "number") {
    checkWholeNumber("numa", numa, 1, MAX_NODES);
  } else if (numa !== "auto" && numa !== "off") {
    throw new ForgeError(
      "usage",
      `numa is ${show(numa)}; valid are auto, off or a number of nodes`,
    );
  }
  if (memory !== undefined) checkWholeNumber("memory", memory, 1, Number.MAX_SAFE_INTEGER);
  const backend = device === "auto"
    ? openUsableGpu(threads) ?? NativeBackend.open({ kind: "cpu", threads })
    : NativeBackend.open({ ...parseDevice(device), threads });
  try {
    backend.setAttention(attention);
    if (products !== "auto") backend.setProducts(products);
    if (numa !== "auto") backend.setNodes(numa === "off" ? 1 : numa);
    if (memory !== undefined || backend.kind === "cpu") backend.setMemory(memory ?? 0);
    return backend;
  } catch (error) {
    backend.close();
    throw error;
  }
}

/** Devices that a model is loaded onto, of {@linkcode LoadOptions}. */
type DeviceOptions =
  & Pick<LoadOptions, "device" | "devices" | "dataParallel" | "threads">
  & Pick<LoadOptions, "tensorParallel" | "pipelineParallel">
  & DeviceChoices;

/** An open device, or a group of them. */
export type OpenDevice = (NativeBackend | DeviceGroup) & Partial<Meter>;

/** Numbers of replicas, and of the devices that divide each. */
interface DeviceCounts {
  readonly replicas: number;
  readonly parts: number;
}

/**
 * Opens the devices of a model's replicas, a group for each if several divide it. Devices on one
 * processor divide its threads and its memory.
 *
 * @throws {ForgeError} as {@linkcode deviceNames} and {@linkcode openBackend}; `unsupported` if the
 * devices cannot divide a model
 */
export function openBackends(options: DeviceOptions): OpenDevice[] {
  const { ranks, stages } = resolveDivision(options);
  const parts = ranks * stages;
  const devices = deviceNames(options, parts);
  const { length } = devices;
  if (length === 1) return [openNative(devices[0]!, options.threads, options)];
  const isShared = devices[0] === devices[1];
  const own = isShared ? divideHost(devices[0]!, length, options) : options;
  const opened: NativeBackend[] = [];
  try {
    for (const device of devices) opened.push(openNative(device, own.threads, own));
    if (parts === 1) return opened;
    return Array.from({ length: length / parts }, (_, replica) => {
      const group = opened.slice(replica * parts, (replica + 1) * parts);
      NativeBackend.join(group, stages);
      return new DeviceGroup(group, stages);
    });
  } catch (error) {
    for (const backend of opened) backend.close();
    throw error;
  }
}

/** Devices of this process in a group that several processes have. */
export interface LocalDevices {
  readonly devices: readonly NativeBackend[];
  /** Makes the devices a part of the group, once all other processes do the same. */
  join(part: GroupPart): Promise<void>;
  /** Ends the runs that wait for another process. */
  abort(reason: string): void;
  close(): void;
}

/**
 * Opens the devices of one of several processes that divide a model: those of `devices`, or as many
 * of the GPUs that it sees, by its number among the processes of its machine.
 *
 * @throws {ForgeError} `usage` for devices or numbers that do not match; as
 * {@linkcode openBackend}
 */
export function openLocalDevices(
  options: DeviceOptions & { readonly processes: ProcessOptions },
): LocalDevices {
  const { ranks, stages } = resolveDivision(options);
  const { count, localIndex = 0 } = options.processes;
  const own = ranks * stages / count;
  if (!Number.isInteger(own)) {
    throw new ForgeError(
      "usage",
      `${count} processes cannot have ${ranks * stages} devices (tensorParallel ${ranks}, ` +
        `pipelineParallel ${stages}); valid is a multiple of ${count}`,
    );
  }
  const devices = localDevices(options, own, localIndex).map((name) =>
    openNative(name, options.threads, options)
  );
  return {
    devices,
    join: (part) => NativeBackend.joinProcesses(devices, part),
    abort: (reason) => {
      for (const device of devices) device.abortGroup(reason);
    },
    close: () => {
      for (const device of devices) device.close();
    },
  };
}

/** Returns the names of `count` devices of a process. */
function localDevices(
  { device = "auto", devices }: DeviceOptions,
  count: number,
  localIndex: number,
): readonly string[] {
  const names = devices ?? [device];
  const isCuda = names.every((name) =>
    name === "auto" ? GPU_KIND === "cuda" && hasUsableGpu() : parseDevice(name).kind === "cuda"
  );
  if (!isCuda) {
    throw new ForgeError(
      "usage",
      `several processes divide a model among CUDA devices; the devices of this one are ` +
        names.map(quote).join(", "),
    );
  }
  const isNamed = devices !== undefined || !["auto", "cuda"].includes(device);
  if (isNamed) {
    if (names.length === count) return names;
    throw new ForgeError(
      "usage",
      `each process has ${count} devices, but ${names.length} are given: ${
        names.map(quote).join(", ")
      }`,
    );
  }
  using library = Library.open("cuda", findLibrary("cuda"));
  const found = library.devices().length;
  // A scheduler that gives each process GPUs of its own shows it no others.
  const first = found === count ? 0 : localIndex * count;
  if (first + count <= found) return Array.from({ length: count }, (_, i) => `cuda:${first + i}`);
  throw new ForgeError(
    "usage",
    `process ${localIndex} of this machine needs the CUDA devices ${first} to ${
      first + count - 1
    }; found ${found}`,
  );
}

/** Returns the options of each of `count` devices on one processor. */
function divideHost(device: string, count: number, options: DeviceOptions): DeviceOptions {
  const whole = openBackend(device, options.threads, options);
  try {
    const threads = Math.floor(whole.info.threads / count);
    if (whole.kind === "cpu" && threads === 0) {
      throw new ForgeError(
        "usage",
        `${whole.info.threads} threads cannot be divided among ${count} devices; valid is at most ` +
          whole.info.threads,
      );
    }
    const memory = Math.floor((options.memory ?? whole.memory().free) / count);
    return whole.kind === "cpu" ? { ...options, threads, memory } : options;
  } finally {
    whole.close();
  }
}

/**
 * Returns the name of each device, replica after replica.
 *
 * @throws {ForgeError} `usage` for options that exclude each other, devices of different kinds, or
 * a GPU named twice
 */
function deviceNames(
  { device, devices, dataParallel }: Omit<DeviceOptions, "threads">,
  parts: number,
): readonly string[] {
  if (dataParallel !== undefined) {
    checkWholeNumber("dataParallel", dataParallel, 1, MAX_DEVICES);
  }
  const asked = { replicas: dataParallel ?? 1, parts };
  if (devices === undefined) return firstDevices(device ?? "auto", asked);
  if (device !== undefined) {
    throw new ForgeError("usage", `give a device (${quote(device)}) or devices, not both`);
  }
  const list = devices.map(quote).join(", ");
  const { length } = devices;
  if (length === 0 || length > MAX_DEVICES) {
    throw new ForgeError("usage", `${length} devices are given; valid is 1 to ${MAX_DEVICES}`);
  }
  if (length % parts !== 0 || (dataParallel !== undefined && dataParallel * parts !== length)) {
    const many = dataParallel === undefined ? "a multiple of " : "";
    throw new ForgeError(
      "usage",
      `${describe(asked)} need ${many}${
        asked.replicas * parts
      } devices, but ${length} are given: ${list}`,
    );
  }
  if (length === 1) return devices;
  const parsed = devices.map(parseDevice);
  const isHost = ["cpu", "reference"].includes(parsed[0]!.kind);
  const names = new Set(devices);
  // Without an index, "cuda" is the first device.
  const isValid = isHost ? names.size === 1 : names.size === length &&
    parsed.every(({ kind, selector }) => kind === parsed[0]!.kind && selector !== "");
  if (isValid) return devices;
  throw new ForgeError(
    "usage",
    `devices are ${list}; valid are different GPUs of one kind by their index, such as ` +
      "cuda:0,cuda:1, or one processor repeated, such as cpu,cpu",
  );
}

/** Returns as many devices of the kind that a name stands for, the first ones. */
function firstDevices(device: string, asked: DeviceCounts): readonly string[] {
  const count = asked.replicas * asked.parts;
  if (count > MAX_DEVICES) {
    throw new ForgeError(
      "usage",
      `${describe(asked)} take ${count} devices; valid is ${MAX_DEVICES}`,
    );
  }
  if (count === 1) return [device];
  const { kind, selector } = device === "auto"
    ? { kind: hasUsableGpu() ? GPU_KIND : "cpu" as const, selector: "" }
    : parseDevice(device);
  if (kind === "cpu" || kind === "reference") {
    return Array<string>(count).fill(device === "auto" ? kind : device);
  }
  if (selector !== "") {
    throw new ForgeError(
      "usage",
      `${quote(device)} is one device for ${describe(asked)}; name ${count} devices, such as ` +
        `${kind}:0,${kind}:1`,
    );
  }
  using library = Library.open(kind, findLibrary(kind));
  const found = library.devices().length;
  if (found >= count) return Array.from({ length: count }, (_, i) => `${kind}:${i}`);
  throw new ForgeError(
    "usage",
    `${describe(asked)} need ${count} ${kind} devices; found ${found}`,
  );
}

/** Describes devices as in "2 replicas of 4 parts". */
function describe({ replicas, parts }: DeviceCounts): string {
  if (parts === 1) return `${replicas} replicas`;
  return `${replicas === 1 ? "1 replica" : `${replicas} replicas`} of ${parts} parts`;
}

/**
 * Returns the libraries that a device may use; the last one is required.
 *
 * @throws {ForgeError} `usage` for an unknown device.
 */
export function neededLibraries(device: string): BackendKind[] {
  if (device !== "auto") return [parseDevice(device).kind];
  const hasGpu = GPU_KIND === "metal" ||
    DRIVERS.some(isFile);
  return hasGpu ? [GPU_KIND, "cpu"] : ["cpu"];
}

/**
 * Returns the reason for which a library must be built, if any: no file was found, or the sources
 * of its interface have changed since it was built here. A package without the sources has none.
 *
 * @throws {ForgeError} `device` for a file that is not a library.
 */
export function lacksBuild(kind: BackendKind): "missing" | "outdated" | undefined {
  if (!canBuildLibraries()) return undefined;
  const path = findLibrary(kind);
  if (path === undefined) return "missing";
  return path === builtLibrary(kind) && isOutdated(kind, path) ? "outdated" : undefined;
}

/** True if a GPU is found that opens. */
function hasUsableGpu(): boolean {
  const gpu = openUsableGpu(0);
  gpu?.close();
  return gpu !== undefined;
}

/** Opens the GPU of this machine, if there is one that forge can use. */
function openUsableGpu(threads: number): NativeBackend | undefined {
  const libraryPath = findLibrary(GPU_KIND);
  if (libraryPath === undefined) return undefined;
  try {
    {
      using library = Library.open(GPU_KIND, libraryPath);
      if (library.devices().length === 0) return undefined;
    }
    return NativeBackend.open({ kind: GPU_KIND, threads, libraryPath });
  } catch (error) {
    // `forge doctor` reports the reason; so does `--device` with the name of the GPU.
    if (error instanceof ForgeError || error instanceof Deno.errors.NotCapable) return undefined;
    throw error;
  }
}

function parseDevice(device: string): { kind: BackendKind; selector: string } {
  const [name = "", selector = ""] = device.split(/:(.*)/s, 2);
  const kind = BACKEND_KINDS.find((candidate) => candidate === name);
  if (kind === undefined) {
    throw new ForgeError("usage", `unknown device "${device}"; valid are ${DEVICE_NAMES}`);
  }
  return { kind, selector };
}
