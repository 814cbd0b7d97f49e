/** Runs the command line as a user does: `main.ts` in a separate process. */
import { join } from "@std/path";
import { ROOT } from "../support/checkout.ts";

export interface Outcome {
  readonly code: number;
  readonly stdout: string;
  readonly stderr: string;
}

export interface RunOptions {
  /** Content of stdin. @default empty */
  readonly stdin?: string | Uint8Array<ArrayBuffer>;
  readonly env?: Readonly<Record<string, string>>;
  /** Source tree to run. @default this one */
  readonly root?: string;
  /** Every write to a file fails, as on a full disk. Not on Windows. */
  readonly diskIsFull?: boolean;
}

/** A shell that starts its arguments with the most bytes of a file at 0, and without the signal. */
const ON_FULL_DISK = ["-c", 'trap "" XFSZ; ulimit -f 0; exec "$0" "$@"', Deno.execPath()];

/** Returns the arguments of Deno that start a tree's `main.ts`. */
export function denoArgs(args: readonly string[], root = ROOT): string[] {
  const config = ["--config", join(root, "deno.json"), "--permission-set=forge"];
  return ["run", "--quiet", "--no-prompt", ...config, join(root, "main.ts"), ...args];
}

/** Starts `forge` with arguments. Its streams are closed unless the options say otherwise. */
export function startForge(
  args: readonly string[],
  options: Omit<Deno.CommandOptions, "args"> = {},
): Deno.ChildProcess {
  return new Deno.Command(Deno.execPath(), {
    args: denoArgs(args),
    stdin: "null",
    stdout: "null",
    stderr: "null",
    ...options,
  }).spawn();
}

/** Runs `forge` with arguments until it exits. */
export async function forge(args: readonly string[], options: RunOptions = {}): Promise<Outcome> {
  const { stdin, env = {}, root, diskIsFull = false } = options;
  const child = new Deno.Command(diskIsFull ? "sh" : Deno.execPath(), {
    args: [...(diskIsFull ? ON_FULL_DISK : []), ...denoArgs(args, root)],
    env: { NO_COLOR: "1", ...env },
    stdin: stdin === undefined ? "null" : "piped",
    stdout: "piped",
    stderr: "piped",
  }).spawn();
  if (stdin !== undefined) {
    const writer = child.stdin.getWriter();
    const bytes = typeof stdin === "string" ? new TextEncoder().encode(stdin) : stdin;
    // A program that rejects its arguments does not read its input.
    await writer.write(bytes).then(() => writer.close()).catch(() => {});
  }
  const { code, stdout, stderr } = await child.output();
  const decoder = new TextDecoder();
  return { code, stdout: decoder.decode(stdout), stderr: decoder.decode(stderr) };
}
