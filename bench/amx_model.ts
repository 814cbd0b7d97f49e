/**
 * Share of the peak of Intel's AMX that products reach on paper: the instructions of their loops,
 * as compiled, over published throughputs. No processor with AMX was at hand.
 */
import { join } from "@std/path";
import { buildLibraries } from "../ffi/build/build.ts";
import { runProcess } from "../ffi/build/compiler.ts";
import { hostPlatform } from "../ffi/build/targets.ts";
import { ForgeError } from "../src/errors.ts";
import { root } from "./root.ts";

/**
 * Cycles of one core of Sapphire Rapids, from Intel's optimization reference manual: a product of
 * tiles of 16 tokens begins every 16 cycles, however many columns they have; two loads of 64 bytes,
 * one store and two vector instructions a cycle. A tile is loaded and stored by rows. All units are
 * taken to work at the same time, from the first-level cache.
 */
const CYCLES = { product: 16, load: 0.5, store: 1, vector: 0.5 } as const;

/** Bytes a cycle from the second-level cache, of the same manual. */
const SECOND_LEVEL_BYTES = 48;

/** Products of tiles for which activations are read once: those of 64 rows of a weight. */
const PRODUCTS_TOGETHER = 4;

/** Tokens of a tile, and rows of a panel. */
const TILE_ROWS = 16;

/** A loop over columns. */
export interface AmxKernel {
  readonly name: string;
  /** Pattern of its function. */
  readonly symbol: RegExp;
  /** Columns of a product of tiles, and of the widest that the processor has. */
  readonly columns: number;
  readonly mostColumns: number;
  /** Bytes of the activations of a token and those columns, before they are copied or rounded. */
  readonly activationBytes: number;
}

const tokenTile = (format: string) => new RegExp(`TokenTile<.*UnpackedFormat<${format}>, 16>`);

/** The loops of prompts. */
export const AMX_KERNELS: readonly AmxKernel[] = [
  {
    name: "BF16",
    symbol: /Tiles::multiply<true, true>/,
    columns: 32,
    mostColumns: 32,
    activationBytes: 128,
  },
  ...[
    { name: "Q8_0, IQ4_NL, IQ4_XS", format: "1u, false, 128, 255", columns: 32 },
    { name: "Q4_0", format: "1u, false, 8, 15", columns: 32 },
    { name: "Q4_1, Q4_K", format: "1u, true, 0, 15", columns: 32 },
    { name: "Q6_K", format: "2u, false, 32, 63", columns: 16 },
  ].map(({ name, format, columns }) => ({
    ...{ name, columns },
    symbol: tokenTile(format),
    mostColumns: 64,
    activationBytes: 2 * columns,
  })),
];

/** Counts for one product of tiles. */
export interface AmxCounts {
  readonly tileLoads: number;
  readonly tileStores: number;
  /** Rows of tiles and vectors that are loaded and stored. */
  readonly loads: number;
  readonly stores: number;
  /** Vector instructions that compute. */
  readonly vectors: number;
}

/** A machine instruction. */
interface Instruction {
  readonly address: string;
  readonly opcode: string;
  readonly operands: string;
}

/** Returns the machine code of a kernel's function, built before. */
async function functionOf({ name, symbol }: AmxKernel): Promise<Instruction[]> {
  const folder = "build/obj/linux-x86_64/cpu/cpu/kernels/avx512_amx";
  for (const entry of Deno.readDirSync(join(root, folder))) {
    if (!entry.name.endsWith(".o")) continue;
    const path = join(root, folder, entry.name);
    const { ok, output, errors } = await runProcess(
      ["objdump", "--disassemble", "--demangle", "--no-show-raw-insn", path],
      root,
    );
    if (!ok) throw new ForgeError("device", `objdump: ${errors.trim()}`);
    for (const body of output.split(/^(?=[0-9a-f]+ <.*>:$)/m)) {
      if (!symbol.test(body.slice(0, body.indexOf("\n")))) continue;
      return [...body.matchAll(/^ +([0-9a-f]+):\s+(\S+) *(.*)$/gm)]
        .map(([, address = "", opcode = "", operands = ""]) => ({ address, opcode, operands }));
    }
  }
  throw new ForgeError("not_found", `the kernels for AMX have no function of ${name}`);
}

/** First and last index of a loop. */
interface Loop {
  readonly begin: number;
  readonly end: number;
}

function loopsOf(code: readonly Instruction[]): Loop[] {
  const indices = new Map(code.map(({ address }, i) => [address, i]));
  return code.flatMap(({ opcode, operands }, end) => {
    const target = opcode.startsWith("j") ? /^([0-9a-f]+)/.exec(operands)?.[1] : undefined;
    const begin = target === undefined ? undefined : indices.get(target);
    return begin === undefined || begin > end ? [] : [{ begin, end }];
  });
}

const isProduct = ({ opcode }: Instruction) => opcode.startsWith("tdp");
const isConversion = ({ opcode }: Instruction) => opcode === "vcvtdq2ps";

/** Rows that a load or store of a tile moves: see TileShapes in amx_tiles.h. */
function tileRows({ operands }: Instruction, columns: number, bytes: number): number {
  return /%tmm[67]/.test(operands) ? columns * bytes / 4 : TILE_ROWS;
}

/**
 * Counts the instructions of a kernel's loop over columns. Its inner loop takes a token at a time.
 */
export async function amxCounts(kernel: AmxKernel): Promise<AmxCounts> {
  const code = await functionOf(kernel);
  const loops = loopsOf(code);
  const products = ({ begin, end }: Loop) => code.slice(begin, end + 1).filter(isProduct).length;
  const [outer] = loops.filter((loop) => products(loop) > 0)
    .sort((a, b) => products(b) - products(a) || (a.end - a.begin) - (b.end - b.begin));
  if (outer === undefined) throw new ForgeError("not_found", `${kernel.name} has no tile products`);
  const n = products(outer);
  const inner = loops.filter((loop) =>
    loop.begin > outer.begin && loop.end < outer.end &&
    code.slice(loop.begin, loop.end + 1).some(isConversion)
  );
  const isInner = (i: number) => inner.some(({ begin, end }) => begin <= i && i <= end);
  const body = code.slice(outer.begin, outer.end + 1).map((each, i) => ({
    ...each,
    at: outer.begin + i,
  }));
  // Conversions of a product: one for each token. Copies of the inner loop for another case count
  // once.
  const copies = Math.max(1, inner.length);
  const inInner = body.filter(({ at }) => isInner(at)).filter(isConversion).length / copies;
  const repeats = inInner === 0 ? 0 : n * TILE_ROWS / inInner;
  const bytes = kernel.mostColumns === 64 ? 1 : 2;
  let tileLoads = 0, tileStores = 0, loads = 0, stores = 0, vectors = 0;
  for (const each of body) {
    const times = (isInner(each.at) ? repeats / copies : 1) / n;
    const { opcode, operands } = each;
    if (opcode === "tileloadd") {
      ++tileLoads;
      loads += tileRows(each, kernel.columns, bytes) / n;
    } else if (opcode === "tilestored") {
      ++tileStores;
      stores += TILE_ROWS / n;
    } else if (opcode.startsWith("v")) {
      const isStore = opcode.startsWith("vmov") && /\)(\{.*)?$/.test(operands);
      const isMove = opcode.startsWith("vmov") || opcode.startsWith("vbroadcast");
      if (isStore) stores += times;
      else if (operands.includes("(")) loads += times;
      if (!isMove) vectors += times;
    }
  }
  return { tileLoads: tileLoads / n, tileStores: tileStores / n, loads, stores, vectors };
}

/** Cycles of a product of tiles by unit, and shares of the peak. */
export interface AmxShares {
  readonly cycles: Readonly<Record<"products" | "vectors" | "loads" | "stores", number>>;
  /** Share if all units but one wait. */
  readonly loop: number;
  /** Share if no product is computed while activations are read. */
  readonly whole: number;
  /** Share of a loop of products alone: narrow scales leave a part of each tile empty. */
  readonly most: number;
}

/** Returns what a loop of these counts reaches on paper. */
export function amxShares(kernel: AmxKernel, counts: AmxCounts): AmxShares {
  const cycles = {
    products: CYCLES.product,
    vectors: CYCLES.vector * counts.vectors,
    loads: CYCLES.load * counts.loads,
    stores: CYCLES.store * counts.stores,
  };
  const longest = Math.max(...Object.values(cycles));
  const activations = TILE_ROWS * kernel.activationBytes / SECOND_LEVEL_BYTES / PRODUCTS_TOGETHER;
  const most = kernel.columns / kernel.mostColumns;
  const share = (cycles: number) => CYCLES.product * most / cycles;
  return { cycles, loop: share(longest), whole: share(longest + activations), most };
}

/** Headings of the table, and the numbers below them. */
const COLUMNS: readonly [string, (kernel: AmxKernel, shares: AmxShares) => string][] = [
  ["columns", ({ columns }) => `${columns}`],
  ...(["products", "vectors", "loads", "stores"] as const)
    .map((unit): [string, (kernel: AmxKernel, shares: AmxShares) => string] => [
      unit,
      (_, { cycles }) => cycles[unit].toFixed(1),
    ]),
  ["loop", (_, { loop }) => percent(loop)],
  ["with activations", (_, { whole }) => percent(whole)],
  ["most by scales", (_, { most }) => percent(most)],
];

function percent(share: number): string {
  return `${(100 * share).toFixed(0)}%`;
}

/**
 * Prints the table.
 *
 * @throws {ForgeError} `unsupported` on other systems than Linux on x86-64
 */
export async function benchAmxModel(): Promise<void> {
  const { os, arch } = hostPlatform();
  if (os !== "linux" || arch !== "x86_64") {
    throw new ForgeError("unsupported", "amx-model reads machine code built on Linux for x86-64");
  }
  await buildLibraries({ only: ["cpu"] });
  console.log("AMX on paper: cycles of each unit for a product of tiles, and shares of the peak");
  const line = (name: string, cells: readonly string[]) =>
    console.log(
      [name.padEnd(20), ...cells.map((c, i) => c.padStart(COLUMNS[i]![0].length))].join("  "),
    );
  line("weights", COLUMNS.map(([heading]) => heading));
  for (const kernel of AMX_KERNELS) {
    const shares = amxShares(kernel, await amxCounts(kernel));
    line(kernel.name, COLUMNS.map(([, cell]) => cell(kernel, shares)));
  }
}
