/** How long something takes before progress is worth showing, in milliseconds. */
const DELAY = 1000;
const REDRAW_INTERVAL = 100;
const BAR_CELLS = 30, FEWEST_CELLS = 5;

/**
 * A line at the bottom of the terminal that says how far work has come. It appears when the work
 * has taken a second, disappears when disposed of, and never appears where stderr is no terminal.
 */
export class Progress implements Disposable {
  readonly #timer: ReturnType<typeof setInterval> | undefined;
  #visibleFrom = performance.now() + DELAY;
  #line: (columns: number) => string = () => "";
  #shown = "";

  constructor() {
    if (!Deno.stderr.isTerminal()) return;
    this.#timer = setInterval(() => this.#draw(), REDRAW_INTERVAL);
  }

  /** Says what is being done, how much of it is, and more in `details`. */
  update(label: string, done?: number, total?: number, details = ""): void {
    this.#line = done === undefined || total === undefined
      ? () => label
      : (columns) => progressLine(columns, label, done, total, details);
  }

  /** Takes the line away; the next update is not shown before another second. */
  clear(): void {
    if (this.#shown !== "") write("\r\x1b[2K");
    this.#shown = "";
    this.#line = () => "";
    this.#visibleFrom = performance.now() + DELAY;
  }

  [Symbol.dispose](): void {
    clearInterval(this.#timer);
    this.clear();
  }

  #draw(): void {
    if (performance.now() < this.#visibleFrom) return;
    // A terminal that does not know its size says 0. In the last column the cursor would not stay.
    const columns = (Deno.consoleSize().columns || 80) - 1;
    const text = this.#line(columns).slice(0, columns);
    if (text === this.#shown) return;
    write(`\r\x1b[2K${text}`);
    this.#shown = text;
  }
}

/** What was done with a bar before it, as long as there is room for one. */
export function progressLine(
  columns: number,
  label: string,
  done: number,
  total: number,
  details: string,
): string {
  const numbers = `${done} of ${total}`;
  const words = details === "" ? numbers : `${numbers}  ${details}`;
  const start = label === "" ? "" : `${label} `;
  const cells = Math.min(BAR_CELLS, columns - start.length - words.length - "[] ".length);
  return cells < FEWEST_CELLS ? start + words : `${start}${bar(done / total, cells)} ${words}`;
}

function bar(fraction: number, cells: number): string {
  const filled = Math.round(Math.min(1, fraction) * cells);
  return `[${"#".repeat(filled)}${"-".repeat(cells - filled)}]`;
}

function write(text: string): void {
  Deno.stderr.writeSync(new TextEncoder().encode(text));
}
