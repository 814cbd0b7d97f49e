/** The analysis of machine code on short texts whose loops, waits and pipes are known. */
import { assertAlmostEquals, assertEquals } from "@std/assert";
import { measureEnd, measureLoop, measureStart } from "../../bench/gpu_model/loop_measures.ts";
import { MachineCode, parseInstruction } from "../../bench/gpu_model/machine_code.ts";
import { H100 } from "../../bench/gpu_model/nvidia.ts";
import { residentBlocks } from "../../bench/gpu_model/kernel_measures.ts";

/** Writes instructions and labels as nvdisasm does. */
function code(...lines: readonly string[]): MachineCode {
  const text = lines.map((line, i) =>
    line.startsWith(".L")
      ? line
      : `        /*${(16 * i).toString(16).padStart(4, "0")}*/  ${line} ;`
  );
  return MachineCode.parse(text.join("\n"));
}

const STREAM = "LDG.E.NA.128.CONSTANT";

function measured(...lines: readonly string[]) {
  const parsed = code(...lines);
  assertEquals(parsed.loops.length, 1);
  return measureLoop(parsed, parsed.loops[0]!, H100.architecture, H100.latencies);
}

Deno.test("machine code: instructions list the registers that they read and write", () => {
  const registers = (text: string) => {
    const { reads, writes } = parseInstruction(text);
    return [reads, writes];
  };
  assertEquals(registers(`@!P0 ${STREAM} R52, desc[UR6][R8.64+0x10]`), [
    ["P0", "UR6", "R8", "R9"],
    ["R52", "R53", "R54", "R55"],
  ]);
  assertEquals(registers("ISETP.GE.U32.AND P0, PT, R3, R78, PT"), [["R3", "R78"], ["P0"]]);
  assertEquals(registers("STG.E.64 desc[UR4][R2.64], R8"), [["UR4", "R2", "R3", "R8", "R9"], []]);
  assertEquals(registers("HMMA.16816.F32 R4, R8, R12, R4"), [
    ["R8", "R9", "R10", "R11", "R12", "R13", "R4", "R5", "R6", "R7"],
    ["R4", "R5", "R6", "R7"],
  ]);
  assertEquals(registers("BRA `(.L_x_2)"), [[], []]);
});

Deno.test("machine code: loops are found with their depth, without code that is never reached", () => {
  const { loops, instructions } = code(
    "MOV R1, RZ",
    ".L_x_0:",
    "IADD3 R1, R1, 0x1, RZ",
    ".L_x_1:",
    "IADD3 R2, R2, 0x1, RZ",
    "@P1 BRA `(.L_x_1)",
    "@P0 BRA `(.L_x_0)",
    "EXIT",
    ".L_x_2:",
    "BRA `(.L_x_2)",
  );
  assertEquals(loops.map(({ depth, blocks }) => [depth, blocks.size]), [[0, 3], [1, 1]]);
  assertEquals(instructions.length, 6);
});

Deno.test("machine code: a loop that a conditional call leaves is inside another", () => {
  const { loops } = code(
    ".L_x_0:",
    "IADD3 R1, R1, 0x1, RZ",
    ".L_x_1:",
    "HMMA.16816.F32 R4, R8, R12, R4",
    "@!P0 CALL.REL.NOINC `(.L_x_2)",
    "BRA `(.L_x_1)",
    ".L_x_2:",
    "@P1 BRA `(.L_x_0)",
    "EXIT",
  );
  assertEquals(loops.map(({ depth, blocks }) => [depth, blocks.size]), [[0, 4], [1, 2]]);
});

Deno.test("machine code: loads that wait in turn, together, or an iteration ahead", () => {
  const { memory } = H100.latencies;
  const inTurn = measured(
    ".L_x_0:",
    `${STREAM} R4, desc[UR6][R2.64]`,
    "FADD R20, R20, R4",
    `${STREAM} R8, desc[UR6][R2.64+0x200]`,
    "FADD R20, R20, R8",
    "@P0 BRA `(.L_x_0)",
  );
  assertEquals([inTurn.roundTrips, inTurn.latency, inTurn.streamed], [2, 2 * memory, 1024]);
  const together = measured(
    ".L_x_0:",
    `${STREAM} R4, desc[UR6][R2.64]`,
    `${STREAM} R8, desc[UR6][R2.64+0x200]`,
    "FADD R20, R20, R4",
    "FADD R20, R20, R8",
    "@P0 BRA `(.L_x_0)",
  );
  assertEquals([together.roundTrips, together.latency], [1, memory]);
  // Three stages of asynchronous copies: each is waited for two iterations later.
  const ahead = measured(
    ".L_x_0:",
    "LDGSTS.E.BYPASS.128 [R17], desc[UR8][R12.64]",
    "LDGDEPBAR",
    "DEPBAR.LE SB0, 0x2",
    "@P0 BRA `(.L_x_0)",
  );
  assertAlmostEquals(ahead.latency, memory / 3, memory / 8);
});

Deno.test("machine code: a load after a branch on another load waits in turn", () => {
  const loop = (between: string) =>
    measured(
      ".L_x_0:",
      "LDG.E R4, desc[UR6][R2.64]",
      "FSETP.GEU.AND P1, PT, R4, 0.5, PT",
      between,
      "LDG.E R6, desc[UR6][R8.64]",
      "FFMA R10, R6, R4, R10",
      ".L_x_1:",
      "@P0 BRA `(.L_x_0)",
    ).roundTrips;
  assertEquals(loop("@!P1 BRA `(.L_x_1)"), 2);
});

Deno.test("machine code: pipes add up, and slow conversions count four times", () => {
  const { pipes } = measured(
    ".L_x_0:",
    "FFMA R1, R2, R3, R1",
    "IMAD R1, R2, R3, R1",
    "LOP3.LUT R1, R2, R3, RZ, 0xc0, !PT",
    "I2F.U8 R4, R5",
    "LDS.128 R8, [R6]",
    "HMMA.16816.F32 R12, R16, R20, R12",
    "@P0 BRA `(.L_x_0)",
  );
  assertEquals(pipes.issue, 7 / 4);
  assertEquals([pipes.fma, pipes.alu, pipes.xu, pipes.lsu], [0.25 + 0.5, 0.5, 2, 4]);
  assertAlmostEquals(pipes.tensor, 2048 / H100.architecture.rates.mma);
});

Deno.test("machine code: dependent loads before the first streamed byte are counted", () => {
  const { hops = -1 } = measureStart(
    code(
      "LDG.E R3, desc[UR6][R4.64]",
      "ISETP.GE.U32.AND P0, PT, R0, R3, PT",
      "@P0 EXIT",
      "LDG.E R8, desc[UR6][R10.64]",
      "IMAD.WIDE R12, R8, 0x10, R14",
      `${STREAM} R16, desc[UR6][R12.64]`,
      "EXIT",
    ),
    H100.latencies,
  ) ?? {};
  assertEquals(hops, 2);
});

Deno.test("machine code: bytes requested before the wait for the previous kernel are counted", () => {
  const early = (...before: readonly string[]) =>
    measureStart(
      code(...before, "ACQBULK", `${STREAM} R24, desc[UR6][R12.64]`, "EXIT"),
      H100.latencies,
    )?.early;
  const load = `${STREAM} R16, desc[UR6][R12.64]`;
  assertEquals(early(), 0);
  // The second load may be skipped.
  assertEquals(early(load, "@P0 BRA `(.L_x_0)", load, ".L_x_0:"), 2 * 32 * 16);
});

Deno.test("machine code: occupancy follows registers, shared memory and warps", () => {
  const blocks = (registers: number, threads: number, sharedBytes: number) =>
    residentBlocks({ registers, threads, sharedBytes }, H100.architecture);
  assertEquals(blocks(128, 256, 0), 2);
  assertEquals(blocks(129, 256, 0), 1);
  assertEquals(blocks(32, 128, 75 * 1024), 3);
  assertEquals(blocks(16, 64, 0), 32);
});

Deno.test("machine code: loads after the wait for the previous kernel, in turn or at once", () => {
  const load = (to: number, from: number) => `LDG.E.128 R${to}, desc[UR4][R${from}.64]`;
  const end = (...lines: readonly string[]) =>
    measureEnd(code(load(40, 2), ...lines, "EXIT"), H100.latencies);
  assertEquals(end("FADD R1, R40, R41"), undefined);
  const add = "FADD R1, R4, R8";
  assertEquals(end("ACQBULK", load(4, 2), load(8, 2), add), { instructions: 4, hops: 1 });
  assertEquals(end("ACQBULK", load(4, 2), load(8, 4), add), { instructions: 4, hops: 2 });
  // The way with the most loads; lanes that have diverged take another.
  assertEquals(
    end("ACQBULK", "BRA.DIV UR4, `(.L_x_0)", load(4, 2), "EXIT", ".L_x_0:", "WARPSYNC R1"),
    { instructions: 3, hops: 0 },
  );
  assertEquals(
    end("@P0 BRA `(.L_x_0)", "ACQBULK", load(4, 2), load(8, 2), add, "EXIT", ".L_x_0:", "ACQBULK"),
    { instructions: 4, hops: 1 },
  );
});
