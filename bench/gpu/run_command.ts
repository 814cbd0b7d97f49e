/** Runs the parts of the GPU check, each a program of its own: a failure of one ends no other. */
import { root } from "../root.ts";
import type { Section } from "./report.ts";
import type { PlannedSection } from "./sections.ts";

/** Lines of a failed part that the report shows. */
const FAILURE_LINES = 40;

/** Runs a part to its end or its time limit. */
export async function runCommand(planned: PlannedSection): Promise<Section> {
  const { title, kind, command: [program = "", ...args], env = {}, limitSeconds } = planned;
  const start = performance.now();
  const finish = (outcome: Section["outcome"], summary: string, output: string): Section => ({
    title,
    kind,
    outcome,
    seconds: (performance.now() - start) / 1000,
    summary,
    output,
  });
  let result: Deno.CommandOutput;
  try {
    result = await new Deno.Command(program, {
      args,
      cwd: root,
      env: { NO_COLOR: "1", ...env },
      stdin: "null",
      signal: AbortSignal.timeout(limitSeconds * 1000),
    }).output();
  } catch (error) {
    if (!(error instanceof Deno.errors.NotFound)) throw error;
    return finish("skipped", `there is no ${program} here`, "");
  }
  const decoder = new TextDecoder();
  const stdout = decoder.decode(result.stdout);
  const output = `${stdout}${decoder.decode(result.stderr)}`;
  if (result.signal === "SIGTERM") {
    return finish("failed", `it ran past ${limitSeconds} s\n${lastLines(output)}`, output);
  }
  if (planned.isSkip?.(result.code)) return finish("skipped", lastLines(output), output);
  return result.success
    ? finish("passed", planned.summarize(stdout), output)
    : finish("failed", lastLines(output), output);
}

function lastLines(text: string): string {
  return text.trimEnd().split("\n").slice(-FAILURE_LINES).join("\n");
}
