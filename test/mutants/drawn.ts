/**
 * Draws mutants of the sources and judges each by the tests that evaluate it. The sources are built
 * once, with a switch for each drawn mutant, and the tests run in processes that stay, so most
 * mutants take milliseconds.
 */
import { dirname, extname, join, normalize } from "@std/path";
import { inParallel } from "../emulator/build.ts";
import { fakeMetalUnavailable } from "../emulator/fake_metal/build.ts";
import { filesBelow } from "../support/checkout.ts";
import { Random } from "../support/random.ts";
import { sharedPath } from "../support/shared.ts";
import { withNativeSwitches } from "./native_switches.ts";
import { LIBRARY_VARIABLE, memoryOf, SWITCHES_VARIABLE } from "./switch_memory.ts";
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

/** Time for the tests that judge a mutant first, and for all that a survivor meets. */
const BUDGET_MS = 20_000, SURVIVOR_BUDGET_MS = 240_000;
/** Time for modules to load, and for a test that is recorded. */
const PATIENCE_MS = 300_000;
/** Processes of a judge that wait for the next mutant. */
const MOST_PROCESSES = 3;
/** Files of which all tests meet a survivor, not only those that evaluate its switch. */
const MOST_WHOLE_FILES = 4;

/** Tests that judge the mutants of some sources. */
interface Suite {
  /** Matches the sources' paths. */
  readonly sources: RegExp;
  /** Prefixes of the tests' paths. */
  readonly tests: readonly string[];
  /** Emulated device for all tests, with options: see `test_process.ts`. */
  readonly gpu?: string;
  /** Scripts with arguments that build what the tests run. */
  readonly builds: readonly string[];
}

const CUDA = /^(csrc\/(cuda|gpu)|kernels\/(cuda|arguments))\//;
const METAL = /^(csrc\/(metal|gpu)|kernels\/(metal|arguments))\//;
const BUILDS = ["build.ts --only cpu,reference"];
const CUDA_BUILDS = ["build.ts --only cpu,reference,cuda", "test/emulator/fake_driver/build.ts"];
const METAL_BUILDS = [...BUILDS, "test/emulator/fake_metal/build.ts"];

const SUITES: readonly Suite[] = [
  {
    sources: /^(src\/(?!cli\/)|ffi\/|csrc\/(cpu|common|reference)\/)/,
    tests: ["test/unit/", "test/serve/", "test/models/", "test/ops/", "test/cli/"],
    builds: BUILDS,
  },
  { sources: /^src\/cli\//, tests: ["test/unit/cli/", "test/cli/"], builds: BUILDS },
  { sources: CUDA, tests: ["test/ops/"], gpu: "cuda", builds: CUDA_BUILDS },
  { sources: CUDA, tests: ["test/ops/"], gpu: "cuda architecture=90", builds: CUDA_BUILDS },
  { sources: CUDA, tests: ["test/cuda/", "test/emulator/kernels_test.ts"], builds: CUDA_BUILDS },
  { sources: METAL, tests: ["test/ops/"], gpu: "metal", builds: METAL_BUILDS },
  { sources: METAL, tests: ["test/metal/", "test/emulator/metal/kernels_"], builds: METAL_BUILDS },
  {
    sources: /^csrc\/flash_attn\//,
    tests: ["test/flash_attn/"],
    builds: ["test/flash_attn/build.ts"],
  },
];

/** Tests of texts, builds and machine code, and those that a suite runs on a GPU of its own. */
const LEFT_OUT = [
  /^test\/unit\/(build\/|\w+_test\.ts)/,
  /^test\/cli\/(npm|slurm)_test/,
  /^test\/cuda\/(speed_gates|headers|address_trace)_test/,
  /^test\/cuda\/gpu_model_test.ts: .*(expected|the model)/,
  /^test\/flash_attn\/nvcc_test/,
  /^test\/cuda\/operations_test.ts: operations agree with the reference on an emulated GPU$/,
  /^test\/metal\/operations_test.ts: operations agree/,
  /kernels_test.ts: .*(have no races|stay inside)/,
];

/** A test, and the drawn switches that it evaluates. */
interface RecordedTest {
  readonly test: string;
  readonly ms: number;
  readonly evaluated: ReadonlySet<number>;
}

/** A test file of a suite; its modules evaluate some switches while they load. */
interface RecordedFile {
  readonly gpu: string;
  readonly file: string;
  readonly evaluated: ReadonlySet<number>;
  readonly tests: readonly RecordedTest[];
}

/** Variables of programs in a tree: compilers include `switches.h`. */
function variablesOf(root: string): Record<string, string> {
  return {
    NO_COLOR: "1",
    FORGE_SHARED: sharedPath(),
    PATH: `${join(root, "build", "switching")}:${Deno.env.get("PATH")}`,
  };
}

/** A process with the tests of some files. */
class TestProcess implements Disposable {
  static #count = 0;
  readonly #process: Deno.ChildProcess;
  readonly #output: ReadableStreamDefaultReader<string>;
  readonly #input: WritableStreamDefaultWriter<Uint8Array>;
  readonly #memory: string;
  #pending = "";

  /** @param on the switch that is on while modules load */
  constructor(tree: SwitchedTree, gpu: string, files: readonly string[], on = -1) {
    this.#memory = join(tree.root, "build", `switches_${TestProcess.#count++}`);
    Deno.writeFileSync(this.#memory, memoryOf(tree.nSwitches, on));
    this.#process = new Deno.Command(Deno.execPath(), {
      args: [
        ...["run", "--allow-all", "--quiet", "--no-check", "--v8-flags=--max-old-space-size=3000"],
        ...["test/mutants/test_process.ts", gpu, ...files],
      ],
      cwd: tree.root,
      env: {
        ...variablesOf(tree.root),
        LD_PRELOAD: tree.memoryLibrary,
        [LIBRARY_VARIABLE]: tree.memoryLibrary,
        [SWITCHES_VARIABLE]: this.#memory,
      },
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
    const timer = setTimeout(() => this.#kill(), limitMs);
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

  #kill(): void {
    try {
      Deno.kill(-this.#process.pid, "SIGKILL");
    } catch (error) {
      if (!(error instanceof Deno.errors.NotFound || error instanceof TypeError)) throw error;
    }
  }

  [Symbol.dispose](): void {
    this.#kill();
    Deno.removeSync(this.#memory);
  }
}

/** A copy of the sources with switches, built. */
class SwitchedTree implements Disposable {
  readonly root: string;
  /** The sources, and the ids of their first switches. */
  readonly #sources: readonly { file: string; text: string; firstId: number }[];
  readonly all: readonly Switch[];
  readonly #tree: Tree;

  constructor(tree: Tree) {
    this.#tree = tree;
    this.root = tree.root;
    const sources = [], all: Switch[] = [];
    const files = ["src", "ffi", "csrc", "kernels"].flatMap((folder) => filesBelow(folder, ""));
    for (const file of files.filter((file) => /^\.(ts|cpp|h|cuh?|metal)$/.test(extname(file)))) {
      const text = Deno.readTextFileSync(join(this.root, file));
      const { switches } = put(file, text, all.length, () => false, "");
      sources.push({ file, text, firstId: all.length });
      all.push(...switches);
    }
    this.#sources = sources;
    this.all = all;
  }

  get nSwitches(): number {
    return this.all.length;
  }

  get memoryLibrary(): string {
    return join(this.root, "build", "libswitches.so");
  }

  /** Makes compilers include the switches, and builds their memory. */
  async prepare(): Promise<void> {
    const folder = join(this.root, "build", "switching");
    Deno.mkdirSync(folder, { recursive: true });
    const source = join(this.root, "test", "mutants", "switch_memory.cpp");
    const flags = ["-O2", "-shared", "-fPIC", source, "-o", this.memoryLibrary];
    const { success, stderr } = await new Deno.Command("c++", { args: flags }).output();
    if (!success) throw new Error(new TextDecoder().decode(stderr));
    const header = join(this.root, "test", "mutants", "switches.h");
    for (const name of ["c++", "g++", "clang++-19"]) {
      const path = join(folder, name);
      // Warnings, such as those of comparisons that are always true.
      const wrapped = `PATH="\${PATH#*:}" exec ${name} -include ${header} "$@" -w -Wno-narrowing`;
      Deno.writeTextFileSync(path, `#!/bin/sh\n${wrapped}\n`, { mode: 0o755 });
    }
  }

  /** Writes the sources with these switches. */
  place(drawn: readonly Switch[]): void {
    const ids = new Set(drawn.map(({ id }) => id));
    const memory = `file://${join(this.root, "test", "mutants", "switch_memory.ts")}`;
    const prelude = `import{isOn as __on}from"${memory}";`;
    const files = new Set(drawn.map(({ file }) => file));
    for (const { file, text, firstId } of this.#sources) {
      const path = join(this.root, file);
      const source = files.has(file)
        ? put(file, text, firstId, (id) => ids.has(id), prelude).source
        : text;
      if (Deno.readTextFileSync(path) !== source) Deno.writeTextFileSync(path, source);
    }
  }

  /** Builds with switches; returns those that compile. */
  async build(drawn: readonly Switch[], builds: readonly string[]): Promise<readonly Switch[]> {
    this.place(drawn);
    let placed = drawn;
    for (const script of builds) {
      while (true) {
        const { success, stderr } = await new Deno.Command(Deno.execPath(), {
          args: ["run", "--allow-all", "--no-check", ...script.split(" ")],
          cwd: this.root,
          env: variablesOf(this.root),
        }).output();
        if (success) break;
        const errors = new TextDecoder().decode(stderr);
        const bad = failing(placed, errors);
        if (bad.size === 0) throw new Error(errors);
        placed = placed.filter((one) => !bad.has(one));
        this.place(placed);
      }
    }
    return placed;
  }

  [Symbol.dispose](): void {
    this.#tree[Symbol.dispose]();
  }
}

function put(
  file: string,
  text: string,
  firstId: number,
  isPlaced: (id: number) => boolean,
  prelude: string,
) {
  return extname(file) === ".ts"
    ? withSwitches(file, text, firstId, isPlaced, prelude)
    : withNativeSwitches(file, text, firstId, isPlaced);
}

/** Errors of a compiler, and calls of inlined functions that cause some. */
const ERRORS = [
  /^(\S+?):(\d+):\d+: (?:fatal )?error: /gm,
  /^In function .*\n +inlined from .* at (\S+?):(\d+):\d+[,:]/gm,
];

/**
 * Returns the switches in the lines that a compiler's errors name, or, if there are none, those in
 * the files.
 */
function failing(placed: readonly Switch[], errors: string): Set<Switch> {
  const inLines = new Set<Switch>(), inFiles = new Set<Switch>();
  for (const [, path = "", number] of ERRORS.flatMap((error) => [...errors.matchAll(error)])) {
    for (const one of placed.filter(({ file }) => normalize(path).endsWith(file))) {
      const last = one.line + one.before.split("\n").length - 1;
      inFiles.add(one);
      if (Number(number) >= one.line && Number(number) <= last) inLines.add(one);
    }
  }
  return inLines.size > 0 ? inLines : inFiles;
}

/** Records which of the drawn switches the tests of a file evaluate. */
async function recordFile(tree: SwitchedTree, gpu: string, file: string): Promise<RecordedFile> {
  using process = new TestProcess(tree, gpu, [file]);
  const { tests = [], evaluated = [] } = await process.loaded() ?? {};
  const recorded: RecordedTest[] = [];
  for (const test of tests.filter((test) => !LEFT_OUT.some((pattern) => pattern.test(test)))) {
    const answer = await process.ask({ record: test }, PATIENCE_MS);
    if (answer === undefined) {
      console.log(`left out, since it ends the process: ${gpu} ${test}`);
      break;
    }
    const { passed, ms, evaluated } = answer;
    if (passed) recorded.push({ test, ms, evaluated: new Set(evaluated) });
    else console.log(`left out, since it fails where tests are judged: ${gpu} ${test}`);
  }
  return { gpu, file, evaluated: new Set(evaluated), tests: recorded };
}

/** Judges switches in a tree. */
class Judge implements Disposable {
  readonly #tree: SwitchedTree;
  readonly #files: readonly RecordedFile[];
  /** Processes by device and folder of their tests, the last used last. */
  readonly #processes = new Map<string, TestProcess>();

  constructor(tree: SwitchedTree, files: readonly RecordedFile[]) {
    this.#tree = tree;
    this.#files = files;
  }

  async #processFor(key: string, gpu: string): Promise<TestProcess> {
    let process = this.#processes.get(key);
    this.#processes.delete(key);
    if (process === undefined) {
      const [oldest] = this.#processes.keys();
      if (this.#processes.size >= MOST_PROCESSES) this.#end(oldest!);
      const files = this.#files.filter((one) => keyOf(one) === key).map(({ file }) => file);
      process = new TestProcess(this.#tree, gpu, files);
      await process.loaded();
    }
    this.#processes.set(key, process);
    return process;
  }

  #end(key: string): void {
    this.#processes.get(key)?.[Symbol.dispose]();
    this.#processes.delete(key);
  }

  /** True if a test fails with a switch that is on from the start of a new process. */
  async #failsFresh(id: number, tests: readonly OwnedTest[]): Promise<boolean> {
    for (const [gpu, own] of Map.groupBy(tests, ({ owner }) => owner.gpu)) {
      const files = [...new Set(own.map(({ owner }) => owner.file))];
      using process = new TestProcess(this.#tree, gpu, files, id);
      if (await process.loaded() === undefined) return true;
      const names = own.map(({ test }) => test);
      const verdict = await process.ask({ id, tests: names }, limitOf(own));
      if (verdict === undefined || verdict.failed !== undefined) return true;
    }
    return false;
  }

  /** Returns how the tests judge a switch. */
  async judge({ id, file }: Switch): Promise<"caught" | "survived" | "not evaluated"> {
    const nearest = this.#files
      .map((owner) => ({
        owner,
        nearness: nearness(owner.file, file),
        tests: owner.tests.map((test) => ({ ...test, owner })),
      }))
      .sort((a, b) => b.nearness - a.nearness);
    const own = nearest
      .flatMap(({ tests, nearness }) =>
        tests.filter(({ evaluated }) => evaluated.has(id)).map((test) => ({ test, nearness }))
      )
      .sort((a, b) => b.nearness - a.nearness || a.test.ms - b.test.ms)
      .map(({ test }) => test);
    const files = nearest.filter(({ owner, tests }) =>
      owner.evaluated.has(id) || tests.some(({ evaluated }) => evaluated.has(id))
    );
    // A test may use what a module computed with the mutant earlier, and kept.
    const near = files.slice(0, MOST_WHOLE_FILES).flatMap(({ tests }) => tests);
    const named = new Map([...own, ...near].map((one) => [one.owner.gpu + one.test, one]));
    const all = withinBudget([...named.values()], SURVIVOR_BUDGET_MS);
    if (files.some(({ owner }) => owner.evaluated.has(id))) {
      return await this.#failsFresh(id, all) ? "caught" : "survived";
    }
    const evaluating = withinBudget(own, BUDGET_MS);
    if (evaluating.length === 0) return "not evaluated";
    for (const [key, tests] of Map.groupBy(evaluating, ({ owner }) => keyOf(owner))) {
      const process = await this.#processFor(key, tests[0]!.owner.gpu);
      const request = { id, tests: tests.map(({ test }) => test) };
      const verdict = await process.ask(request, limitOf(tests));
      if (verdict?.failed === undefined && verdict?.recovers) continue;
      if (verdict?.recovers) return "caught";
      // The mutant ended the process, or left traces in it, as perhaps an earlier one did.
      this.#end(key);
      const failed = tests.filter(({ test }) => (verdict?.failed ?? test) === test);
      if (await this.#failsFresh(id, failed)) return "caught";
    }
    return await this.#failsFresh(id, all) ? "caught" : "survived";
  }

  [Symbol.dispose](): void {
    for (const key of [...this.#processes.keys()]) this.#end(key);
  }
}

interface OwnedTest extends RecordedTest {
  readonly owner: RecordedFile;
}

/** The tests of equal keys run in one process. */
function keyOf({ gpu, file }: RecordedFile): string {
  return `${gpu} ${dirname(file)}`;
}

/**
 * Number of names in the path of a test that are those of folders or of the file of a source; 0 for
 * native sources, of which the shortest tests come first.
 */
function nearness(testFile: string, sourceFile: string): number {
  if (extname(sourceFile) !== ".ts") return 0;
  const names = testFile.replace("_test.ts", "").split("/");
  const source = sourceFile.slice(0, -extname(sourceFile).length).split("/");
  const last = source.at(-1) === names.at(-1) ? 2 : 0;
  return last + source.slice(1).filter((name) => names.includes(name)).length;
}

/** Returns tests in their order as long as they fit the budget, at least one. */
function withinBudget(tests: readonly OwnedTest[], budgetMs: number): OwnedTest[] {
  let total = 0;
  return tests.filter(({ ms }) =>
    total === 0 || total + ms <= budgetMs ? (total += ms, true) : false
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
  using tree = new SwitchedTree(await Tree.copy());
  const all = tree.all.filter(({ file }) =>
    folders.length === 0 || folders.some((folder) => file.startsWith(folder))
  );
  const order = new Random("drawn mutants").permutation(all.length).slice(0, count).sort((a, b) =>
    a - b
  );
  const chosen = order.map((at) => all[at]!);
  const withoutMetal = fakeMetalUnavailable();
  if (withoutMetal !== undefined) console.log(`no test evaluates Metal: ${withoutMetal}`);
  const suites = SUITES.filter(({ sources, builds }) =>
    chosen.some(({ file }) => sources.test(file)) &&
    (withoutMetal === undefined || builds !== METAL_BUILDS)
  );
  await tree.prepare();
  console.log(`${chosen.length} of ${all.length} mutants; building`);
  const builds = [...new Set(suites.flatMap(({ builds }) => builds))];
  const drawn = await tree.build(chosen, builds);
  console.log(`${drawn.length} compile; recording which tests evaluate them`);
  const tests = filesBelow("test", "_test.ts")
    .filter((file) => !LEFT_OUT.some((pattern) => pattern.test(file)));
  const files = suites.flatMap(({ gpu = "", tests: prefixes }) =>
    tests.filter((file) => prefixes.some((prefix) => file.startsWith(prefix)))
      .map((file) => ({ gpu, file }))
  );
  const recorded = await inParallel(files, ({ gpu, file }) => recordFile(tree, gpu, file));
  const counts = { "caught": 0, "survived": 0, "not evaluated": 0 };
  const queue = [...drawn];
  const work = async () => {
    using judge = new Judge(tree, recorded);
    for (let one = queue.shift(); one !== undefined; one = queue.shift()) {
      const verdict = await judge.judge(one);
      counts[verdict]++;
      if (verdict === "caught") continue;
      const change = `${one.before} → ${one.after || "(removed)"}`.replaceAll(/\s+/g, " ");
      console.log(`${verdict}\t${one.file}:${one.line}\t${change.slice(0, 200)}`);
    }
  };
  await Promise.all(Array.from({ length: navigator.hardwareConcurrency }, work));
  const judged = counts.caught + counts.survived;
  console.log(
    `\n${counts.caught} of ${judged} caught (${(100 * counts.caught / judged).toFixed(1)}%), ` +
      `${counts["not evaluated"]} that no test evaluates`,
  );
}
