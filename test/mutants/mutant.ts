/**
 * Mutants: small mistakes that a tired engineer could make, each with the tests that must notice it.
 * `deno task mutants` puts them into a copy of the tree, one at a time, and lists those that survive.
 */
import { CPU } from "./cpu.ts";
import { CUDA_HOST } from "./cuda_host.ts";
import { CUDA_KERNELS } from "./cuda_kernels.ts";
import { FLASH_ATTN } from "./flash_attn.ts";
import { METAL } from "./metal.ts";
import { TYPESCRIPT } from "./typescript.ts";

/** Files of tests, of which one test at least must fail. */
export interface TestCheck {
  readonly tests: readonly string[];
  /** Part of the names of the tests to run. @default all of the files */
  readonly filter?: string;
  /** Kinds of devices that the tests of operations run on. @default all */
  readonly devices?: string;
  /** The emulated GPU that the tests run on, in a process of their own. @default none */
  readonly gpu?: "cuda" | "metal";
  /** What the stand-in for the GPU's driver pretends. */
  readonly pretends?: Readonly<Record<string, number>>;
}

/** Tests of kernels in the emulator (`test/emulator/kernels`), of which one at least must fail. */
export interface KernelCheck {
  readonly kernelTests: readonly string[];
  /** The files of the kernels that the tests launch. */
  readonly kernels: readonly string[];
  /** The instances of templates that the tests launch. @default all of the files */
  readonly instances?: string;
  /** @default "plain" */
  readonly mode?: "plain" | "asan" | "tsan";
}

/** One mistake in one file. */
export interface Mutant {
  /** The area, and the mistake in it: `cpu/softcap-in-a-window`. */
  readonly name: string;
  readonly file: string;
  /** Occurs exactly once in the file; `test/unit/mutants_test.ts` holds the list to the sources. */
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

/** Where a mutant is: the first part of its name. */
export function areaOf({ name }: Mutant): string {
  return name.split("/")[0] ?? "";
}
