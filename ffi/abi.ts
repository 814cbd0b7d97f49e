/**
 * The symbols of `csrc/forge.h` as data, with one file in `abi/` for each header in `csrc/abi`.
 * `test/unit/ffi/abi_test.ts` compares both.
 *
 * All pointers are `buffer`: memory that the caller owns during the call. Handles are integers, so
 * nothing needs `Deno.UnsafePointer`, and `--allow-ffi` can be restricted to the library's path.
 */
import { cacheSymbols } from "./abi/caches.ts";
import { deviceSymbols } from "./abi/device.ts";
import { operationSymbols } from "./abi/operations.ts";
import { runSymbols } from "./abi/run.ts";
import { weightSymbols } from "./abi/weights.ts";

/** `FORGE_ABI_VERSION` of the headers that these tables describe. */
export const ABI_VERSION = 14;

/** The only symbol whose signature never changes; called before any other lookup. */
export const versionSymbol = {
  forge_abi_version: { parameters: [], result: "u32" },
} as const satisfies Deno.ForeignLibraryInterface;

/** All functions of the headers except `forge_abi_version`. */
export const symbols = {
  ...deviceSymbols,
  ...weightSymbols,
  ...cacheSymbols,
  ...operationSymbols,
  ...runSymbols,
} as const satisfies Deno.ForeignLibraryInterface;

/**
 * The symbols of a library as it is opened: `forge_quantize`, and `forge_devices_join`, which may
 * wait for other processes, also as calls that do not block.
 */
export const librarySymbols = {
  ...symbols,
  forge_quantize_in_background: {
    ...weightSymbols.forge_quantize,
    name: "forge_quantize",
    nonblocking: true,
  },
  forge_devices_join_in_background: {
    ...deviceSymbols.forge_devices_join,
    name: "forge_devices_join",
    nonblocking: true,
  },
} as const satisfies Deno.ForeignLibraryInterface;

/** The symbols of an open library. */
export type Symbols = Deno.DynamicLibrary<typeof librarySymbols>["symbols"];
