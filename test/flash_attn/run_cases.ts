/** Runs cases in the emulator and judges the results. */
import { assert, assertEquals } from "@std/assert";
import { type Case, caseLine } from "./cases.ts";

/** The result of a case. Errors are the largest differences from sums in double. */
export interface Outcome {
  readonly status: number;
  readonly error: number;
  /** Largest error beyond what rounding of weights and results explains. */
  readonly excess: number;
  /** The error of plain loops in float32, rounded to the type of the output. */
  readonly float_error: number;
  readonly lse_error: number;
  readonly lse_float_error: number;
  /** Number of written elements outside of the output's rows. */
  readonly outside_written: number;
}

const environment = {
  // Stacks of fibers are not where the sanitizer expects them. Mutants preload a library.
  ASAN_OPTIONS: "detect_leaks=0:detect_stack_use_after_return=0:verify_asan_link_order=0",
  TSAN_OPTIONS: "halt_on_error=1:report_signal_unsafe=0",
};

/**
 * Passes lines to a program and returns those that it prints; an error names the line it ended at.
 */
export async function runLines(program: string, lines: readonly string[]): Promise<string[]> {
  const process = new Deno.Command(program, {
    stdin: "piped",
    stdout: "piped",
    stderr: "piped",
    env: environment,
  }).spawn();
  const writer = process.stdin.getWriter();
  const written = writer.write(new TextEncoder().encode(`${lines.join("\n")}\n`))
    .then(() => writer.close());
  // If the program ends early, writing fails; its output gives the reason.
  const [{ success, stdout, stderr }] = await Promise.all([
    process.output(),
    written.catch(() => {}),
  ]);
  const decoder = new TextDecoder();
  const results = decoder.decode(stdout).split("\n").filter((line) => line !== "");
  assert(success, `${lines[results.length] ?? ""}\n${decoder.decode(stderr)}`);
  assertEquals(results.length, lines.length);
  return results;
}

/** Runs cases in order. */
export async function runCases(program: string, cases: readonly Case[]): Promise<Outcome[]> {
  const results = await runLines(program, cases.map(caseLine));
  return results.map((line) => JSON.parse(line) as Outcome);
}

/**
 * Fails unless every element is as accurate as the rounding of weights and results to 16 bits
 * allows. Log-sum-exps are float32; exponentials in base 2 and capped scores add a few units in the
 * last place.
 */
export function assertAccurate(c: Case, outcome: Outcome): void {
  const name = `${caseLine(c)}\n${JSON.stringify(outcome)}`;
  assertEquals(outcome.status, 0, name);
  assert(outcome.excess <= 0, name);
  assert(outcome.lse_error <= 2 * outcome.lse_float_error + 1e-5, name);
  // The rows of a sequence that is not compared may hold the same value as an untouched element.
  if (c.nan_sequence === undefined) assertEquals(outcome.outside_written, 0, name);
  else assert(outcome.outside_written <= 0, name);
}

/**
 * Fails unless the largest error of several cases of one type is at most three times the error of
 * float32 loops on the same inputs. For random cases the ratio is 1.0 to 1.3, depending on how
 * close the largest results are to a rounding border. A single case with few keys may exceed this,
 * since float32 loops do not round weights.
 */
export function assertNearFloat(cases: readonly Case[], outcomes: readonly Outcome[]): void {
  for (const dtype of ["bf16", "f16"]) {
    // Float loops round neither weights to E4M3 nor the numbers of Q8_0 to 16 bits.
    const some = outcomes.filter((_, i) =>
      (cases[i]?.dtype ?? "bf16") === dtype && cases[i]?.kv === undefined
    );
    const largest = (values: number[]) => values.reduce((a, b) => Math.max(a, b), 0);
    const ours = largest(some.map(({ error }) => error));
    const plain = largest(some.map(({ float_error }) => float_error));
    assert(ours <= 3 * plain + 1e-6, `${dtype}: ${ours}, float32 loops: ${plain}`);
  }
}
