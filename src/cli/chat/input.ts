/** Input of a chat: a terminal, or lines of a pipe or file. */
import { readLines } from "../input/jsonl_lines.ts";

/** Next event of the input: a line, Ctrl-C, or the end. */
export type InputEvent =
  | { readonly kind: "line"; readonly text: string }
  | { readonly kind: "interrupt" }
  | { readonly kind: "end" };

export interface ChatInput extends Disposable {
  /** True if a user sees prompts and errors. */
  readonly isTerminal: boolean;
  /**
   * Waits for the next line.
   *
   * @param isContinued true if the line continues a message
   */
  next(isContinued: boolean): Promise<InputEvent>;
  /** Begins an answer. Ctrl-C aborts the signal until {@linkcode next} is called. */
  answering(): AbortSignal;
}

/** Lines of a pipe or file. */
export class PipedInput implements ChatInput {
  readonly isTerminal = false;
  readonly #lines = readLines(Deno.stdin.readable, { keepBlank: true });
  readonly #signal: AbortSignal;
  readonly #stopped = Promise.withResolvers<InputEvent>();

  /** @param signal aborted by Ctrl-C; ends the chat */
  constructor(signal: AbortSignal) {
    this.#signal = signal;
    signal.addEventListener("abort", () => this.#stopped.resolve({ kind: "end" }), { once: true });
  }

  async next(): Promise<InputEvent> {
    // A pending read cannot be cancelled; it stays pending.
    return await Promise.race([this.#stopped.promise, this.#read()]);
  }

  answering(): AbortSignal {
    return this.#signal;
  }

  [Symbol.dispose](): void {}

  async #read(): Promise<InputEvent> {
    const { value: line } = await this.#lines.next();
    if (!line) return { kind: "end" };
    if (line.error !== undefined) throw line.error;
    return { kind: "line", text: line.text.replace(/\r$/, "") };
  }
}
