/** Terminal input of a chat: line editing, history, Ctrl-C, and pastes of several lines. */
import process from "node:process";
import { createInterface, type Interface } from "node:readline";
import { Writable } from "node:stream";
import { styled } from "../output/terminal_text.ts";
import type { ChatInput, InputEvent } from "./input.ts";
import { PasteFilter } from "./paste.ts";

const PROMPT = "> ";
const CONTINUED = "… ";
const HISTORY = 500;

const PASTE_MARKS_ON = "\x1b[?2004h";
const PASTE_MARKS_OFF = "\x1b[?2004l";

/** Edits lines on a terminal, with a history; a paste stays one message. */
export class TerminalInput implements ChatInput {
  readonly isTerminal = true;
  readonly #editor: Interface;
  readonly #screen = new Screen();
  /** Events that arrived before {@linkcode next}, with lines that were not shown. */
  readonly #events: { readonly event: InputEvent; readonly unseen?: string }[] = [];
  #waiting: PromiseWithResolvers<InputEvent> | undefined;
  #answer: AbortController | undefined;

  constructor() {
    const filter = new PasteFilter((isRaw) => process.stdin.setRawMode(isRaw));
    process.stdin.pipe(filter);
    writeToTerminal(PASTE_MARKS_ON);
    this.#editor = createInterface({
      input: filter,
      output: this.#screen,
      terminal: true,
      historySize: HISTORY,
      removeHistoryDuplicates: true,
    });
    this.#editor.on("line", (line: string) => {
      this.#push({ kind: "line", text: filter.expand(line) }, line);
    });
    this.#editor.on("SIGINT", () => this.#interrupt());
    this.#editor.on("close", () => this.#push({ kind: "end" }));
  }

  async next(isContinued: boolean): Promise<InputEvent> {
    this.#answer = undefined;
    this.#screen.isMuted = false;
    const prompt = styled(Deno.stderr, "green", isContinued ? CONTINUED : PROMPT);
    const early = this.#events.shift();
    if (early !== undefined) {
      if (early.unseen !== undefined) writeToTerminal(`${prompt}${early.unseen}\n`);
      return early.event;
    }
    this.#editor.setPrompt(prompt);
    this.#editor.prompt(true);
    this.#waiting = Promise.withResolvers();
    return await this.#waiting.promise;
  }

  answering(): AbortSignal {
    this.#answer = new AbortController();
    // Lines typed during an answer are shown after it.
    this.#screen.isMuted = true;
    return this.#answer.signal;
  }

  [Symbol.dispose](): void {
    this.#editor.close();
    writeToTerminal(PASTE_MARKS_OFF);
  }

  #push(event: InputEvent, line?: string): void {
    if (this.#waiting !== undefined) this.#waiting.resolve(event);
    else if (line === undefined || !this.#screen.isMuted) this.#events.push({ event });
    else this.#events.push({ event, unseen: line });
    this.#waiting = undefined;
  }

  #interrupt(): void {
    if (this.#answer !== undefined) return this.#answer.abort();
    writeToTerminal("\n");
    if (this.#editor.line === "") return this.#push({ kind: "interrupt" });
    // Clears the line, as a shell does.
    this.#editor.write(null, { ctrl: true, name: "e" });
    this.#editor.write(null, { ctrl: true, name: "u" });
  }
}

/** Output of the editor to stderr, muted while an answer is written. */
class Screen extends Writable {
  readonly isTTY = true;
  isMuted = false;

  get columns(): number {
    return Deno.consoleSize().columns || 80;
  }

  override _write(chunk: Uint8Array, _encoding: string, done: () => void): void {
    if (!this.isMuted) Deno.stderr.writeSync(chunk);
    done();
  }
}

function writeToTerminal(text: string): void {
  Deno.stderr.writeSync(new TextEncoder().encode(text));
}
