/** How long something takes before progress is worth showing, in milliseconds. */
const DELAY = 1000;
const REDRAW_INTERVAL = 100;
const BAR_CELLS = 30;

/**
 * A line at the bottom of the terminal that says how far work has come. It appears when the work
 * has taken a second, disappears when disposed of, and never appears where stderr is no terminal.
 */
export class Progress implements Disposable {
  readonly #timer: ReturnType<typeof setInterval> | undefined;
  #visibleFrom = performance.now() + DELAY;
  #text = "";
  #shown = "";

  constructor() {
    if (!Deno.stderr.isTerminal()) return;
    this.#timer = setInterval(() => this.#draw(), REDRAW_INTERVAL);
  }

  /** Says what is being done, how much of it is, and more in `details`. */
  update(label: string, done?: number, total?: number, details = ""): void {
    this.#text = done === undefined || total === undefined
      ? label
      : `${label} ${bar(done / total)} ${done} of ${total}  ${details}`.trim();
  }

  /** Takes the line away; the next update is not shown before another second. */
  clear(): void {
    if (this.#shown !== "") write("\r\x1b[2K");
    this.#shown = "";
    this.#text = "";
    this.#visibleFrom = performance.now() + DELAY;
  }

  [Symbol.dispose](): void {
    clearInterval(this.#timer);
    this.clear();
  }

  #draw(): void {
    if (this.#text === this.#shown || performance.now() < this.#visibleFrom) return;
    // A terminal that does not know its size says 0.
    const columns = Deno.consoleSize().columns || 80;
    write(`\r\x1b[2K${this.#text.slice(0, columns - 1)}`);
    this.#shown = this.#text;
  }
}

function bar(fraction: number): string {
  const filled = Math.round(Math.min(1, fraction) * BAR_CELLS);
  return `[${"#".repeat(filled)}${"-".repeat(BAR_CELLS - filled)}]`;
}

function write(text: string): void {
  Deno.stderr.writeSync(new TextEncoder().encode(text));
}
