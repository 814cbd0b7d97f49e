import { libraries, type LibraryName } from "../../ffi/build/libraries.ts";
import { hostPlatform } from "../../ffi/build/targets.ts";
import { Random } from "./random.ts";

/**
 * True in `deno task thorough`, which runs what `deno task ok` leaves out: cases that differ from
 * others only in a number or a format, and libraries that another system's checks build, too.
 */
export const isThorough: boolean = Deno.env.get("FORGE_THOROUGH") === "1";

/**
 * Returns a share of the cases, at least one, in their order: drawn at random, so that runs of many
 * machines and days cover what one leaves out. All in `deno task thorough`.
 *
 * @param name of the stream of random numbers
 */
export function drawn<T>(name: string, cases: readonly T[], share: number): readonly T[] {
  if (isThorough) return cases;
  const order = new Random(`${name}, drawn`).permutation(cases.length);
  const places = new Set(order.slice(0, Math.ceil(cases.length * share)));
  return cases.filter((_, i) => places.has(i));
}

/**
 * The libraries that tests build; undefined for all. nvcc takes six minutes of processor time for
 * libflash_attn, so only `deno task thorough` builds it: other runs compile some of its kernels
 * (test/flash_attn/nvcc_build.ts).
 */
export const testedLibraries: readonly LibraryName[] | undefined = isThorough
  ? undefined
  : libraries.filter(({ compiler, systems }) =>
    compiler === undefined && systems.includes(hostPlatform().os)
  ).map(({ name }) => name);
