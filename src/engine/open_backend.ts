import { NativeBackend } from "../../ffi/native_backend.ts";
import type { Backend, BackendKind } from "../backend.ts";
import { ForgeError } from "../errors.ts";

/** How `--device` and the API name devices. */
export const DEVICE_NAMES = "auto, cpu, cpu:VARIANT or reference";

const KINDS: readonly BackendKind[] = ["cpu", "reference"];

/**
 * Opens a device: `auto` (the fastest of this machine), or a kind with an optional variant after a
 * colon, such as `cpu:avx2`.
 *
 * @param threads threads that compute; 0 for one a core
 * @throws {ForgeError} `usage` for a name that is no device; `not_found` or `device` when its library
 * is missing or refuses.
 */
export function openBackend(device: string, threads = 0): Backend {
  const [name = "", selector = ""] = device.split(/:(.*)/s, 2);
  const kind = name === "auto" ? "cpu" : KINDS.find((candidate) => candidate === name);
  if (kind === undefined) {
    throw new ForgeError("usage", `unknown device "${device}"; valid are ${DEVICE_NAMES}`);
  }
  return NativeBackend.open({ kind, selector, threads });
}
