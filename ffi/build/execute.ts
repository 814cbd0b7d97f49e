/** Runs outdated steps, several at a time. */
import { dirname, isAbsolute, join } from "node:path";
import { ForgeError } from "../../src/errors.ts";
import { type ProcessResult, runProcess } from "./compiler.ts";
import type { Step } from "./graph.ts";
import { commit, type FileSignatures, parseDepfile } from "./record.ts";

/** Maximum number of lines of compiler output in an error message. */
const maxOutputLines = 40;

/** Context of running steps. */
interface ExecuteOptions {
  readonly root: string;
  readonly signatures: FileSignatures;
  /** Number of concurrent commands. */
  readonly jobs: number;
  /** Environment of the commands. @default that of this process */
  readonly environment?: Readonly<Record<string, string>> | undefined;
  readonly onStart: (step: Step) => void;
}

function failure(step: Step, args: readonly string[], result: ProcessResult): ForgeError {
  const lines = `${result.errors}${result.output}`.trimEnd().split("\n");
  const hidden = lines.length - maxOutputLines;
  const shown = hidden > 0
    ? [...lines.slice(0, maxOutputLines), `(${hidden} more lines)`].join("\n")
    : lines.join("\n");
  return new ForgeError("device", `cannot build ${step.label}:\n${args.join(" ")}\n${shown}`);
}

async function runStep(step: Step, options: ExecuteOptions): Promise<void> {
  const { root, signatures } = options;
  Deno.mkdirSync(join(root, dirname(step.output)), { recursive: true });
  // A temporary name per process, so that readers never see a partial file under the final name.
  const temporary = `${step.output}.${Deno.pid}.tmp`;
  const depfile = `${temporary}.d`;
  const args = [
    ...step.command,
    ...step.checks,
    ...(step.hasDepfile ? ["-MMD", "-MF", depfile] : []),
    "-o",
    temporary,
  ];
  const startTime = Date.now();
  const result = await runProcess(args, root, options.environment);
  if (!result.ok) throw failure(step, args, result);
  if (step.report !== undefined) {
    Deno.writeTextFileSync(join(root, step.report), `${result.output}${result.errors}`);
  }
  let dependencies: string[] = [];
  if (step.hasDepfile) {
    // Files outside of the tree, such as CUDA's headers, belong to the compiler's identity.
    dependencies = parseDepfile(Deno.readTextFileSync(join(root, depfile)))
      .filter((path) => !isAbsolute(path));
    Deno.removeSync(join(root, depfile));
  }
  commit(root, step, signatures, join(root, temporary), dependencies, startTime);
}

/**
 * Runs the steps in order, with `jobs` at a time. After a failure no more steps start, and the
 * error is thrown once the running steps have ended.
 *
 * @throws {ForgeError} `device`, with the command and the first lines of its output
 */
export async function execute(steps: readonly Step[], options: ExecuteOptions): Promise<void> {
  const queue = steps.values();
  let failed = false;
  const work = async () => {
    for (const step of queue) {
      if (failed) return;
      options.onStart(step);
      try {
        await runStep(step, options);
      } catch (error) {
        failed = true;
        throw error;
      }
    }
  };
  const workers = Array.from({ length: Math.max(1, Math.min(options.jobs, steps.length)) }, work);
  for (const outcome of await Promise.allSettled(workers)) {
    if (outcome.status === "rejected") throw outcome.reason;
  }
}
