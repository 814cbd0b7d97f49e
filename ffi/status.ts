import { type ErrorCode, ForgeError } from "../src/errors.ts";

/** `forge_status` values of `csrc/forge.h`, by number. */
export const STATUS_NAMES = [
  "ok",
  "invalid argument",
  "bad handle",
  "out of memory",
  "input/output error",
  "unsupported",
  "cancelled",
  "device failed",
  "internal error",
] as const;

const CODES: Partial<Record<(typeof STATUS_NAMES)[number], ErrorCode>> = {
  "input/output error": "bad_model",
  unsupported: "unsupported",
  cancelled: "cancelled",
};

/**
 * Throws for any status but `FORGE_OK`. `detail` is asked for the library's own text only then.
 *
 * @throws {ForgeError} with the code that fits the status, naming the operation.
 */
export function checkStatus(status: number, operation: string, detail: () => string): void {
  if (status === 0) return;
  const name = STATUS_NAMES[status] ?? `status ${status}`;
  const text = detail() || name;
  throw new ForgeError(
    CODES[name as keyof typeof CODES] ?? "device",
    text.startsWith(`${operation}: `) ? text : `${operation}: ${text}`,
  );
}
