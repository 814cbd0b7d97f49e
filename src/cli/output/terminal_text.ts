/** Text on a terminal: its width in columns, line breaks between words, styles. */

type Stream = Pick<typeof Deno.stdout, "isTerminal">;

/** Returns the columns of a terminal; `undefined` for a file or pipe. */
export function columnsOf(stream: Stream): number | undefined {
  // A terminal of unknown size reports 0.
  return stream.isTerminal() ? Deno.consoleSize().columns || 80 : undefined;
}

/** SGR codes that begin and end a style. */
const STYLES = { bold: [1, 22], dim: [2, 22], red: [31, 39], green: [32, 39] } as const;

/** Returns a text in a style, if the stream is a terminal and NO_COLOR is not set. */
export function styled(stream: Stream, style: keyof typeof STYLES, text: string): string {
  if (Deno.noColor || !stream.isTerminal()) return text;
  const [begin, end] = STYLES[style];
  const lines = text.replace(/\n+$/, "");
  return `\x1b[${begin}m${lines}\x1b[${end}m${text.slice(lines.length)}`;
}

/**
 * Replaces control characters except line feeds and tabs by visible ones, such as ␛, so that a text
 * cannot steer a terminal.
 */
export function visibleControls(text: string): string {
  return text.replace(/[^\P{Cc}\n\t]/gu, (character) => {
    const code = character.charCodeAt(0);
    // Unicode has pictures of ASCII's controls only.
    return code < 0x20 ? String.fromCharCode(0x2400 + code) : code === 0x7f ? "␡" : "�";
  });
}

const GRAPHEMES = new Intl.Segmenter(undefined, { granularity: "grapheme" });
// deno-lint-ignore no-control-regex
const STYLE_CODE = /\x1b\[[\d;]*m/g;
const ZERO_WIDTH = /^[\p{Mn}\p{Me}\p{Cf}\p{Cc}]*$/u;
const HALF_WIDTH = /^[\uff61-\uffdc\uffe8-\uffee]/;
const WIDE =
  /^[\p{Script=Han}\p{Script=Hiragana}\p{Script=Katakana}\p{Script=Hangul}\p{Script=Bopomofo}\p{Script=Yi}\p{Emoji_Presentation}\u3000-\u303e\u30fb\u30fc\uff01-\uff60\uffe0-\uffe6]|\ufe0f/u;

// deno-lint-ignore no-control-regex
const STYLE_CODE_OR_CHARACTER = /\x1b\[[\d;]*m|[^]/gu;

/** Returns the columns that a text takes on one line, without its SGR codes. */
export function displayWidth(text: string): number {
  if (/^[ -~]*$/.test(text)) return text.length;
  let width = 0;
  for (const { segment } of GRAPHEMES.segment(text.replace(STYLE_CODE, ""))) {
    width += ZERO_WIDTH.test(segment) ? 0 : isWide(segment) ? 2 : 1;
  }
  return width;
}

function isWide(character: string): boolean {
  return WIDE.test(character) && !HALF_WIDTH.test(character);
}

/** Breaks lines of a text between words, so that they fit the columns if their words do. */
export function wrap(text: string, columns: number): string[] {
  return text.split("\n").flatMap((line) => {
    if (displayWidth(line) <= columns) return [line];
    const lines: string[] = [];
    let current: string | undefined;
    for (const word of line.split(" ")) {
      const longer: string = current === undefined ? word : `${current} ${word}`;
      if (current !== undefined && current.trim() !== "" && displayWidth(longer) > columns) {
        lines.push(current);
        current = word;
      } else {
        current = longer;
      }
    }
    return [...lines, current!];
  });
}

/** Layout of {@linkcode formatColumns}. */
interface ColumnLayout {
  /** Most columns of a line. @default no limit */
  readonly columns?: number | undefined;
  /** Spaces before the terms. @default 0 */
  readonly indent?: number;
  /** Least width of the terms. @default 0 */
  readonly termWidth?: number;
}

/** Fewest columns in which a description stands next to its term. */
const LEAST_TEXT = 20;

/** Formats terms with their descriptions: next to each other, or below on a narrow terminal. */
export function formatColumns(
  rows: readonly (readonly [term: string, text: string])[],
  { columns = Infinity, indent = 0, termWidth = 0 }: ColumnLayout = {},
): string {
  const width = Math.max(termWidth, ...rows.map(([term]) => displayWidth(term)));
  const isNarrow = columns - indent - width - 2 < LEAST_TEXT;
  const start = indent + (isNarrow ? 4 : width + 2);
  return rows.map(([term, text]) => {
    const lines = wrap(text, columns - start).map((line) => `${" ".repeat(start)}${line}`);
    const first = " ".repeat(indent) + (isNarrow ? term.trimStart() : term);
    if (isNarrow) return text === "" ? first : [first, ...lines].join("\n");
    const padding = " ".repeat(width - displayWidth(term) + 2);
    return [first + padding + lines[0]!.slice(start), ...lines.slice(1)].join("\n");
  }).join("\n");
}

/**
 * Formats a table with its first column to the left. If the rows do not fit the columns of a
 * terminal, the first cell stands above the others.
 *
 * @param isRight true for a column whose cells are aligned to the right
 */
export function formatTable(
  rows: readonly (readonly string[])[],
  isRight: (column: number) => boolean,
  columns = Infinity,
): string {
  const widths = rows.reduce<number[]>(
    (widest, row) => row.map((cell, i) => Math.max(widest[i] ?? 0, displayWidth(cell))),
    [],
  );
  const align = (cell: string, i: number) => {
    const space = " ".repeat(widths[i]! - displayWidth(cell));
    return isRight(i) ? space + cell : cell + space;
  };
  const isNarrow = widths.reduce((sum, width) => sum + width + 2, -2) > columns;
  return rows.map((row) => {
    const cells = row.map(align);
    const [first, ...others] = cells;
    const line = isNarrow ? `${first!.trimEnd()}\n  ${others.join("  ")}` : cells.join("  ");
    return `${line.trimEnd()}\n`;
  }).join("");
}

/** Characters that do not begin a line, such as closing brackets of Chinese and Japanese. */
const CLOSING = /^[、。，．！？：；）〉》」』】〕〗〙〛’”ーゝゞ々・]/u;
const JOINERS = /[\u200d（〈《「『【〔〖‘“]$/u;
const REGIONAL = /^\p{Regional_Indicator}$/u;

/** Longest word that is held back until it is complete. */
const LONGEST_WORD = 256;

/**
 * Breaks a text between words as it arrives. The last word is held back until it is complete. Lines
 * of code blocks and tables are not broken.
 */
export class WordWrap {
  readonly #columns: () => number;
  #word = "";
  #spaces = "";
  #column = 0;
  #isInCode = false;
  /** True if the line has no words yet. */
  #isFresh = true;
  /** True if the line is not broken. */
  #isRaw = false;

  /** @param columns returns the columns of the terminal, which may change */
  constructor(columns: () => number) {
    this.#columns = columns;
  }

  /** Returns what can be shown after the next part of the text. */
  push(text: string): string {
    let shown = "";
    for (const [part] of text.matchAll(STYLE_CODE_OR_CHARACTER)) {
      if (part === "\n") {
        shown += this.#takeWord() + this.#spaces + part;
        this.#spaces = "";
        this.#column = 0;
        this.#isFresh = true;
      } else if (part === " " || part === "\t") {
        shown += this.#takeWord();
        this.#spaces += part;
      } else {
        if (this.#mayBreakBefore(part)) shown += this.#takeWord();
        this.#word += part;
      }
    }
    return shown;
  }

  /** Returns what was held back. */
  end(): string {
    const shown = this.#takeWord() + this.#spaces;
    this.#spaces = "";
    return shown;
  }

  /** True if the word that is held back ends before a character. */
  #mayBreakBefore(character: string): boolean {
    if (this.#word.length >= LONGEST_WORD) return true;
    const word = this.#word.replace(STYLE_CODE, "");
    const last = [...word].at(-1);
    if (last === undefined || character.startsWith("\x1b")) return false;
    const isJoined = ZERO_WIDTH.test(character) || CLOSING.test(character) ||
      JOINERS.test(word) ||
      REGIONAL.test(character) && REGIONAL.test(last);
    return !isJoined && (isWide(character) || isWide(last));
  }

  /** Takes the held word with the spaces before it, which a line break replaces. */
  #takeWord(): string {
    const word = this.#word;
    if (word === "") return "";
    this.#word = "";
    const columns = this.#columns();
    if (this.#isFresh) this.#beginLine(word.replace(STYLE_CODE, ""));
    for (const space of this.#spaces) {
      this.#column += space === "\t" ? 8 - this.#column % 8 : 1;
    }
    const width = displayWidth(word);
    const isBroken = !this.#isRaw && !this.#isFresh && this.#column + width > columns;
    const before = isBroken ? "\n" : this.#spaces;
    this.#column = (isBroken ? 0 : this.#column) + width;
    // The terminal breaks a word that is longer than a line.
    this.#column = (this.#column - 1) % columns + 1;
    this.#spaces = "";
    this.#isFresh &&= word.replace(STYLE_CODE, "") === "";
    return before + word;
  }

  /** Finds out whether a line belongs to a code block or a table, by its first word. */
  #beginLine(word: string): void {
    const isFence = /^(```|~~~)/.test(word);
    this.#isRaw = this.#isInCode || isFence || word.startsWith("|");
    if (isFence) this.#isInCode = !this.#isInCode;
  }
}
