/** Runs programs on pseudo-terminals. */
import { within } from "../support/wait.ts";
import { denoArgs } from "./forge.ts";

/** True if Python can open a pseudo-terminal. */
export async function hasTerminals(): Promise<boolean> {
  try {
    const { success } = await new Deno.Command("python3", { args: ["-c", "import pty"] }).output();
    if (success) return true;
  } catch (error) {
    if (!(error instanceof Deno.errors.NotFound)) throw error;
  }
  console.error("skipping: no python3 with a module pty, which opens the terminal");
  return false;
}

/** A program on its own pseudo-terminal. */
export class Terminal {
  readonly #child: Deno.ChildProcess;
  readonly #keys: WritableStreamDefaultWriter<Uint8Array<ArrayBuffer>>;
  readonly #screen: ReadableStreamDefaultReader<string>;
  /** Output since the last call of {@linkcode type}. */
  shown = "";

  /** @param columns width of the terminal */
  constructor(command: readonly string[], columns = 80) {
    const script = "import pty, sys; sys.exit(pty.spawn(sys.argv[1:]) >> 8)";
    this.#child = new Deno.Command("python3", {
      args: ["-c", script, "sh", "-c", `stty cols ${columns}; exec "$@"`, "sh", ...command],
      stdin: "piped",
      stdout: "piped",
      stderr: "inherit",
    }).spawn();
    this.#keys = this.#child.stdin.getWriter();
    this.#screen = this.#child.stdout.pipeThrough(new TextDecoderStream()).getReader();
  }

  /**
   * Starts `forge` with arguments.
   *
   * @param options `colours` says if they are wanted, by default as this process does
   */
  static forge(
    args: readonly string[],
    { columns, colours }: { readonly columns?: number; readonly colours?: boolean } = {},
  ): Terminal {
    const env = colours === undefined ? [] : ["env", `NO_COLOR=${colours ? "" : "1"}`];
    return new Terminal([...env, Deno.execPath(), ...denoArgs(args)], columns);
  }

  async type(keys: string): Promise<void> {
    this.shown = "";
    await this.#keys.write(new TextEncoder().encode(keys));
  }

  /** Waits until the output contains a text or matches a pattern. */
  async waitFor(text: string | RegExp): Promise<void> {
    const isShown = () =>
      typeof text === "string" ? this.shown.includes(text) : text.test(this.shown);
    while (!isShown()) await this.#read();
  }

  /** Waits until the output has grown by a number of characters. */
  async waitForMore(count: number): Promise<void> {
    const target = this.shown.length + count;
    while (this.shown.length < target) await this.#read();
  }

  async #read(): Promise<void> {
    if (await this.#isOver()) {
      throw new Error(`the program has ended: ${JSON.stringify(this.shown)}`);
    }
  }

  /** Reads the next output; true if there is none any more. */
  async #isOver(): Promise<boolean> {
    const next = this.#screen.read();
    const { value = "", done } = await within(
      next,
      () => `further output than ${JSON.stringify(this.shown.slice(-500))}`,
    );
    this.shown += value;
    return done;
  }

  /** Waits until the program exits; returns its exit code. */
  async close(): Promise<number> {
    while (!await this.#isOver());
    await this.#keys.close().catch(() => {});
    return (await this.#child.status).code;
  }
}
