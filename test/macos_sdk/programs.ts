/** Runs programs of this machine. */

/** True if a program can be run. */
export function isCommand(program: string): boolean {
  try {
    new Deno.Command(program, { args: ["--version"], stdout: "null", stderr: "null" }).outputSync();
    return true;
  } catch (error) {
    if (error instanceof Deno.errors.NotFound) return false;
    throw error;
  }
}

/** Returns the output of a program. @throws if it fails */
export function outputOf(program: string, args: readonly string[]): string {
  const { success, stdout, stderr } = new Deno.Command(program, { args: [...args] }).outputSync();
  if (success) return new TextDecoder().decode(stdout);
  throw new Error(`${program} ${args.join(" ")}\n${new TextDecoder().decode(stderr)}`);
}
