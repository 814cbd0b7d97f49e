/** Running cases in the emulator, and judging what came of them. */
import { assert, assertEquals } from "@std/assert";
import { type Case, caseLine } from "./cases.ts";

/** What became of a case. Errors are the largest differences from sums in double. */
export interface Outcome {
  readonly status: number;
  readonly error: number;
  /** By how much an element is further off than rounding of weights and results explains. */
  readonly excess: number;
  /** That of plain loops in float32, rounded to the type of the output. */
  readonly float_error: number;
  readonly lse_error: number;
  readonly lse_float_error: number;
  /** Elements outside of the output's rows that were written. */
  readonly outside_written: number;
}

const environment = {
  // Fibers are no threads: stacks are not where the sanitizer expects the end of one.
  ASAN_OPTIONS: "detect_leaks=0:detect_stack_use_after_return=0",
  TSAN_OPTIONS: "halt_on_error=1:report_signal_unsafe=0",
};

/** Runs cases one after the other; the error names the one that ended the program. */
export async function runCases(program: string, cases: readonly Case[]): Promise<Outcome[]> {
  const process = new Deno.Command(program, {
    stdin: "piped",
    stdout: "piped",
    stderr: "piped",
    env: environment,
  }).spawn();
  const writer = process.stdin.getWriter();
  const written = writer.write(new TextEncoder().encode(`${cases.map(caseLine).join("\n")}\n`))
    .then(() => writer.close());
  // A program that ends early stops reading: what it printed says why.
  const [{ success, stdout, stderr }] = await Promise.all([
    process.output(),
    written.catch(() => {}),
  ]);
  const decoder = new TextDecoder();
  const lines = decoder.decode(stdout).split("\n").filter((line) => line !== "");
  const ended = cases[lines.length];
  assert(success, `${ended === undefined ? "" : caseLine(ended)}\n${decoder.decode(stderr)}`);
  assertEquals(lines.length, cases.length);
  return lines.map((line) => JSON.parse(line) as Outcome);
}

/**
 * Whether every element is as near to the truth as the rounding of weights and results to 16 bits lets it
 * be. Log-sum-exps are float32; exponentials in base 2 and capped scores add a few units in the last
 * place.
 */
export function assertAccurate(c: Case, outcome: Outcome): void {
  const name = `${caseLine(c)}\n${JSON.stringify(outcome)}`;
  assertEquals(outcome.status, 0, name);
  assert(outcome.excess <= 0, name);
  assert(outcome.lse_error <= 2 * outcome.lse_float_error + 1e-5, name);
  // The rows of a sequence that is not compared may hold what an untouched element holds.
  if (c.nan_sequence === undefined) assertEquals(outcome.outside_written, 0, name);
  else assert(outcome.outside_written <= 0, name);
}

/**
 * Whether the largest error of several cases of one type is at most three times that of float32 loops on the
 * same inputs: of random cases it is 1.0 to 1.3 times that, by how close the largest results come to a border. Of a single case with few keys this can not be asked: float32 loops do not round weights.
 */
export function assertNearFloat(cases: readonly Case[], outcomes: readonly Outcome[]): void {
  for (const dtype of ["bf16", "f16"]) {
    const some = outcomes.filter((_, i) => (cases[i]?.dtype ?? "bf16") === dtype);
    const largest = (values: number[]) => values.reduce((a, b) => Math.max(a, b), 0);
    const ours = largest(some.map(({ error }) => error));
    const plain = largest(some.map(({ float_error }) => float_error));
    assert(ours <= 3 * plain + 1e-6, `${dtype}: ${ours}, float32 loops: ${plain}`);
  }
}
