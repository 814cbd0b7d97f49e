/**
 * Memory transactions of the kernels that stream weights, from the addresses that their emulated
 * warps access: sectors of global memory, conflicts of banks, and bytes requested from L2. Limits
 * are at most 1.5 times the ideal, but for the exceptions listed with their reasons.
 */
import { assert, assertEquals } from "@std/assert";
import { tensorBytes, type TensorType } from "../../src/formats/tensor_info.ts";
import { deviceSources } from "../emulator/nvrtc.ts";
import { buildFakeDriver } from "../emulator/fake_driver/build.ts";
import { runDeno } from "../support/deno_program.ts";
import { TempFolder } from "../support/temp_folder.ts";
import { emulatedCublasLt, emulatedGpu, emulatedGpuUnavailable } from "./emulated_gpu.ts";

/** Sums over the requests of a kernel; see test/emulator/access_trace.h. */
interface Requests {
  readonly requests: number;
  readonly sectors: number;
  readonly ideal_sectors: number;
  readonly cycles: number;
  readonly ideal_cycles: number;
}

/** A line of a trace. */
interface Trace {
  readonly kernel: string;
  readonly l2_bytes: number;
  readonly global_loads: Requests;
  readonly global_stores: Requests;
  readonly shared: Requests;
}

/** Ratios to the ideal. */
interface Ratios {
  /** Sectors of global stores. */
  readonly storeSectors: number;
  /** Passes through L1's banks by global loads, and through those of shared memory. */
  readonly loadBanks: number;
  readonly sharedBanks: number;
  /** Bytes requested from L2 per byte of weights. */
  readonly l2: number;
}

const LIMIT = 1.5;

/** A product and the exceptions of its kernel. */
interface Case {
  readonly type: TensorType;
  readonly sequences: number;
  /** Tokens of each sequence; 1 to decode. */
  readonly tokens: number;
  readonly kernel: RegExp;
  /** Larger limits, each with its reason. */
  readonly exceptions?: Partial<Record<keyof Ratios, readonly [limit: number, reason: string]>>;
}

/** Weights are copied to shared memory, where no access has a conflict. */
const COPIES =
  "copies of 64 bytes of eight rows, whose starts share banks: those of 16 bytes bypass L1";
const X_FROM_L2 = "each block of 128 rows reads all of x once, 64 bytes a column for 32 tokens, " +
  "which blocks converted from 128 bytes; blocks that have parts of the columns exchange sums";

const copyBanks = (limit: number) => ({ loadBanks: [limit, COPIES] as const });

const CASES: readonly Case[] = [
  { type: "BF16", sequences: 1, tokens: 1, kernel: /^decode_gemm<FormatBF16, bf16, 0>/ },
  {
    type: "Q8_0",
    sequences: 1,
    tokens: 1,
    kernel: /^decode_gemm<FormatQ8_0, f16, 0>/,
    exceptions: copyBanks(1.9),
  },
  {
    type: "Q4_0",
    sequences: 1,
    tokens: 1,
    kernel: /^decode_gemm<FormatQ4_0, f16, 0>/,
    exceptions: copyBanks(2.8),
  },
  {
    type: "Q4_K",
    sequences: 1,
    tokens: 1,
    kernel: /^decode_gemm<FormatQ4_K, f16, 0>/,
    exceptions: copyBanks(2.8),
  },
  {
    type: "BF16",
    sequences: 32,
    tokens: 1,
    kernel: /^decode_gemm<FormatBF16, bf16, 4>/,
    exceptions: { l2: [1.7, X_FROM_L2] },
  },
  {
    type: "Q4_0",
    sequences: 32,
    tokens: 1,
    kernel: /^decode_gemm<FormatQ4_0, f16, 4>/,
    exceptions: { ...copyBanks(2), l2: [3.3, X_FROM_L2] },
  },
  {
    type: "Q4_K",
    sequences: 32,
    tokens: 1,
    kernel: /^decode_gemm<FormatQ4_K, f16, 4>/,
    exceptions: { ...copyBanks(2), l2: [3.3, X_FROM_L2] },
  },
  { type: "Q4_K", sequences: 1, tokens: 256, kernel: /^dequantize<FormatQ4_K, f16>/ },
];

/** Of a GPU that two tiles of 128 rows fill, whose columns eight blocks divide. */
const MULTIPROCESSORS = 16;
const ROWS = 256, COLS = 4096;

/** Files and instances of kernels that products of the cases' types may use. */
const KERNELS = deviceSources().map(({ name }) => name)
  .filter((name) => /embed|convert|pack|quantize|matvec|gemm|product|epilogue/.test(name))
  .filter((name) => !/^(gated|grouped)_/.test(name));
const INSTANCES =
  /^(embed<FormatF32|convert|repack|(decode_)?gemm<Format(BF16|Q4_0|Q4_K),|decode_gemm<FormatQ8_0, f16, 0>|dequantize<FormatQ4_K, f16>)/;

const ignore = emulatedGpuUnavailable() !== undefined;

/** Runs a product; returns the trace of its kernel. */
async function trace({ type, sequences, tokens, kernel }: Case): Promise<Trace> {
  using folder = new TempFolder();
  const path = folder.at("trace.jsonl");
  const { driver } = await buildFakeDriver({
    mode: "traced",
    only: KERNELS,
    instances: INSTANCES,
  });
  await runDeno(
    [
      ...["run", "-A", "--quiet", "--no-check", "test/support/trace_products.ts"],
      ...[type, `${ROWS}`, `${COLS}`, `${sequences}`, `${tokens}`],
    ],
    {
      ...await emulatedGpu({ multiprocessors: MULTIPROCESSORS }),
      ...(tokens > 1 ? await emulatedCublasLt() : {}),
      FORGE_CUDA_DRIVER: driver,
      // Which block adds up sums, and so how often they are read, depends on the order.
      FORGE_EMULATOR_SEED: "0",
      FORGE_EMULATOR_TRACE: path,
    },
  );
  const traces = Deno.readTextFileSync(path).split("\n").filter((line) => line !== "")
    .map((line) => JSON.parse(line) as Trace);
  const found = traces.findLast((one) => kernel.test(one.kernel));
  assert(found !== undefined, `no ${kernel} in ${traces.map((one) => one.kernel)}`);
  return found;
}

function ratios(found: Trace, weightBytes: number): Ratios {
  const ratio = (value: number, ideal: number) => ideal === 0 ? 1 : value / ideal;
  const { global_loads: loads, global_stores: stores, shared } = found;
  return {
    storeSectors: ratio(stores.sectors, stores.ideal_sectors),
    loadBanks: ratio(loads.cycles, loads.ideal_cycles),
    sharedBanks: ratio(shared.cycles, shared.ideal_cycles),
    l2: found.l2_bytes / weightBytes,
  };
}

for (const one of CASES) {
  Deno.test({
    name: `${one.kernel.source.slice(1)} requests at most ${LIMIT} times what it must`,
    ignore,
    fn: async () => {
      const weightBytes = Number(tensorBytes(one.type, [ROWS, COLS]));
      const measured = ratios(await trace(one), weightBytes);
      const missed = Object.entries(measured).flatMap(([name, value]) => {
        const [limit] = one.exceptions?.[name as keyof Ratios] ?? [LIMIT];
        return value <= limit ? [] : [`${name} ${value.toFixed(2)}, limit ${limit}`];
      });
      assertEquals(missed, []);
    },
  });
}
