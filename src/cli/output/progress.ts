/** Time before progress is shown. */
const DELAY_MS = 1000;
const REDRAW_INTERVAL_MS = 100;
const BAR_CELLS = 30, FEWEST_CELLS = 5;

/**
 * A progress line at the bottom of the terminal. It appears after one second, disappears when
 * disposed of, and never appears if stderr is not a terminal.
 */
export class Progress implements Disposable {
  readonly #timer: ReturnType<typeof setInterval> | undefined;
  #visibleFrom = performance.now() + DELAY_MS;
  #line: (columns: number) => string = () => "";
  #shown = "";

  constructor() {
    if (!Deno.stderr.isTerminal()) return;
    this.#timer = setInterval(() => this.#draw(), REDRAW_INTERVAL_MS);
  }

  /** Sets the label, the amount done and the details. */
  update(label: string, done?: number, total?: number, details = ""): void {
    this.#line = done === undefined || total === undefined
      ? () => label
      : (columns) => progressLine(columns, label, done, total, details);
  }

  /** Removes the line. The next update is shown after another second. */
  clear(): void {
    if (this.#shown !== "") write("\r\x1b[2K");
    this.#shown = "";
    this.#line = () => "";
    this.#visibleFrom = performance.now() + DELAY_MS;
  }

  [Symbol.dispose](): void {
    clearInterval(this.#timer);
    this.clear();
  }

  #draw(): void {
    if (performance.now() < this.#visibleFrom) return;
    // A terminal of unknown size reports 0. The last column is left free, as the cursor would wrap.
    const columns = (Deno.consoleSize().columns || 80) - 1;
    const text = this.#line(columns).slice(0, columns);
    if (text === this.#shown) return;
    write(`\r\x1b[2K${text}`);
    this.#shown = text;
  }
}

/** Returns a line with the amount done, and a bar if there is room. */
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
