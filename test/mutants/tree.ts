/** Copies of the working tree for running mutants, so that the tree itself never changes. */
import { dirname, join } from "@std/path";
import { buildLibraries } from "../../build.ts";
import type { LibraryName } from "../../ffi/build/libraries.ts";
import { ROOT } from "../support/checkout.ts";
import { sharedPath } from "../support/shared.ts";
import type { KernelCheck, Mutant, TestCheck } from "./mutant.ts";

/** Result of a command in a tree. */
export interface CheckResult {
  readonly passed: boolean;
  readonly timedOut: boolean;
  readonly output: string;
}

/**
 * Returns the libraries that contain a mutant's file, and the reference library that tests compare
 * them with. Tests build emulated kernels, and the library for emulated Metal, themselves.
 */
function librariesOf({ file, caughtBy }: Mutant): readonly LibraryName[] {
  if ("gpu" in caughtBy && caughtBy.gpu === "metal") return ["reference"];
  if (file.startsWith("csrc/cpu/")) return ["reference", "cpu"];
  if (file.startsWith("csrc/cuda/") || file.startsWith("csrc/gpu/")) {
    return ["reference", "cuda"];
  }
  if (file.startsWith("csrc/reference/")) return ["reference"];
  if (file.startsWith("src/")) return ["cpu"];
  if (file.startsWith("csrc/common/")) return ["reference", "cpu", "cuda"];
  return [];
}

/** Copies a file with its modification time, which builds compare. */
function copyFile(from: string, to: string): void {
  Deno.mkdirSync(dirname(to), { recursive: true });
  const { atime, mtime } = Deno.statSync(from);
  Deno.copyFileSync(from, to);
  if (mtime !== null) Deno.utimeSync(to, atime ?? mtime, mtime);
}

function copyFolder(from: string, to: string): void {
  for (const { name, isDirectory, isFile } of Deno.readDirSync(from)) {
    if (isDirectory) copyFolder(join(from, name), join(to, name));
    else if (isFile) copyFile(join(from, name), join(to, name));
  }
}

/** Returns the files of the tree that git does not ignore, tracked or not. */
async function sourceFiles(): Promise<string[]> {
  const args = ["ls-files", "-z", "--cached", "--others", "--exclude-standard"];
  const { success, stdout, stderr } = await new Deno.Command("git", { args, cwd: ROOT }).output();
  if (!success) throw new Error(new TextDecoder().decode(stderr));
  return new TextDecoder().decode(stdout).split("\0").filter((path) => path !== "");
}

/** A copy of the working tree with its builds. */
export class Tree implements Disposable {
  readonly #passed = new Set<string>();

  private constructor(readonly root: string) {}

  static async copy(): Promise<Tree> {
    const root = Deno.makeTempDirSync({ prefix: "forge-mutants-" });
    for (const path of await sourceFiles()) {
      try {
        copyFile(join(ROOT, path), join(root, path));
      } catch (error) {
        // A deleted file whose deletion is not committed yet.
        if (!(error instanceof Deno.errors.NotFound)) throw error;
      }
    }
    try {
      copyFolder(join(ROOT, "build"), join(root, "build"));
    } catch (error) {
      if (!(error instanceof Deno.errors.NotFound)) throw error;
    }
    return new Tree(root);
  }

  /** Rebuilds the libraries that contain a mutant's file. */
  async build(mutant: Mutant): Promise<void> {
    const only = librariesOf(mutant);
    if (only.length > 0) await buildLibraries({ root: this.root, only });
  }

  /** Runs `work` with a mutant in the tree. */
  async withMutant<T>({ file, find, replace }: Mutant, work: () => Promise<T>): Promise<T> {
    const path = join(this.root, file);
    const text = Deno.readTextFileSync(path);
    if (text.split(find).length !== 2) throw new Error(`${file} does not hold once: ${find}`);
    const { atime, mtime } = Deno.statSync(path);
    Deno.writeTextFileSync(path, text.replace(find, () => replace));
    try {
      return await work();
    } finally {
      Deno.writeTextFileSync(path, text);
      if (mtime !== null) Deno.utimeSync(path, atime ?? mtime, mtime);
    }
  }

  /** Runs a mutant's tests on the current tree. */
  check({ file, caughtBy }: Mutant, limitMs: number): Promise<CheckResult> {
    return "tests" in caughtBy
      ? this.#run(testArgs(caughtBy), limitMs, caughtBy.devices)
      : this.#run(kernelArgs(file, caughtBy), limitMs, undefined);
  }

  /** True if a mutant's tests pass without it. Mutants with the same tests share one run. */
  async passesWithout(mutant: Mutant, limitMs: number): Promise<boolean> {
    const key = JSON.stringify(mutant.caughtBy);
    if (this.#passed.has(key)) return true;
    const { passed } = await this.check(mutant, limitMs);
    if (passed) this.#passed.add(key);
    return passed;
  }

  async #run(
    args: readonly string[],
    limitMs: number,
    devices: string | undefined,
  ): Promise<CheckResult> {
    const child = new Deno.Command(Deno.execPath(), {
      args: [...args],
      cwd: this.root,
      env: {
        NO_COLOR: "1",
        FORGE_SHARED: sharedPath(),
        // A drawn test would catch its mutant only by chance.
        FORGE_THOROUGH: "1",
        ...(devices === undefined ? {} : { FORGE_TEST_DEVICES: devices }),
      },
      stdin: "null",
      stdout: "piped",
      stderr: "piped",
      // A separate process group, so that a kill also ends its children.
      detached: true,
    }).spawn();
    let timedOut = false;
    const timer = setTimeout(() => {
      timedOut = true;
      Deno.kill(-child.pid, "SIGKILL");
    }, limitMs);
    const { success, stdout, stderr } = await child.output();
    clearTimeout(timer);
    const output = new TextDecoder().decode(stdout) + new TextDecoder().decode(stderr);
    return { passed: success, timedOut, output };
  }

  [Symbol.dispose](): void {
    Deno.removeSync(this.root, { recursive: true });
  }
}

function testArgs({ tests, filter, gpu, pretends = {} }: TestCheck): string[] {
  const only = filter === undefined ? [] : ["--filter", filter];
  if (gpu !== undefined) {
    const script = "test/mutants/gpu_check.ts";
    const args = [gpu, JSON.stringify(pretends), ...only, ...tests];
    return ["run", "--allow-all", "--no-check", script, ...args];
  }
  return ["test", "--allow-all", "--no-check", "--fail-fast", "--quiet", ...only, ...tests];
}

function kernelArgs(file: string, check: KernelCheck): string[] {
  const device = file.startsWith("kernels/metal/") ? "metal" : "cuda";
  const script = "test/mutants/kernel_check.ts";
  return ["run", "--allow-all", "--no-check", script, device, JSON.stringify(check)];
}
