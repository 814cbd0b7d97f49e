/**
 * nvcc's output for the kernels: registers, spills and required instructions of each, and a library
 * that exports only its header's functions. Needs no GPU.
 */
import { assert, assertEquals } from "@std/assert";
import { join } from "@std/path";
import { FlashAttention } from "./binding.ts";
import {
  copiesBeforeWait,
  DECODE_KERNELS,
  decodeBytesPerClock,
  instructionsPerMma,
  mostParts,
  predictFlash,
  predictFlashDecode,
} from "../../bench/gpu_model/flash_model.ts";
import { measureEnd } from "../../bench/gpu_model/loop_measures.ts";
import { MachineCode, parseInstruction } from "../../bench/gpu_model/machine_code.ts";
import { A100, H100, type NvidiaGpu } from "../../bench/gpu_model/nvidia.ts";
import { disassembleObject, type KernelCode } from "../emulator/nvdisasm.ts";
import {
  instructionsOf,
  instructionsPerCopy,
  instructionsPerProduct,
  loadsBeforeUse,
  narrowLoadsAfterWait,
  overlaps,
  roundTripsBeforeCopies,
  touchedInFlight,
} from "./kernel_code.ts";
import { describeKernel, type KernelReport, parseKernelReports } from "./kernel_reports.ts";
import { buildFlashAttention, compiledHeadDims, compileKernels, nvcc } from "./nvcc_build.ts";
import { isThorough } from "../support/thorough.ts";

if (nvcc === undefined) console.error("skipping: no nvcc found (CUDA_HOME, CUDA_PATH, PATH)");
const ignore = nvcc === undefined;

/**
 * Returns the kernels of an object file; undefined, with the reason printed, without disassemblers.
 */
async function kernelsOf(path: string): Promise<KernelCode[] | undefined> {
  const kernels = await disassembleObject(path);
  if (kernels === undefined) {
    console.error("skipping: nvdisasm and cuobjdump are missing, and pip cannot fetch them");
  }
  return kernels;
}

/** Compiles the kernels; returns the files in the folder of objects that end in `ending`. */
async function objectFiles(ending: string): Promise<string[]> {
  const folder = await compileKernels();
  const isCompiled = (path: string) => {
    const [, headDim] = /_(\d+)\.cu\.o/.exec(path) ?? [];
    return headDim === undefined || compiledHeadDims.includes(Number(headDim));
  };
  return ["decode", "sm80", "sm90"].flatMap((part) =>
    Array.from(Deno.readDirSync(join(folder, part)), (entry) => join(folder, part, entry.name))
  ).filter((path) => path.endsWith(ending) && isCompiled(path)).sort();
}

Deno.test({
  name: "nvcc: no kernel spills registers, no products wait for each other",
  ignore,
  async fn() {
    const texts = (await objectFiles(".cu.o.txt")).map((path) => Deno.readTextFileSync(path));
    const reports = texts.flatMap(parseKernelReports);
    const count = (test: (report: KernelReport) => boolean) => reports.filter(test).length;
    // Two types of each head_dim; SM80's kernels are also compiled for SM90; decode has two shapes
    // of each type, and one of Q8_0; instances for four numbers of parts combine them; kernels of
    // SM90 cap scores or do not, and E4M3 lacks a head_dim. Masked are SM80's, and those of decode
    // that have the shape of few rows.
    const headDims = compiledHeadDims.length;
    const ofE4m3 = compiledHeadDims.filter((headDim) => headDim !== 96).length;
    assertEquals(count(({ kernel }) => kernel === "forward_sm80"), headDims * (4 + 4));
    assertEquals(count(({ kernel }) => kernel === "decode_sm80"), headDims * (10 + 6));
    assertEquals(count(({ kernel }) => kernel === "combine_sm80"), 16);
    assertEquals(count(({ kernel }) => kernel === "forward_sm90"), headDims * 4 + ofE4m3 * 2);
    const spilling = reports.filter(({ spilled }) => spilled > 0);
    assertEquals(spilling.map(describeKernel), []);
    for (const text of texts) {
      // ptxas remarks when it serializes wgmma because of registers or control flow, and when it
      // ignores setmaxnreg because the initial number of registers is unknown.
      assert(!/serialized|C75\d\d|setmaxnreg/.test(text), text);
    }
  },
});

Deno.test({
  name: "nvcc: registers leave room for the intended number of blocks on a multiprocessor",
  ignore,
  async fn() {
    const reports = (await objectFiles(".cu.o.txt"))
      .flatMap((path) => parseKernelReports(Deno.readTextFileSync(path)));
    for (const report of reports) {
      const limits: Record<string, number> = {
        // 128 threads, two blocks; 256 threads, one block.
        forward_sm80: 256,
        decode_sm80: 256,
        // 64 to 256 threads, 1,024 of them on a multiprocessor.
        combine_sm80: 64,
        // At launch, before setmaxnreg: four warpgroups, or three.
        forward_sm90: report.numbers[0] === 64 ? 128 : 168,
      };
      assert(report.registers <= (limits[report.kernel] ?? 0), describeKernel(report));
    }
  },
});

/** Keys of a tile of SM90, by head_dim and by whether scores are capped (sm90/forward_tile.h). */
function tileKeys(symbol: string): number {
  const [, dim = "", capped = ""] = /Li(\d+)ELb(\d)E/.exec(symbol) ?? [];
  if (symbol.includes("e4m3")) return dim === "256" ? 64 : 128;
  if (dim === "64" && capped === "1") return 112;
  return { 64: 128, 96: 128, 128: 128, 192: 112, 256: 80 }[dim] ?? NaN;
}

Deno.test({
  name: "nvcc: exponentials run while products are in flight, whose registers nothing touches",
  ignore,
  async fn(t) {
    for (const path of (await objectFiles(".cu.o")).filter((one) => one.includes("/sm90/"))) {
      const kernels = await kernelsOf(path);
      if (kernels === undefined) return;
      assertEquals(kernels.length, path.includes("e4m3") ? 2 : 4, path);
      for (const { symbol, text } of kernels) {
        await t.step(symbol, () => {
          const code = instructionsOf(text);
          // Tiles with and without a mask.
          const found = overlaps(code);
          assertEquals(found.length, 2);
          for (const { ffma, ex2 } of found) {
            assert(Math.min(ffma, ex2) >= tileKeys(symbol) / 2, `${ffma} FFMA, ${ex2} EX2`);
          }
          assertEquals(touchedInFlight(code).map(({ operands }) => operands), []);
          // S of the first tile, S and O of both loops, and O of the last tile.
          const others = instructionsPerProduct(code);
          assertEquals(others.length, 6);
          const most = [6, 6, 3.2, 6, 3.2, 6];
          assert(most.every((limit, i) => (others[i] ?? NaN) <= limit), `${others}`);
        });
      }
    }
  },
});

Deno.test("an access to registers of a product in flight, and an early wait, are noticed", () => {
  const product = "HGMMA.64x8x16.F32.BF16 R24, gdesc[UR40], R24, gsb0 ;";
  const fromRegisters = "HGMMA.64x8x16.F32.BF16 R88, R4, gdesc[UR40].tnspB, R88, gsb0 ;";
  const wait = (pending: number) => `WARPGROUP.DEPBAR.LE gsb0, 0x${pending} ;`;
  const read = "FADD R9, R25, R3 ;", exponential = "MUFU.EX2 R9, R9 ;";
  const parse = (...lines: string[]) => lines.map((line) => parseInstruction(line.slice(0, -2)));
  const touched = (...lines: string[]) => touchedInFlight(parse(...lines)).length;
  assertEquals(touched(product, wait(0), read), 0);
  assertEquals(touched(product, read, wait(0)), 1);
  // Of two groups, the first is complete, the second is not.
  assertEquals(touched(product, fromRegisters, wait(1), read), 0);
  assertEquals(touched(fromRegisters, product, wait(1), read), 1);
  // The left operand may be read, but not written.
  assertEquals(touched(fromRegisters, "FADD R9, R5, R3 ;", wait(0)), 0);
  assertEquals(touched(fromRegisters, "FADD R7, R9, R3 ;", wait(0)), 1);
  assertEquals(overlaps(parse(wait(1), exponential, wait(0))), [{ ffma: 0, ex2: 1 }]);
  assertEquals(overlaps(parse(wait(1), wait(0), exponential)), [{ ffma: 0, ex2: 0 }]);
  const open = product.replace(", gsb0", "");
  assertEquals(instructionsPerProduct(parse(read, open, read, product)), [0.5]);
});

/** Runs a step for each kernel of the object files in a folder whose names begin alike. */
async function eachKernel(
  t: Deno.TestContext,
  beginning: string,
  check: (kernel: KernelCode) => void,
): Promise<void> {
  const paths = (await objectFiles(".cu.o")).filter((path) =>
    new RegExp(`/${beginning}`).test(path)
  );
  assert(paths.length > 0);
  for (const path of paths) {
    const kernels = await kernelsOf(path);
    if (kernels === undefined) return;
    for (const kernel of kernels) {
      await t.step(`${kernel.symbol} ${kernel.architecture}`, () => check(kernel));
    }
  }
}

Deno.test({
  name: "nvcc: copies of whole tiles on SM80 take few instructions",
  ignore,
  fn: (t) =>
    eachKernel(t, "sm80/forward", ({ text }) => {
      const [keys = NaN, values = NaN] = instructionsPerCopy(text);
      assert(keys <= 8 && values <= 8, `${keys}, ${values}`);
    }),
});

/**
 * Most instructions besides products, per product, by head_dim. FlashAttention-2, compiled with the
 * same nvcc, has 3.6 at 64 and 2.7 at 128.
 */
const SM80_INSTRUCTIONS: Readonly<Record<number, number>> = {
  64: 3.5,
  96: 2.5,
  128: 2.6,
  192: 1.9,
  256: 2.1,
};

/** The same with a mask, whose entries are loaded and added one by one. */
const MASKED_INSTRUCTIONS: Readonly<Record<number, number>> = {
  64: 10.9,
  96: 6.9,
  128: 7.1,
  192: 4.5,
  256: 3.6,
};

Deno.test({
  name: "nvcc: loops of SM80 have few instructions besides products",
  ignore,
  fn: (t) =>
    eachKernel(t, "sm80/forward", ({ architecture, symbol, text }) => {
      const headDim = Number(/16ELi(\d+)E/.exec(symbol)?.[1]);
      const gpu = architecture === "sm_80" ? A100 : H100;
      const others = instructionsPerMma(MachineCode.parse(text), headDim, gpu);
      assert(others <= SM80_INSTRUCTIONS[headDim]!, `${others}`);
    }),
});

Deno.test({
  name: "nvcc: masks take few instructions, and their entries are loaded together",
  ignore,
  fn: (t) =>
    eachKernel(t, "sm80/masked", ({ architecture, symbol, text }) => {
      const headDim = Number(/16ELi(\d+)E/.exec(symbol)?.[1]);
      const gpu = architecture === "sm_80" ? A100 : H100;
      const code = MachineCode.parse(text);
      const others = instructionsPerMma(code, headDim, gpu, true);
      assert(others <= MASKED_INSTRUCTIONS[headDim]!, `${others}`);
      const blocks = code.blocks.map(({ instructions }) => instructions);
      // A branch for each entry would load one at a time.
      const most = Math.max(...blocks.map((block) => loadsBeforeUse(block)));
      assert(most >= 16, `${most}`);
    }),
});

Deno.test({
  name: "nvcc: decoding copies its first keys after two round trips to memory",
  ignore,
  fn: (t) =>
    eachKernel(t, "decode/(decode|masked)", ({ architecture, text }) => {
      // From SM90 on, both kernels are launched before the kernel that they wait for ends.
      assertEquals(/\bACQBULK\b/.test(text), architecture === "sm_90");
      assertEquals(/\bPREEXIT\b/.test(text), architecture === "sm_90");
      // Early keys are requested before the wait, and queries after it.
      const code = MachineCode.parse(text);
      assertEquals(copiesBeforeWait(code), architecture === "sm_90");
      // The lengths and the sequence's row of the block table, then an entry of the table.
      assertEquals(roundTripsBeforeCopies(instructionsOf(text)), 2);
    }),
});

/** Bytes per clock and multiprocessor that a kernel must be able to read. */
function readBytesPerClock({ bandwidth, readable, multiprocessors, clock }: NvidiaGpu): number {
  return bandwidth * readable / multiprocessors / clock;
}

Deno.test({
  name: "nvcc: the instructions of decoding leave time for the bandwidth of A100 and H100",
  ignore,
  fn: (t) =>
    eachKernel(t, "decode/(decode|masked)", ({ architecture, symbol, text }) => {
      const kernel = DECODE_KERNELS.find((one) => one.symbol.test(symbol));
      // Blocks of 64 rows read the same bytes for four times as many queries.
      if (kernel === undefined) return;
      const gpu = architecture === "sm_80" ? A100 : H100;
      const headDim = Number(/16ELi(\d+)E/.exec(symbol)?.[1]);
      const bytes = decodeBytesPerClock(MachineCode.parse(text), headDim, kernel.bytes, gpu);
      assert(bytes >= readBytesPerClock(gpu), `${bytes} bytes a clock`);
    }),
});

Deno.test({
  name: "nvcc: the model expects the published speed of FlashAttention-2 and -3",
  ignore,
  async fn(t) {
    await compileKernels();
    const compared = (await predictFlash(compiledHeadDims) ?? []).filter(({ published }) =>
      published !== undefined
    );
    for (const { device, model, depth, teraflops, published } of compared) {
      await t.step(`${device} ${model} ${depth}`, () => {
        const share = teraflops / published!.teraflops;
        assert(share >= 1, `${share}`);
        // A schedule in order of length gains most from causality; more is a fault of the model.
        assert(share <= 1.35, `${share}`);
      });
    }
  },
});

Deno.test({
  name: "nvcc: the model expects decoding to read at most of the bandwidth",
  ignore,
  async fn() {
    await compileKernels();
    for (const prediction of await predictFlashDecode() ?? []) {
      const { batch, kvHeads, depth, type, limit_us, readShare } = prediction;
      // 20 us are 67 MB, 10 us are 8,192 keys of one sequence with 8 heads of BF16. Shorter reads
      // cannot make up for two launches, each of which begins 1.3 us after the one before, as
      // measured on an H200. With the 0.8 us of published measurements 10 us would be read at 85%.
      const least = limit_us > 20 ? 0.89 : limit_us > 10 ? 0.81 : 0;
      const name = `${type}, ${batch} x ${depth} keys of ${kvHeads} heads: ${readShare}`;
      assert(readShare >= least && readShare < 1, name);
    }
  },
});

/** Most instructions after the wait for parts, by the most parts of an instance. */
const COMBINE_INSTRUCTIONS: Readonly<Record<number, number>> = {
  16: 78,
  32: 118,
  64: 127,
  128: 133,
};

Deno.test({
  name: "nvcc: combining loads all parts at once, 16 bytes at a time, and has few instructions",
  ignore,
  fn: (t) =>
    eachKernel(t, "decode/combine", ({ architecture, symbol, text }) => {
      if (architecture !== "sm_90") return;
      const code = instructionsOf(text);
      assertEquals(narrowLoadsAfterWait(code), []);
      // Lanes exchange sums without shared memory and barriers.
      assertEquals(code.filter(({ name }) => /^(BAR|LDS|STS)$/.test(name)), []);
      const { hops, instructions } = measureEnd(MachineCode.parse(text), H100.latencies)!;
      assertEquals(hops, 1);
      assert(instructions <= COMBINE_INSTRUCTIONS[mostParts(symbol)]!, `${instructions}`);
    }),
});

Deno.test("round trips and narrow loads are counted", () => {
  const parse = (...lines: string[]) => lines.map(parseInstruction);
  const load = (to: number, from: number) => `LDG.E R${to}, desc[UR4][R${from}.64]`;
  const copy = (from: number) => `LDGSTS.E.BYPASS.LTC128B.128 [R90], desc[UR4][R${from}.64]`;
  const trips = (...lines: string[]) => roundTripsBeforeCopies(parse(...lines));
  assertEquals(trips(copy(2)), 0);
  assertEquals(trips(load(4, 2), load(6, 2), copy(4)), 1);
  assertEquals(trips(load(4, 2), load(6, 4), copy(6)), 2);
  // A use between two independent loads delays the second.
  assertEquals(trips(load(4, 2), "ISETP.NE.AND P0, PT, R4, RZ, PT", load(6, 2), copy(6)), 2);
  const narrow = (...lines: string[]) => narrowLoadsAfterWait(parse(...lines));
  assertEquals(narrow(load(4, 2), "ACQBULK", "LDG.E.128 R8, desc[UR4][R2.64]"), []);
  assertEquals(narrow("ACQBULK", load(4, 2)), ["LDG.E"]);
  assertEquals(narrow(load(4, 2)), ["LDG.E"]);
  const together = (...lines: string[]) => loadsBeforeUse(parse(...lines));
  const add = (from: number) => `FADD R99, R${from}, R98`;
  assertEquals(together(load(4, 2), load(6, 2), add(4), load(8, 2), add(8)), 2);
  assertEquals(together(load(4, 2), add(4), load(6, 2), add(6)), 1);
});

Deno.test({
  name: "nvcc: kernels use the instructions they are written for",
  ignore,
  async fn(t) {
    // Matrix products, the copies that feed them, and setmaxnreg.
    const wanted: Record<string, readonly string[]> = {
      sm90: ["UTMALDG", "USETMAXREG"],
      sm80: ["HMMA", "LDGSTS", "LDSM"],
      decode: ["HMMA", "LDGSTS", "LDSM"],
    };
    for (const path of await objectFiles(".cu.o")) {
      const [part = "", name = ""] = path.split("/").slice(-2);
      if (name.startsWith("combine")) continue;
      const kernels = await kernelsOf(path);
      if (kernels === undefined) return;
      await t.step(`${part}/${name}`, () => {
        for (const { architecture, text } of kernels) {
          const products = part !== "sm90" ? [] : name.includes("e4m3")
            // Of E4M3, values are transposed.
            ? ["QGMMA", "LDSM", "STSM"]
            : ["HGMMA"];
          for (const instruction of [...wanted[part] ?? [], ...products]) {
            assert(new RegExp(`\\b${instruction}\\b`).test(text), instruction);
          }
          assertEquals(architecture === "sm_90a", part === "sm90");
          // Copies of boxes say how soon L2 may give their lines up.
          for (const [copy] of text.matchAll(/\bUTMALDG[^;]*/g)) {
            assert(/, desc\[/.test(copy), copy);
          }
        }
      });
    }
  },
});

Deno.test({
  name: "nvcc: the library opens without a GPU, and reports that it finds none",
  ignore: ignore || !isThorough,
  async fn() {
    using flash = FlashAttention.open(await buildFlashAttention());
    const status = flash.deviceStatus();
    // 0 on a machine with a GPU.
    const said = flash.statusText(status);
    assert(status === 0 || said === "no CUDA device, or a driver too old for this library", said);
  },
});
