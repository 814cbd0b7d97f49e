/** Parses nvcc's report on each kernel (`-Xptxas -v`). */

/** One kernel for one architecture. */
export interface KernelReport {
  /** `forward_sm80`, `forward_sm90`, `decode_sm80` or `combine_sm80`. */
  readonly kernel: string;
  /** Template arguments in mangled form: the type, then numbers and flags. */
  readonly dtype: string;
  readonly numbers: readonly number[];
  readonly architecture: string;
  readonly registers: number;
  /** Bytes of register spills, stores plus loads. */
  readonly spilled: number;
}

/** A kernel in words, such as `forward_sm80 bf16 128 (sm_80)`. */
export function describeKernel(report: KernelReport): string {
  const { kernel, dtype, numbers, architecture } = report;
  return `${[kernel, dtype, ...numbers].join(" ")} (${architecture})`;
}

/**
 * Reads a report.
 *
 * @throws {Error} for an entry of an unknown kernel, or with a missing number.
 */
export function parseKernelReports(text: string): KernelReport[] {
  const entries = text.split("Compiling entry function").slice(1);
  return entries.map((entry) => {
    const name = entry.match(
      /'_ZN10flash_attn\d+(\w+_sm\d\d)INS_\d(f16|bf16|e4m3_pair)E((?:L[ib]\d+E)*)/,
    );
    const architecture = entry.match(/for '(sm_\w+)'/)?.[1];
    const spills = entry.match(/(\d+) bytes spill stores, (\d+) bytes spill loads/);
    const registers = entry.match(/Used (\d+) registers/)?.[1];
    if (!name || !architecture || !spills || !registers) {
      throw new Error(`a report that cannot be read: ${entry.slice(0, 300)}`);
    }
    return {
      kernel: name[1] ?? "",
      dtype: name[2] ?? "",
      numbers: Array.from((name[3] ?? "").matchAll(/L[ib](\d+)E/g), (match) => Number(match[1])),
      architecture,
      registers: Number(registers),
      spilled: Number(spills[1]) + Number(spills[2]),
    };
  });
}
