import { quote } from "../../formats/quote.ts";
import { MAX_INTEGER_DIGITS, TemplateError } from "./values.ts";

/** Kind of a token: text between tags, the delimiters of tags, and tokens inside of tags. */
export type TokenKind =
  | "text"
  | "output_start"
  | "output_end"
  | "tag_start"
  | "tag_end"
  | "name"
  | "string"
  | "number"
  | "operator"
  | "end";

/** Token of a template. */
export interface Token {
  readonly kind: TokenKind;
  /** Name, operator, or the characters of text or of a string. */
  readonly text: string;
  /** Value of a number. */
  readonly value?: bigint | number;
  /** Offset into the source. */
  readonly at: number;
}

/** Characters that Python's `str.isspace` accepts, for a class of a regular expression. */
export const SPACES = "\\t-\\r\\x1c-\\x20\\x85\\xa0\\u1680\\u2000-\\u200a\\u2028\\u2029\\u202f" +
  "\\u205f\\u3000";

const SPACE_RUN = new RegExp(`[${SPACES}]*`, "y");
const IS_SPACE = new RegExp(`[${SPACES}]`);
const RAW_START = new RegExp(
  `\\{%([-+]?)[${SPACES}]*raw[${SPACES}]*(?:-%\\}[${SPACES}]*|%\\})`,
  "y",
);
const RAW_END = new RegExp(
  `\\{%([-+]?)[${SPACES}]*endraw[${SPACES}]*(?:\\+%\\}|-%\\}[${SPACES}]*|%\\}\\n?)`,
  "g",
);
const FLOAT = /(?<!\.)(?:\d+_)*\d+(?:(?:\.(?:\d+_)*\d+)?e[+-]?(?:\d+_)*\d+|\.(?:\d+_)*\d+)/iy;
const INTEGER = /0b(?:_?[01])+|0o(?:_?[0-7])+|0x(?:_?[\da-f])+|[1-9](?:_?\d)*|0(?:_?0)*/iy;
const NAME_START = /[A-Za-z_\x80-\uffff]/;
const ASCII_NAME = /[A-Za-z_]\w*(?![\w\x80-\uffff])/y;
/** Any name. Used only for names beyond ASCII, since the pattern takes time to compile. */
const NAME = /[_\p{ID_Start}]\p{ID_Continue}*/uy;
const OPERATOR = /\/\/|\*\*|[=!<>]=|[-+/*%~[\](){}<>=.:|,;]/y;
const CLOSING: ReadonlyMap<string, string> = new Map([["(", ")"], ["[", "]"], ["{", "}"]]);

/** Converts line ends to `\n` and drops the last one, as Jinja does first. */
export function normalizeSource(source: string): string {
  return source.replace(/\r\n?/g, "\n").replace(/\n$/, "");
}

/**
 * Splits a template into tokens, with `trim_blocks` and `lstrip_blocks`: the line end after a tag
 * is dropped, and so are the spaces before a tag that starts its line.
 *
 * @param source the template after `normalizeSource`
 */
export function tokenize(source: string): Token[] {
  return new Lexer(source).run();
}

class Lexer {
  readonly #source: string;
  readonly #tokens: Token[] = [];
  #at = 0;
  /** True if the last text read ended a line. */
  #startsLine = true;

  constructor(source: string) {
    this.#source = source;
  }

  run(): Token[] {
    while (this.#at < this.#source.length) this.#readTextAndMark();
    this.#add("end", "", this.#source.length);
    return this.#tokens;
  }

  /** Reads the text before the next mark, and the tag, output, comment or raw text after it. */
  #readTextAndMark(): void {
    const start = this.#at;
    const mark = this.#findMark();
    const kind = this.#source[mark + 1];
    const raw = kind === "%" ? this.#match(RAW_START, mark) : undefined;
    const next = this.#source[mark + 2] ?? "";
    const sign = raw?.[1] ?? (next === "-" || next === "+" ? next : "");
    this.#addText(start, mark, sign, kind !== "{" && kind !== undefined);
    if (kind === undefined) {
      this.#at = mark;
    } else if (raw !== undefined) {
      this.#at = mark + raw[0].length;
      // Spaces that follow a line end here are stripped with it.
      this.#startsLine = false;
      this.#readRaw(mark);
    } else {
      this.#at = mark + 2 + sign.length;
      if (kind === "#") this.#readComment(mark);
      else this.#readTag(kind === "%", mark);
    }
  }

  /** Returns the position of the next `{{`, `{%` or `{#`, or the end. */
  #findMark(): number {
    for (let at = this.#at;;) {
      const open = this.#source.indexOf("{", at);
      if (open < 0) return this.#source.length;
      if ("{%#".includes(this.#source[open + 1] ?? "?")) return open;
      at = open + 1;
    }
  }

  /**
   * Adds text.
   *
   * @param sign the sign in the mark after it: `-` drops the spaces before, `+` keeps them
   * @param trims true if the spaces that start the line of the mark are dropped
   */
  #addText(start: number, end: number, sign: string, trims: boolean): void {
    let stop = end;
    if (sign === "-" || (trims && sign !== "+")) {
      while (stop > start && IS_SPACE.test(this.#source[stop - 1]!)) {
        if (sign !== "-" && this.#source[stop - 1] === "\n") break;
        stop--;
      }
      const atLineStart = stop === start ? this.#startsLine : this.#source[stop - 1] === "\n";
      if (sign !== "-" && !atLineStart) stop = end;
    }
    if (stop > start) this.#add("text", this.#source.slice(start, stop), start);
  }

  #readComment(mark: number): void {
    const end = this.#source.indexOf("#}", this.#at);
    if (end < 0) throw faultAt(mark, "the comment has no end; expected #}");
    const sign = end > this.#at ? this.#source[end - 1]! : "";
    this.#at = end + 2;
    this.#skipAfterMark(sign, true);
  }

  #readRaw(mark: number): void {
    RAW_END.lastIndex = this.#at;
    const end = RAW_END.exec(this.#source);
    if (end === null) throw faultAt(mark, "the raw text has no end; expected {% endraw %}");
    this.#addText(this.#at, end.index, end[1]!, true);
    this.#at = end.index + end[0].length;
    this.#startsLine = end[0].endsWith("\n");
  }

  #readTag(isTag: boolean, mark: number): void {
    const close = isTag ? "%}" : "}}";
    const open: string[] = [];
    this.#add(isTag ? "tag_start" : "output_start", this.#source.slice(mark, mark + 2), mark);
    for (;;) {
      this.#at += this.#match(SPACE_RUN, this.#at)![0].length;
      if (this.#at >= this.#source.length) return;
      if (open.length === 0) {
        const sign = this.#source[this.#at]!;
        const isSigned = (sign === "-" || (isTag && sign === "+")) &&
          this.#source.startsWith(close, this.#at + 1);
        if (isSigned || this.#source.startsWith(close, this.#at)) {
          this.#add(isTag ? "tag_end" : "output_end", close, this.#at);
          this.#at += isSigned ? 3 : 2;
          this.#skipAfterMark(isSigned ? sign : "", isTag);
          return;
        }
      }
      this.#readToken(open);
    }
  }

  /** Skips the spaces that the end of a mark strips. */
  #skipAfterMark(sign: string, trims: boolean): void {
    const start = this.#at;
    if (sign === "-") this.#at += this.#match(SPACE_RUN, start)![0].length;
    else if (trims && sign !== "+" && this.#source[start] === "\n") this.#at++;
    this.#startsLine = this.#at > start && this.#source[this.#at - 1] === "\n";
  }

  #readToken(open: string[]): void {
    const at = this.#at;
    const float = this.#match(FLOAT, at);
    const number = float ?? this.#match(INTEGER, at);
    if (number !== undefined) {
      const digits = number[0].replaceAll("_", "");
      if (digits.length > MAX_INTEGER_DIGITS) {
        throw faultAt(
          at,
          `a number has ${digits.length} characters; at most ${MAX_INTEGER_DIGITS} are valid`,
        );
      }
      const value = float === undefined ? BigInt(digits) : Number(digits);
      this.#tokens.push({ kind: "number", text: number[0], value, at });
      this.#at += number[0].length;
      return;
    }
    const name = NAME_START.test(this.#source[at]!)
      ? this.#match(ASCII_NAME, at) ?? this.#match(NAME, at)
      : undefined;
    if (name !== undefined) {
      this.#add("name", name[0].normalize("NFKC"), at);
      this.#at += name[0].length;
      return;
    }
    const first = this.#source[at]!;
    if (first === "'" || first === '"') return this.#readString(first);
    const operator = this.#match(OPERATOR, at)?.[0];
    if (operator === undefined) {
      const character = String.fromCodePoint(this.#source.codePointAt(at)!);
      throw faultAt(at, `unexpected character ${quote(character)}`);
    }
    const closing = CLOSING.get(operator);
    if (closing !== undefined) open.push(closing);
    else if (")]}".includes(operator)) {
      const expected = open.pop();
      if (expected !== operator) {
        const wanted = expected === undefined ? "" : `; expected "${expected}"`;
        throw faultAt(at, `unexpected "${operator}"${wanted}`);
      }
    }
    this.#add("operator", operator, at);
    this.#at += operator.length;
  }

  #readString(mark: string): void {
    const start = this.#at;
    let end = start + 1;
    while (end < this.#source.length && this.#source[end] !== mark) {
      end += this.#source[end] === "\\" ? 2 : 1;
    }
    if (end >= this.#source.length) {
      throw faultAt(start, `the string has no end; expected ${mark}`);
    }
    this.#add("string", unescape(this.#source.slice(start + 1, end), start), start);
    this.#at = end + 1;
  }

  #match(pattern: RegExp, at: number): RegExpExecArray | undefined {
    pattern.lastIndex = at;
    return pattern.exec(this.#source) ?? undefined;
  }

  #add(kind: TokenKind, text: string, at: number): void {
    this.#tokens.push({ kind, text, at });
  }
}

const ESCAPES: ReadonlyMap<string, string> = new Map([
  ["n", "\n"],
  ["r", "\r"],
  ["t", "\t"],
  ["a", "\x07"],
  ["b", "\b"],
  ["f", "\f"],
  ["v", "\v"],
  ["\\", "\\"],
  ["'", "'"],
  ['"', '"'],
  ["\n", ""],
]);

/** Resolves the escapes of a string as Python does; an unknown escape stays as it is. */
function unescape(text: string, at: number): string {
  if (!text.includes("\\")) return text;
  const escape = /\\(?:([0-7]{1,3})|x([\da-fA-F]{2})|u([\da-fA-F]{4})|U([\da-fA-F]{8})|([^]))/g;
  return text.replace(escape, (whole, octal, byte, short, long, character) => {
    if (octal !== undefined) return String.fromCodePoint(parseInt(octal, 8));
    const digits = byte ?? short ?? long;
    if (digits !== undefined && parseInt(digits, 16) <= 0x10ffff) {
      return String.fromCodePoint(parseInt(digits, 16));
    }
    const letter = whole[1]!;
    if (letter === "N") throw faultAt(at, "escapes \\N{…} of characters by name are not supported");
    if ("xuU".includes(letter)) {
      throw faultAt(at, `the string has an escape \\${letter} without a valid hexadecimal number`);
    }
    return ESCAPES.get(character) ?? whole;
  });
}

/** Returns an error at a position of the source. */
export function faultAt(at: number, message: string): TemplateError {
  const error = new TemplateError(message);
  error.at = at;
  return error;
}
