/**
 * The devices of the operation tests: every device that the libraries of this machine offer. A new
 * backend is tested as soon as its kind is in the table.
 */
import { findLibrary, Library } from "../../ffi/library.ts";
import { NativeBackend } from "../../ffi/native_backend.ts";
import type { BackendKind } from "../../src/backend.ts";
import { Random } from "./random.ts";

/** The reference comes first: the others are compared with it. */
const kinds: readonly BackendKind[] = ["reference", "cpu", "cuda", "metal"];

/** Kinds that a machine may lack. */
const optionalKinds: readonly BackendKind[] = ["cuda", "metal"];

/** A device under test. */
export interface TestDevice {
  /** Such as `cpu:avx2`. */
  readonly name: string;
  readonly kind: BackendKind;
  /** The library's name for it. */
  readonly selector: string;
}

function devicesOf(kind: BackendKind): TestDevice[] {
  const path = findLibrary(kind);
  if (path === undefined) {
    if (!optionalKinds.includes(kind)) console.error(`skipping: there is no ${kind} library`);
    return [];
  }
  using library = Library.open(kind, path);
  return library.devices().map(({ selector }) => ({
    name: selector === "" ? kind : `${kind}:${selector}`,
    kind,
    selector,
  }));
}

/** True if a device may multiply with units that round to 16 bits. */
export function isGpu({ kind }: { readonly kind: BackendKind }): boolean {
  return kind === "cuda" || kind === "metal";
}

/** True for kernels of a processor that round what they multiply with BF16. */
export function multipliesBf16({ selector }: { readonly selector: string }): boolean {
  return /_(bf16|amx)$/.test(selector);
}

/** Kinds of devices to test, separated by commas; all if unset. */
const DEVICES_VARIABLE = "FORGE_TEST_DEVICES";

/** The devices of this machine to test. */
export const devices: readonly TestDevice[] = wantedKinds().flatMap(devicesOf);

function wantedKinds(): readonly BackendKind[] {
  const wanted = Deno.env.get(DEVICES_VARIABLE)?.split(",");
  return wanted === undefined ? kinds : kinds.filter((kind) => wanted.includes(kind));
}

/** True if the GPU is emulated, which takes as many seconds as a real one takes milliseconds. */
export const isEmulated = Deno.env.get("FORGE_TEST_EMULATED") === "1";

/** The reference device. */
export const referenceDevice: TestDevice = { name: "reference", kind: "reference", selector: "" };

/** Threads of a device unless a test says otherwise: more than one, so that work is divided. */
const defaultThreads = 2;

/** Opens a device: `using device = openDevice(...)`. */
export function openDevice(device: TestDevice, threads: number = defaultThreads): NativeBackend {
  return NativeBackend.open({ kind: device.kind, selector: device.selector, threads });
}

/**
 * Registers a test for each device; its random numbers depend only on the seed and its name.
 *
 * @param only the devices
 */
export function deviceTest(
  name: string,
  fn: (device: NativeBackend, random: Random) => Promise<void> | void,
  only: readonly TestDevice[] = devices,
): void {
  for (const device of only) {
    Deno.test(`${name} (${device.name})`, async () => {
      using backend = openDevice(device);
      await fn(backend, new Random(name));
    });
  }
}
