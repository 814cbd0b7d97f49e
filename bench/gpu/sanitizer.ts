/**
 * A short `forge run --device cuda` under NVIDIA's compute-sanitizer, which checks every memory
 * access: `sanitizer.ts [--emulated]`. Prints the lines of `lines.ts`; exits with 77 without
 * compute-sanitizer.
 */
import { join } from "@std/path";
import { root } from "../root.ts";
import { say } from "./lines.ts";
import { SKIPPED } from "./parts.ts";

/** Tools and the number of tokens decoded under each; racecheck is slow. */
const TOOLS = { memcheck: 4, racecheck: 1 } as const;
const FOUND = 9;
/** Lines of a failure's output in the report. */
const LINES = 12;

async function main(): Promise<number> {
  let code = 0;
  for (const [tool, tokens] of Object.entries(TOOLS)) {
    const program = [
      ...[Deno.execPath(), "run", "--quiet", "-A", join(root, "main.ts"), "run"],
      ...["--device", "cuda", "-p", "Once upon a time", "-n", `${tokens}`, "--temp", "0"],
    ];
    let result: Deno.CommandOutput;
    try {
      result = await new Deno.Command("compute-sanitizer", {
        args: ["--tool", tool, "--error-exitcode", `${FOUND}`, ...program],
        cwd: root,
        stdin: "null",
        stdout: "piped",
        stderr: "piped",
      }).output();
    } catch (error) {
      if (!(error instanceof Deno.errors.NotFound)) throw error;
      console.log("no compute-sanitizer on PATH");
      return SKIPPED;
    }
    const decoder = new TextDecoder();
    const output = `${decoder.decode(result.stdout)}${decoder.decode(result.stderr)}`;
    console.error(output);
    const detail = result.success ? "" : output.split("\n").slice(0, LINES).join("; ");
    say({ kind: "check", name: `forge run under ${tool}`, passed: result.success, detail });
    if (!result.success) code = 1;
  }
  return code;
}

if (import.meta.main) Deno.exit(await main());
