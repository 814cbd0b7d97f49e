/** Runs Deno programs in separate processes, since they may end the process. */
import { ROOT } from "./checkout.ts";

/**
 * Runs `deno ARGS` in the repository; returns its output.
 *
 * @throws if it fails: the first line says what failed, then follow the command and its output
 */
export async function runDeno(
  args: readonly string[],
  env: Readonly<Record<string, string>>,
): Promise<string> {
  const { success, signal, code, stdout, stderr } = await new Deno.Command(Deno.execPath(), {
    args: [...args],
    cwd: ROOT,
    env: { NO_COLOR: "1", ...env },
    stdin: "null",
  }).output();
  const decoder = new TextDecoder();
  const output = decoder.decode(stdout) + decoder.decode(stderr);
  if (success) return output;
  const end = signal ?? `exit code ${code}`;
  throw new Error(`${end}: ${failureIn(output)}\ndeno ${args.join(" ")}\n${output}`);
}

/**
 * In one line: the failed tests of `deno test` with their errors and the seed that repeats them, or
 * else the error of a program, or its last line.
 */
function failureIn(output: string): string {
  const tests = Array.from(
    output.matchAll(/^(.+) => \.\/\S+\nerror: (.+)$/gm),
    ([, name, error]) => `${name}: ${error}`,
  );
  if (tests.length === 0) {
    return output.match(/^error: .+$/m)?.[0] ?? output.trimEnd().split("\n").at(-1) ?? "";
  }
  const [seed = ""] = output.match(/FORGE_TEST_SEED=\d+/) ?? [];
  return [...tests, seed].filter((part) => part !== "").join("; ");
}
