/**
 * Puts switches into C++, CUDA and Metal, as `switches.ts` does into TypeScript. The sources are
 * read as tokens, without a parser: only an operator with two operands has spaces on both sides,
 * and no pointer or bracket of a template. So a few switches do not compile, and are left out.
 */
import type { Placed, Switch } from "./switches.ts";

/** The function of `switches.h` that says if a switch is on. */
const IS_ON = "forge_switch_is_on";

interface Token {
  readonly kind: "word" | "number" | "operator" | "text";
  readonly text: string;
  readonly start: number;
  readonly end: number;
  /** From 1. */
  readonly line: number;
}

const TOKEN = new RegExp(
  [
    /(?<skipped>\s+|\/\/.*|\/\*[^]*?\*\/|^[ \t]*#(?:.*\\\n)*.*)/,
    /(?<text>R"\w*\([^]*?\)\w*"|[LuU8]*"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')/,
    /(?<number>\.?\d(?:[eEpP][+-]|[\w.']|)*)/,
    /(?<word>[A-Za-z_]\w*)/,
    /(?<operator><<=|>>=|<=>|->|::|\.\.\.|\+\+|--|<<|>>|[<>=!+*/%&|^-]=|&&|\|\||[^])/,
  ].map(({ source }) => source).join("|"),
  "gmy",
);

function tokensOf(source: string): Token[] {
  const tokens: Token[] = [];
  let line = 1;
  for (const { index, groups = {}, 0: text } of source.matchAll(TOKEN)) {
    const start = line;
    line += text.split("\n").length - 1;
    if (groups.skipped !== undefined) continue;
    const kind = (["text", "number", "word", "operator"] as const).find((kind) =>
      groups[kind] !== undefined
    )!;
    tokens.push({ kind, text, start: index, end: index + text.length, line: start });
  }
  return tokens;
}

/** Operators with two operands, and their precedence. */
const PRECEDENCE: Readonly<Record<string, number>> = {
  ...{ "*": 10, "/": 10, "%": 10, "+": 9, "-": 9, "<<": 8, ">>": 8 },
  ...{ "<": 7, "<=": 7, ">": 7, ">=": 7, "==": 6, "!=": 6 },
  ...{ "&": 5, "^": 4, "|": 3, "&&": 2, "||": 1 },
};
const SWAPPED: Readonly<Record<string, string>> = {
  ...{ "<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "==" },
  ...{ "+": "-", "-": "+", "*": "+", "&": "|", "|": "&" },
};
const LOGICAL: ReadonlySet<string> = new Set(["&&", "||"]);
/** Words after which an expression begins. */
const BEFORE_EXPRESSIONS: ReadonlySet<string> = new Set(["return", "else", "case", "co_yield"]);
/** Words that begin statements other than calls and assignments. */
const NO_CALLS: ReadonlySet<string> = new Set(
  "return throw using goto if for while switch do else delete static_assert asm case".split(" "),
);
const OPENERS: Readonly<Record<string, string>> = { ")": "(", "]": "[", "}": "{", ">": "<" };

/** The tokens of a source, and which of them mistakes leave alone. */
class Source {
  readonly tokens: readonly Token[];
  /** Of a bracket, the index of its partner. */
  readonly #partners = new Map<number, number>();
  readonly #text: string;
  /** Tokens in which nothing is evaluated at run time. */
  readonly #constant: Uint8Array;

  constructor(text: string) {
    this.#text = text;
    this.tokens = tokensOf(text);
    this.#constant = new Uint8Array(this.tokens.length);
    this.#pairBrackets();
    this.#findConstants();
  }

  is(at: number, ...texts: readonly string[]): boolean {
    const token = this.tokens[at];
    return token !== undefined && token.kind !== "text" && texts.includes(token.text);
  }

  isConstant(at: number): boolean {
    return this.#constant[at] === 1;
  }

  partner(at: number): number | undefined {
    return this.#partners.get(at);
  }

  /** The text of the tokens from `first` to `last`, inclusive. */
  text(first: number, last: number): string {
    return this.#text.slice(this.tokens[first]!.start, this.tokens[last]!.end);
  }

  isSpaced(at: number): boolean {
    const { start, end } = this.tokens[at]!;
    return /\s/.test(this.#text[start - 1] ?? "") && /\s/.test(this.#text[end] ?? "");
  }

  #pairBrackets(): void {
    const open: number[] = [];
    const close = (opener: string, at: number) => {
      while (open.length > 0) {
        const begin = open.pop()!;
        if (!this.is(begin, opener)) {
          if (this.is(begin, "<")) continue;
          return;
        }
        this.#partners.set(begin, at).set(at, begin);
        return;
      }
    };
    this.tokens.forEach(({ kind, text }, at) => {
      if (kind !== "operator") return;
      if ("([{".includes(text)) open.push(at);
      else if (text === "<" && (!this.isSpaced(at) || this.is(at - 1, "template"))) open.push(at);
      else if (")]}".includes(text)) close(OPENERS[text]!, at);
      else if (text === ">" || text === ">>") {
        for (let i = 0; i < text.length; i++) if (this.is(open.at(-1) ?? -1, "<")) close("<", at);
      }
    });
  }

  /** Marks tokens from `first` to `last`, inclusive. */
  #mark(first: number, last: number | undefined): void {
    this.#constant.fill(1, first, (last ?? first) + 1);
  }

  /** The first token from `at` on that is one of `texts` outside of brackets. */
  find(at: number, ...texts: readonly string[]): number {
    for (; at < this.tokens.length && !this.is(at, ...texts); at++) {
      if (this.is(at, ...Object.values(OPENERS))) at = Math.max(at, this.partner(at) ?? at);
    }
    return at;
  }

  #findConstants(): void {
    for (let at = 0; at < this.tokens.length; at++) {
      if (this.is(at, "<") && this.partner(at) !== undefined) this.#mark(at, this.partner(at));
      if (this.is(at, "static_assert", "alignas", "INSTANCE", "__launch_bounds__", "sizeof")) {
        this.#mark(at, this.partner(at + 1));
      }
      if (this.is(at, "[") && this.is(at + 1, "[")) this.#mark(at, this.partner(at));
      if (this.is(at, "asm", "throw", "using", "typedef")) this.#mark(at, this.find(at, ";"));
      if (this.is(at, "fail")) this.#mark(at, this.partner(at + 1));
      if (this.is(at, "case")) this.#mark(at, this.find(at, ":"));
      if (this.is(at, "operator")) this.#mark(at, this.find(at, "("));
      if (this.is(at, "enum")) {
        const body = this.find(at, "{", ";");
        this.#mark(at, this.partner(body));
      }
      if (this.is(at, "constexpr") && this.is(at - 1, "if")) this.#mark(at, this.partner(at + 1));
      else if (this.is(at, "constexpr")) {
        // A variable, unless a list of parameters follows.
        const end = this.find(at, "(", "=", "{", ";");
        if (!this.is(end, "(")) this.#mark(at, this.find(at, ";"));
      }
    }
  }

  /** The precedence of an operator with two operands; undefined for other tokens. */
  precedence(at: number): number | undefined {
    const { kind, text } = this.tokens[at]!;
    if (kind !== "operator" || !this.isSpaced(at) || this.partner(at) !== undefined) return;
    const before = this.tokens[at - 1];
    const isOperand = before !== undefined && !BEFORE_EXPRESSIONS.has(before.text) &&
      (before.kind !== "operator" || ")]}>".includes(before.text));
    return isOperand ? PRECEDENCE[text] : undefined;
  }

  #ends(at: number): boolean {
    return this.is(at, ",", ";", "?", ":", "=") ||
      this.tokens[at]!.kind === "operator" && /^[^=!<>]+=$|^<<=$|^>>=$/.test(this.tokens[at]!.text);
  }

  /** The first token of the operand that ends before `at`, an operator of this precedence. */
  left(at: number, precedence: number): number {
    let first = at;
    while (first > 0) {
      const before = first - 1;
      const partner = this.partner(before);
      if (partner !== undefined && partner < before) {
        // The end of a block, or an object in braces after its type.
        if (this.is(before, "}") && !/^\w+$/.test(this.tokens[partner - 1]?.text ?? "")) break;
        first = partner;
        continue;
      }
      if (partner !== undefined || this.is(before, "{", "(", "[") || this.#ends(before)) break;
      if (BEFORE_EXPRESSIONS.has(this.tokens[before]!.text)) break;
      if ((this.precedence(before) ?? Infinity) < precedence) break;
      first = before;
    }
    return first;
  }

  /** The last token of the operand that begins after `at`, an operator of this precedence. */
  right(at: number, precedence: number): number {
    let last = at;
    while (last + 1 < this.tokens.length) {
      const next = last + 1;
      const partner = this.partner(next);
      if (partner !== undefined && partner > next) {
        last = partner;
        continue;
      }
      if (partner !== undefined || this.is(next, ")", "]", "}") || this.#ends(next)) break;
      if ((this.precedence(next) ?? Infinity) <= precedence) break;
      last = next;
    }
    return last;
  }

  /** The last token of a name with its calls, members and subscripts. */
  primary(at: number): number {
    let last = this.is(at, "(") ? this.partner(at) ?? at : at;
    while (true) {
      const next = last + 1;
      if (this.is(next, "::", ".", "->")) last = next + 1;
      else if (this.is(next, "(", "[", "<") && this.partner(next) !== undefined) {
        last = this.partner(next)!;
      } else return last;
    }
  }

  /** True if a statement may begin at a token. */
  beginsStatement(at: number): boolean {
    if (this.is(at - 1, ";", "{", "}", "else")) return true;
    const begin = this.is(at - 1, ")") ? this.partner(at - 1) ?? 0 : 0;
    return begin > 0 && this.is(begin - 1, "if", "for", "while", "constexpr");
  }
}

/** A mistake in the tokens from `first` to `last`, inclusive. */
interface Mistake {
  readonly first: number;
  readonly last: number;
  /** Text that replaces the tokens; empty if the statement is removed. */
  readonly after: string;
  readonly isCondition?: boolean;
}

/** Returns the mistakes at a token, outermost first. */
function mistakesAt(source: Source, at: number): Mistake[] {
  const { kind, text } = source.tokens[at]!;
  if (source.isConstant(at)) return [];
  const found: Mistake[] = [];
  const isMacro = /^[A-Z_]+$/.test(text);
  const mayCall = kind === "word" && !NO_CALLS.has(text) && !isMacro || text === "*";
  if (source.beginsStatement(at) && mayCall) {
    const last = source.find(at, ";", "{", "}", ")");
    const name = source.primary(text === "*" ? at + 1 : at);
    const isAssignment = source.tokens[name + 1]?.kind === "operator" &&
      /^(=|[^=!<>]+=|<<=|>>=|\+\+|--)$/.test(source.tokens[name + 1]!.text);
    const isCall = source.is(name, ")") && name + 1 === last;
    if (source.is(last, ";") && (isAssignment || isCall)) {
      found.push({ first: at, last, after: "" });
    }
  }
  if (source.is(at, "if", "while") && source.is(at + 1, "(")) {
    const first = at + 2, last = (source.partner(at + 1) ?? 0) - 1;
    const isDeclaration = source.find(first, "=", ";") <= last;
    const values = text === "if" ? ["false", "true"] : ["false"];
    if (last >= first && !isDeclaration) {
      found.push(...values.map((after) => ({ first, last, after, isCondition: true })));
    }
  }
  if (source.is(at, "min", "max") && !source.is(at - 1, ".", "->", ":")) {
    const first = source.is(at - 1, "::") && source.is(at - 2, "std") ? at - 2 : at;
    const last = source.primary(at);
    if (source.is(last, ")")) {
      const swapped = text === "min" ? "max" : "min";
      const name = first === at ? swapped : `std::${swapped}`;
      found.push({ first, last, after: name + source.text(at + 1, last) });
    }
  }
  if (kind === "number") {
    const isFloat = /^[^xX]*[.eE]/.test(text) && !/^0[xX]/.test(text);
    const suffix = text.endsWith("f") ? "f" : "";
    found.push({ first: at, last: at, after: isFloat ? `${text} * 1.1${suffix}` : `${text} + 1` });
  }
  if (source.is(at, "true", "false")) {
    found.push({ first: at, last: at, after: text === "true" ? "false" : "true" });
  }
  if (source.is(at, "!")) {
    const last = source.primary(at + 1);
    found.push({ first: at, last, after: `bool(${source.text(at + 1, last)})` });
  }
  const precedence = source.precedence(at);
  if (precedence !== undefined) {
    const first = source.left(at, precedence), last = source.right(at, precedence);
    if (first === at || last === at) return found;
    const left = source.text(first, at - 1), right = source.text(at + 1, last);
    const swapped = SWAPPED[text];
    // Texts joined in another way are mostly messages.
    if (swapped !== undefined && !/["']/.test(left + right)) {
      found.push({ first, last, after: `${left} ${swapped} ${right}` });
    } else if (LOGICAL.has(text)) {
      found.push({ first, last, after: `bool(${left})` }, { first, last, after: `bool(${right})` });
    } else if (swapped === undefined) {
      found.push({ first, last, after: left });
    }
  }
  if (source.is(at, "?")) {
    const first = source.left(at, 0), last = source.right(at, 0);
    const otherwise = last + 1;
    if (first === at || !source.is(otherwise, ":")) return found;
    const end = source.right(otherwise, 0);
    // A value of another conditional.
    if (source.is(end + 1, "?") || end === otherwise) return found;
    found.push(
      { first, last: end, after: source.text(at + 1, last) },
      { first, last: end, after: source.text(otherwise + 1, end) },
    );
  }
  return found;
}

/**
 * Returns the source with switches, on the same lines, and all switches.
 *
 * @param firstId id of the first switch; the others follow
 * @param isPlaced true for the id of a switch that the source shall contain
 */
export function withNativeSwitches(
  file: string,
  text: string,
  firstId: number,
  isPlaced: (id: number) => boolean,
): Placed {
  const source = new Source(text);
  const switches: Switch[] = [];
  const wraps: { first: number; last: number; begin: string; end: string }[] = [];
  for (let at = 0; at < source.tokens.length; at++) {
    for (const { first, last, after, isCondition = false } of mistakesAt(source, at)) {
      const id = firstId + switches.length;
      const { line } = source.tokens[first]!;
      switches.push({ id, file, line, before: source.text(first, last), after });
      if (!isPlaced(id)) continue;
      const isOn = `${IS_ON}(${id})`;
      wraps.push(
        after === ""
          ? { first, last, begin: `{if(!${isOn}){`, end: "}}" }
          : { first, last, begin: `(${isOn}?(${after}):${isCondition ? "bool" : ""}(`, end: "))" },
      );
    }
  }
  // Those that enclose others come first.
  wraps.sort((a, b) => b.last - b.first - (a.last - a.first));
  const prefixes = source.tokens.map(() => ""), suffixes = source.tokens.map(() => "");
  for (const { first, last, begin, end } of wraps) {
    prefixes[first] += begin;
    suffixes[last] = end + suffixes[last];
  }
  let result = "", end = 0;
  source.tokens.forEach((token, at) => {
    result += text.slice(end, token.start) + prefixes[at] + token.text + suffixes[at];
    end = token.end;
  });
  return { source: result + text.slice(end), switches };
}
