/** Runs Deno programs in separate processes, since they may end the process. */
import { ROOT } from "./checkout.ts";

/** Runs `deno ARGS` in the repository; returns its output. @throws with the output if it fails */
export async function runDeno(
  args: readonly string[],
  env: Readonly<Record<string, string>>,
): Promise<string> {
  const { success, stdout, stderr } = await new Deno.Command(Deno.execPath(), {
    args: [...args],
    cwd: ROOT,
    env: { NO_COLOR: "1", ...env },
    stdin: "null",
  }).output();
  const decoder = new TextDecoder();
  const output = decoder.decode(stdout) + decoder.decode(stderr);
  if (success) return output;
  throw new Error(`${args.join(" ")}\n${output}`);
}
