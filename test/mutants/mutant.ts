/**
 * Mutants: small mistakes, each with the tests that must catch it. `deno task mutants` puts them
 * into a copy of the tree, one at a time, and lists the survivors.
 */
import { CPU } from "./cpu.ts";
import { CUDA_HOST } from "./cuda_host.ts";
import { CUDA_KERNELS } from "./cuda_kernels.ts";
import { FLASH_ATTN } from "./flash_attn.ts";
import { METAL } from "./metal.ts";
import { TYPESCRIPT } from "./typescript.ts";

/** Test files in which at least one test must fail. */
export interface TestCheck {
  readonly tests: readonly string[];
  /** Substring of the names of the tests to run. @default all tests of the files */
  readonly filter?: string;
  /** Kinds of devices on which the tests of operations run. @default all */
  readonly devices?: string;
  /** Emulated GPU on which the tests run, in a separate process. @default none */
  readonly gpu?: "cuda" | "metal";
  /** Properties that the fake GPU driver reports. */
  readonly pretends?: Readonly<Record<string, number>>;
}

/** Kernel tests in the emulator (`test/emulator/kernels`), of which at least one must fail. */
export interface KernelCheck {
  readonly kernelTests: readonly string[];
  /** Source files of the kernels that the tests launch. */
  readonly kernels: readonly string[];
  /** Template instances that the tests launch. @default all instances of the files */
  readonly instances?: string;
  /** @default "plain" */
  readonly mode?: "plain" | "asan" | "tsan";
}

/** A mistake in one file. */
export interface Mutant {
  /** Area and mistake: `cpu/softcap-in-a-window`. */
  readonly name: string;
  readonly file: string;
  /** Text that occurs exactly once in the file, as `test/unit/mutants_test.ts` checks. */
  readonly find: string;
  readonly replace: string;
  readonly caughtBy: TestCheck | KernelCheck;
}

/** All mutants, area by area. */
export const MUTANTS: readonly Mutant[] = [
  ...CPU,
  ...CUDA_KERNELS,
  ...CUDA_HOST,
  ...FLASH_ATTN,
  ...METAL,
  ...TYPESCRIPT,
];

/** Returns the area of a mutant: the first part of its name. */
export function areaOf({ name }: Mutant): string {
  return name.split("/")[0] ?? "";
}
