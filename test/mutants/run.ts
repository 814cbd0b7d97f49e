/**
 * Runs mutants: `deno task mutants [NAME or AREA...] [--random N] [--jobs N] [--limit SECONDS]`.
 * Runs all mutants by default; `--list` prints their names. Prints the share of caught mutants and
 * the names of the survivors, and fails if any mutant is not caught.
 *
 * `--drawn N [FOLDER...]` judges a fresh set, which knowledge of the tests does not choose
 * (`drawn.ts`).
 */
import { parseArgs } from "node:util";
import { Random } from "../support/random.ts";
import { judgeDrawn } from "./drawn.ts";
import { areaOf, type Mutant, MUTANTS } from "./mutant.ts";
import { Tree } from "./tree.ts";

/** `broken`: the mutant does not compile, or its tests fail without it. */
type Fate = "caught" | "survived" | "broken";

interface Verdict {
  readonly mutant: Mutant;
  readonly fate: Fate;
  readonly reason: string;
}

async function judge(tree: Tree, mutant: Mutant, limitMs: number): Promise<Verdict> {
  const verdict = (fate: Fate, reason: string): Verdict => ({ mutant, fate, reason });
  try {
    await tree.build(mutant);
    if (!await tree.passesWithout(mutant, limitMs)) {
      return verdict("broken", "its tests fail without it");
    }
    return await tree.withMutant(mutant, async () => {
      await tree.build(mutant);
      const { passed, timedOut, output } = await tree.check(mutant, limitMs);
      if (passed) return verdict("survived", "its tests pass");
      if (timedOut) return verdict("caught", "its tests did not end");
      // The test compiles emulated kernels: a compile error does not count as caught.
      if (/\.(?:cpp|cuh?|h|mm):\d+:\d+: error: /.test(output)) {
        return verdict("broken", "it does not compile");
      }
      return verdict("caught", firstFailure(output));
    });
  } catch (error) {
    return verdict("broken", error instanceof Error ? error.message : String(error));
  }
}

/** Names the test of deno or of kernels that failed first. */
function firstFailure(output: string): string {
  const [, name] = /^(.+) \.\.\. FAILED/m.exec(output) ?? /^not ok (\w+):/m.exec(output) ?? [];
  return name ?? "a test fails";
}

/** Returns the mutants that the arguments name. */
function choose(names: readonly string[], count: string | undefined): readonly Mutant[] {
  const unknown = names.find((name) =>
    !MUTANTS.some((mutant) => mutant.name === name || areaOf(mutant) === name)
  );
  if (unknown !== undefined) {
    const areas = [...new Set(MUTANTS.map(areaOf))].join(", ");
    throw new Error(`no mutant or area "${unknown}"; areas are ${areas}`);
  }
  const named = MUTANTS.filter((mutant) =>
    names.length === 0 || names.includes(mutant.name) || names.includes(areaOf(mutant))
  );
  if (count === undefined) return named;
  const order = new Random("mutants").permutation(named.length).slice(0, Number(count));
  return order.flatMap((i) => named[i] ?? []);
}

function summary(verdicts: readonly Verdict[]): string {
  const lines = [...new Set(verdicts.map(({ mutant }) => areaOf(mutant)))].map((area) => {
    const own = verdicts.filter(({ mutant }) => areaOf(mutant) === area);
    const count = (fate: Fate) => own.filter((verdict) => verdict.fate === fate).length;
    const judged = count("caught") + count("survived");
    return `${area}: ${count("caught")} of ${judged} caught` +
      (count("broken") > 0 ? `, ${count("broken")} broken` : "");
  });
  const caught = verdicts.filter(({ fate }) => fate === "caught").length;
  const judged = verdicts.filter(({ fate }) => fate !== "broken").length;
  const rate = judged === 0 ? "" : ` (${(100 * caught / judged).toFixed(1)}%)`;
  const names = (fate: Fate) =>
    verdicts.filter((verdict) => verdict.fate === fate)
      .map(({ mutant, reason }) => `  ${mutant.name}: ${reason}`);
  return [
    ...lines,
    `${caught} of ${judged} caught${rate}`,
    "survived:",
    ...names("survived"),
    "broken:",
    ...names("broken"),
  ].join("\n");
}

const { values, positionals } = parseArgs({
  args: Deno.args,
  allowPositionals: true,
  options: {
    random: { type: "string" },
    jobs: { type: "string" },
    limit: { type: "string", default: "900" },
    list: { type: "boolean", default: false },
    drawn: { type: "string" },
  },
});
if (values.drawn !== undefined) {
  await judgeDrawn(Number(values.drawn), positionals);
  Deno.exit(0);
}
const chosen = choose(positionals, values.random);
if (values.list) {
  for (const { name, file } of chosen) console.log(`${name}\t${file}`);
  Deno.exit(0);
}
// Builds and tests use more than one core each.
const jobs = Number(values.jobs ?? Math.max(1, navigator.hardwareConcurrency >> 1));
const queue = [...chosen];
const verdicts: Verdict[] = [];
const work = async () => {
  using tree = await Tree.copy();
  for (let next = queue.shift(); next !== undefined; next = queue.shift()) {
    const started = performance.now();
    const verdict = await judge(tree, next, 1000 * Number(values.limit));
    verdicts.push(verdict);
    const seconds = ((performance.now() - started) / 1000).toFixed(0);
    console.log(`${verdict.fate}\t${next.name}\t${seconds} s\t${verdict.reason.split("\n")[0]}`);
  }
};
await Promise.all(Array.from({ length: Math.min(jobs, chosen.length) }, work));
console.log(`\n${summary(verdicts)}`);
Deno.exit(verdicts.every(({ fate }) => fate === "caught") ? 0 : 1);
