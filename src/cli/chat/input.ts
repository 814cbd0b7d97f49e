/** Where the messages of a chat come from. */
import { readLines } from "../input/jsonl_lines.ts";

/** What comes next: a line, Ctrl-C, or the end. */
export type InputEvent =
  | { readonly kind: "line"; readonly text: string }
  | { readonly kind: "interrupt" }
  | { readonly kind: "end" };

/** Whoever says something to the model. */
export interface ChatInput extends Disposable {
  /** Whether somebody sits there, who wants prompts and is told of errors. */
  readonly isTerminal: boolean;
  /**
   * Waits for the next line.
   *
   * @param isContinued whether it goes on with a message
   */
  next(isContinued: boolean): Promise<InputEvent>;
  /** Begins an answer; Ctrl-C raises the signal, until {@linkcode next} is called. */
  answering(): AbortSignal;
}

/** Lines of a pipe or file. */
export class PipedInput implements ChatInput {
  readonly isTerminal = false;
  readonly #lines = readLines(Deno.stdin.readable, { keepBlank: true });
  readonly #signal: AbortSignal;
  readonly #stopped = Promise.withResolvers<InputEvent>();

  /** @param signal Ctrl-C, which ends the chat */
  constructor(signal: AbortSignal) {
    this.#signal = signal;
    signal.addEventListener("abort", () => this.#stopped.resolve({ kind: "end" }), { once: true });
  }

  async next(): Promise<InputEvent> {
    // A read that waits for input cannot be taken back, so that it is left to wait.
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
