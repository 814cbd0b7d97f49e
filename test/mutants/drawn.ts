/**
 * Draws mutants of the TypeScript sources and judges each by the tests that evaluate it. The tests
 * run in processes that stay, and a variable switches mutants on, so most take milliseconds.
 */
import { dirname, join } from "@std/path";
import { inParallel } from "../emulator/build.ts";
import { filesBelow } from "../support/checkout.ts";
import { Random } from "../support/random.ts";
import { sharedPath } from "../support/shared.ts";
import { type Switch, withSwitches } from "./switches.ts";
import {
  ANSWER_MARK,
  type JudgeRequest,
  type Loaded,
  type Recorded,
  type RecordRequest,
  type Verdict,
} from "./test_process.ts";
import { Tree } from "./tree.ts";

/** Time for the tests that judge a mutant first. Few mutants survive them, and meet all others. */
const BUDGET_MS = 20_000;
/** Time for modules to load, and for a test that is recorded. */
const PATIENCE_MS = 120_000;
/** Processes that wait for the next mutant. */
const MOST_PROCESSES = 6;

/** Files of which all tests meet a survivor, not only those that evaluate its switch. */
const MOST_WHOLE_FILES = 4;

/** A test, and the drawn switches that it evaluates. */
interface RecordedTest {
  readonly test: string;
  readonly ms: number;
  readonly evaluated: ReadonlySet<number>;
}

/** A test file; its modules evaluate some switches while they load. */
interface RecordedFile {
  readonly file: string;
  readonly evaluated: ReadonlySet<number>;
  readonly tests: readonly RecordedTest[];
}

/** A process with the tests of some files. */
class TestProcess implements Disposable {
  readonly #process: Deno.ChildProcess;
  readonly #output: ReadableStreamDefaultReader<string>;
  readonly #input: WritableStreamDefaultWriter<Uint8Array>;
  #pending = "";

  /** @param active the switch that is on while modules load */
  constructor(root: string, files: readonly string[], active = -1) {
    this.#process = new Deno.Command(Deno.execPath(), {
      args: [
        ...["run", "--allow-all", "--quiet", "--no-check", "--v8-flags=--max-old-space-size=3000"],
        ...["test/mutants/test_process.ts", String(active), ...files],
      ],
      cwd: root,
      env: { NO_COLOR: "1", FORGE_SHARED: sharedPath() },
      stdin: "piped",
      stdout: "piped",
      stderr: "null",
      // A separate process group, so that a kill also ends its children.
      detached: true,
    }).spawn();
    this.#output = this.#process.stdout.pipeThrough(new TextDecoderStream()).getReader();
    this.#input = this.#process.stdin.getWriter();
  }

  /** Returns the next answer, or undefined if the process ends or takes too long. */
  async #answer(limitMs: number): Promise<unknown> {
    const timer = setTimeout(() => this[Symbol.dispose](), limitMs);
    try {
      while (true) {
        const begin = this.#pending.indexOf(ANSWER_MARK);
        const end = begin < 0 ? -1 : this.#pending.indexOf("\n", begin);
        if (end >= 0) {
          const line = this.#pending.slice(begin + ANSWER_MARK.length, end);
          this.#pending = this.#pending.slice(end + 1);
          return JSON.parse(line);
        }
        const { value, done } = await this.#output.read();
        if (done) return undefined;
        this.#pending += value;
      }
    } finally {
      clearTimeout(timer);
    }
  }

  loaded(): Promise<Loaded | undefined> {
    return this.#answer(PATIENCE_MS) as Promise<Loaded | undefined>;
  }

  ask(request: RecordRequest, limitMs: number): Promise<Recorded | undefined>;
  ask(request: JudgeRequest, limitMs: number): Promise<Verdict | undefined>;
  async ask(request: RecordRequest | JudgeRequest, limitMs: number): Promise<unknown> {
    try {
      await this.#input.write(new TextEncoder().encode(`${JSON.stringify(request)}\n`));
    } catch {
      return undefined; // The process has ended.
    }
    return await this.#answer(limitMs);
  }

  [Symbol.dispose](): void {
    try {
      Deno.kill(-this.#process.pid, "SIGKILL");
    } catch (error) {
      if (!(error instanceof Deno.errors.NotFound || error instanceof TypeError)) throw error;
    }
  }
}

/** Puts switches into the sources of a tree; returns them all. */
function putSwitches(root: string): Switch[] {
  const all: Switch[] = [];
  for (const file of ["src", "ffi"].flatMap((folder) => filesBelow(folder, ".ts"))) {
    const path = join(root, file);
    const { source, switches } = withSwitches(file, Deno.readTextFileSync(path), all.length);
    Deno.writeTextFileSync(path, source);
    all.push(...switches);
  }
  return all;
}

/** The files with tests that run the sources in their own process. */
function testFiles(): string[] {
  return ["test/unit", "test/serve", "test/models"].flatMap((at) => filesBelow(at, "_test.ts"))
    // Tests of the sources' texts, and of builds.
    .filter((file) => dirname(file) !== "test/unit" && !file.startsWith("test/unit/build/"));
}

/** Records which of the drawn switches the tests of a file evaluate. */
async function recordFile(
  root: string,
  file: string,
  drawn: ReadonlySet<number>,
): Promise<RecordedFile> {
  using process = new TestProcess(root, [file]);
  const { tests = [], evaluated = [] } = await process.loaded() ?? {};
  const ofDrawn = (ids: readonly number[]) => new Set(ids.filter((id) => drawn.has(id)));
  const recorded: RecordedTest[] = [];
  for (const test of tests) {
    const answer = await process.ask({ record: test }, PATIENCE_MS);
    if (answer === undefined) break;
    const { passed, ms, evaluated } = answer;
    if (passed) recorded.push({ test, ms, evaluated: ofDrawn(evaluated) });
    else console.log(`left out, since it fails where tests are judged: ${test}`);
  }
  return { file, evaluated: ofDrawn(evaluated), tests: recorded };
}

/** Judges switches in a tree. */
class Judge implements Disposable {
  readonly #root: string;
  readonly #files: readonly RecordedFile[];
  /** Processes by the folder of their tests, the last used last. */
  readonly #processes = new Map<string, TestProcess>();

  constructor(root: string, files: readonly RecordedFile[]) {
    this.#root = root;
    this.#files = files;
  }

  async #processFor(folder: string): Promise<TestProcess> {
    let process = this.#processes.get(folder);
    this.#processes.delete(folder);
    if (process === undefined) {
      const [oldest] = this.#processes.keys();
      if (this.#processes.size >= MOST_PROCESSES) this.#end(oldest!);
      const files = this.#files.map(({ file }) => file).filter((file) => dirname(file) === folder);
      process = new TestProcess(this.#root, files);
      await process.loaded();
    }
    this.#processes.set(folder, process);
    return process;
  }

  #end(folder: string): void {
    this.#processes.get(folder)?.[Symbol.dispose]();
    this.#processes.delete(folder);
  }

  /** True if a test fails with a switch that is on from the start of a new process. */
  async #failsFresh(id: number, tests: readonly RecordedTest[]): Promise<boolean> {
    const names = new Set(tests.map(({ test }) => test));
    const files = this.#files.filter((one) => one.tests.some(({ test }) => names.has(test)));
    using process = new TestProcess(this.#root, files.map(({ file }) => file), id);
    if (await process.loaded() === undefined) return true;
    const verdict = await process.ask({ id, tests: [...names] }, limitOf(tests));
    return verdict === undefined || verdict.failed !== undefined;
  }

  /** Returns how the tests judge a switch. */
  async judge({ id, file }: Switch): Promise<"caught" | "survived" | "not evaluated"> {
    const nearest = this.#files
      .map((one) => ({ ...one, nearness: nearness(one.file, file) }))
      .sort((a, b) => b.nearness - a.nearness);
    const own = nearest.flatMap(({ tests }) => tests.filter(({ evaluated }) => evaluated.has(id)));
    const files = nearest.filter(({ evaluated, tests }) =>
      evaluated.has(id) || tests.some(({ evaluated }) => evaluated.has(id))
    );
    // A test may use what a module computed with the mutant earlier, and kept.
    const near = files.slice(0, MOST_WHOLE_FILES).flatMap(({ tests }) => tests);
    const all = [...new Set([...own, ...near])];
    if (files.some(({ evaluated }) => evaluated.has(id))) {
      return await this.#failsFresh(id, all) ? "caught" : "survived";
    }
    const evaluating = withinBudget(own);
    if (evaluating.length === 0) return "not evaluated";
    const byFolder = Map.groupBy(evaluating, ({ test }) => dirname(test.split(": ")[0]!));
    for (const [folder, tests] of byFolder) {
      const process = await this.#processFor(folder);
      const request = { id, tests: tests.map(({ test }) => test) };
      const verdict = await process.ask(request, limitOf(tests));
      if (verdict?.failed === undefined && verdict?.recovers) continue;
      if (verdict?.recovers) return "caught";
      // The mutant ended the process, or left traces in it, as perhaps an earlier one did.
      this.#end(folder);
      const failed = tests.filter(({ test }) => (verdict?.failed ?? test) === test);
      if (await this.#failsFresh(id, failed)) return "caught";
    }
    return await this.#failsFresh(id, all) ? "caught" : "survived";
  }

  [Symbol.dispose](): void {
    for (const folder of [...this.#processes.keys()]) this.#end(folder);
  }
}

/** Number of names in the path of a test that are those of folders or of the file of a source. */
function nearness(testFile: string, sourceFile: string): number {
  const names = testFile.replace("_test.ts", "").split("/");
  const source = sourceFile.replace(".ts", "").split("/");
  const last = source.at(-1) === names.at(-1) ? 2 : 0;
  return last + source.slice(1).filter((name) => names.includes(name)).length;
}

/** Returns tests in their order as long as they fit the budget, at least one. */
function withinBudget(tests: readonly RecordedTest[]): RecordedTest[] {
  let total = 0;
  return tests.filter(({ ms }) =>
    total === 0 || total + ms <= BUDGET_MS ? (total += ms, true) : false
  );
}

/** Time after which tests with a mutant do not end. */
function limitOf(tests: readonly RecordedTest[]): number {
  return 10_000 + 4 * tests.reduce((sum, { ms }) => sum + ms, 0);
}

/**
 * Draws mutants and prints those that no test catches: some change nothing that a test could see.
 *
 * @param folders of sources to draw from; all if empty
 */
export async function judgeDrawn(count: number, folders: readonly string[]): Promise<void> {
  using tree = await Tree.copy();
  const all = putSwitches(tree.root).filter(({ file }) =>
    folders.length === 0 || folders.some((folder) => file.startsWith(folder))
  );
  const order = new Random("drawn mutants").permutation(all.length).slice(0, count).sort((a, b) =>
    a - b
  );
  const drawn = order.map((at) => all[at]!);
  const ids = new Set(drawn.map(({ id }) => id));
  console.log(`${drawn.length} of ${all.length} mutants; recording which tests evaluate them`);
  const files = await inParallel(testFiles(), (file) => recordFile(tree.root, file, ids));
  using judge = new Judge(tree.root, files);
  const counts = { "caught": 0, "survived": 0, "not evaluated": 0 };
  for (const one of drawn) {
    const verdict = await judge.judge(one);
    counts[verdict]++;
    if (verdict === "caught") continue;
    const change = `${one.before} → ${one.after || "(removed)"}`.replaceAll(/\s+/g, " ");
    console.log(`${verdict}\t${one.file}:${one.line}\t${change.slice(0, 200)}`);
  }
  const judged = counts.caught + counts.survived;
  console.log(
    `\n${counts.caught} of ${judged} caught (${(100 * counts.caught / judged).toFixed(1)}%), ` +
      `${counts["not evaluated"]} in code that these tests do not run in their process`,
  );
}
