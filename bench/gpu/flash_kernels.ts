/**
 * libflash_attn on the GPU against sums in double: the calls that `test/flash_attn` makes in the
 * emulator, with SM80's kernels and, on such a device, SM90's: `flash_kernels.ts [--emulated]`.
 * Prints the lines of `lines.ts`; exits with 77 without nvcc.
 */
import { buildLibraries } from "../../build.ts";
import { findNvcc, howToInstallNvcc } from "../../ffi/build/nvcc.ts";
import { buildEmulatedFlashAttention } from "../../test/flash_attn/build.ts";
import {
  type Case,
  caseLine,
  decodeCases,
  e4m3Cases,
  forwardCases,
  maskedCases,
  randomCase,
  sanitizerCases,
} from "../../test/flash_attn/cases.ts";
import { buildGpuCases } from "../../test/flash_attn/gpu_build.ts";
import {
  assertAccurate,
  assertNearFloat,
  type Outcome,
  runCases,
} from "../../test/flash_attn/run_cases.ts";
import { Random } from "../../test/support/random.ts";
import { say } from "./lines.ts";
import { SKIPPED } from "./parts.ts";

/** Cases per process; a crash loses at most this many. */
const TOGETHER = 10;

async function main(args: readonly string[]): Promise<number> {
  const emulated = args.includes("--emulated");
  if (!emulated && await findNvcc() === undefined) {
    console.log(howToInstallNvcc);
    return SKIPPED;
  }
  const library = emulated
    ? (await buildEmulatedFlashAttention()).library
    : (await buildLibraries({ only: ["flash_attn"] })).libraries[0]?.path ?? "";
  const program = await buildGpuCases();
  Deno.env.set("FORGE_FLASH_ATTN", library);
  const random = new Random("flash attention");
  const cases: readonly Case[] = emulated ? sanitizerCases.slice(0, 4) : [
    ...([80, 90] as const).flatMap((capability) =>
      forwardCases.map((c) => ({ no_split: 1 as const, ...c, capability }))
    ),
    ...decodeCases,
    ...maskedCases,
    ...e4m3Cases,
    ...Array.from({ length: 100 }, () => randomCase(random)),
  ].filter(({ far }) => far === undefined); // sparse memory exists only on the host
  const done: Done[] = [];
  let passed = true;
  for (let from = 0; from < cases.length; from += TOGETHER) {
    passed = await check(program, cases.slice(from, from + TOGETHER), done) && passed;
  }
  const near = judge(`the errors of ${done.length} calls compared with float32`, () => {
    assertNearFloat(done.map(([c]) => c), done.map(([, outcome]) => outcome));
  });
  return passed && near ? 0 : 1;
}

type Done = readonly [Case, Outcome];

/** Runs cases together, or one by one after a crash. Adds the finished cases to `done`. */
async function check(program: string, cases: readonly Case[], done: Done[]): Promise<boolean> {
  let outcomes: readonly Outcome[];
  try {
    outcomes = await runCases(program, cases);
  } catch (error) {
    if (cases.length > 1) {
      let passed = true;
      for (const c of cases) passed = await check(program, [c], done) && passed;
      return passed;
    }
    return judge(cases.map(caseLine).join(), () => {
      throw error;
    });
  }
  const accurate = cases.map((c, i) =>
    judge(caseLine(c), () => {
      const outcome = outcomes[i];
      if (outcome === undefined) throw new Error("the program returned no result");
      done.push([c, outcome]);
      assertAccurate(c, outcome);
    })
  );
  return accurate.every((ok) => ok);
}

/** Reports the result of an assertion. */
function judge(name: string, assertion: () => void): boolean {
  try {
    assertion();
    say({ kind: "check", name, passed: true });
    return true;
  } catch (error) {
    const detail = String(error).replaceAll("\n", " ");
    say({ kind: "check", name, passed: false, detail });
    return false;
  }
}

if (import.meta.main) Deno.exit(await main(Deno.args));
