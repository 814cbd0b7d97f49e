import { findLibrary } from "../../ffi/library.ts";
import { NativeBackend } from "../../ffi/native_backend.ts";
import type { Backend, BackendKind, Meter, Quantizer } from "../backend.ts";
import { ForgeError } from "../errors.ts";

/** How `--device` and the API name devices. */
export const DEVICE_NAMES = "auto, cpu, cpu:VARIANT or reference";

/** What a device takes. */
const MAX_THREADS = 1024;

/** The libraries that can be opened, the fastest first. */
export const BACKEND_KINDS: readonly BackendKind[] = ["cpu", "reference"];

/**
 * Opens a device: `auto` (the fastest of this machine), or a kind with an optional variant after a
 * colon, such as `cpu:avx2`.
 *
 * @param threads threads that compute; 0 for one a core
 * @throws {ForgeError} `usage` for a name that is no device, or threads out of range; `not_found` or
 * `device` when its library is missing or refuses.
 */
export function openBackend(device: string, threads = 0): Backend & Quantizer & Meter {
  if (!Number.isInteger(threads) || threads < 0 || threads > MAX_THREADS) {
    throw new ForgeError(
      "usage",
      `threads is ${threads}; valid is a whole number from 0 (one a core) to ${MAX_THREADS}`,
    );
  }
  return NativeBackend.open({ ...parseDevice(device), threads });
}

/** The library that a device needs. @throws {ForgeError} `usage` for a name that is no device. */
export function deviceKind(device: string): BackendKind {
  return parseDevice(device).kind;
}

/** Whether a library is in one of the places where it is looked for. */
export function hasLibrary(kind: BackendKind): boolean {
  return findLibrary(kind) !== undefined;
}

function parseDevice(device: string): { kind: BackendKind; selector: string } {
  const [name = "", selector = ""] = device.split(/:(.*)/s, 2);
  const kind = name === "auto" ? "cpu" : BACKEND_KINDS.find((candidate) => candidate === name);
  if (kind === undefined) {
    throw new ForgeError("usage", `unknown device "${device}"; valid are ${DEVICE_NAMES}`);
  }
  return { kind, selector };
}
