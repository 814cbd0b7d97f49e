/**
 * The symbols of `csrc/forge.h`, as data: a file of `abi/` for each header of `csrc/abi`.
 * `test/unit/ffi/abi_test.ts` holds the two together.
 *
 * Pointers are all `buffer`: memory the caller owns for the length of the call. Handles are
 * integers, so nothing here needs `Deno.UnsafePointer`, and `--allow-ffi` can stay scoped to the
 * library's path.
 */
import { cacheSymbols } from "./abi/caches.ts";
import { deviceSymbols } from "./abi/device.ts";
import { operationSymbols } from "./abi/operations.ts";
import { runSymbols } from "./abi/run.ts";
import { weightSymbols } from "./abi/weights.ts";

/** `FORGE_ABI_VERSION` of the headers these tables were written against. */
export const ABI_VERSION = 10;

/** The one symbol whose shape never changes; asked before any other is looked up. */
export const versionSymbol = {
  forge_abi_version: { parameters: [], result: "u32" },
} as const satisfies Deno.ForeignLibraryInterface;

/** Every function of the headers but `forge_abi_version`. */
export const symbols = {
  ...deviceSymbols,
  ...weightSymbols,
  ...cacheSymbols,
  ...operationSymbols,
  ...runSymbols,
} as const satisfies Deno.ForeignLibraryInterface;

/** The symbols of an open library. */
export type Symbols = Deno.DynamicLibrary<typeof symbols>["symbols"];
