import { type Anchor, type CharSet, type Node, PatternError, type SetItem, WORD } from "./ast.ts";

/**
 * Writes a parsed pattern as the source of a JavaScript regular expression for the `u` flag.
 *
 * @throws PatternError if JavaScript has no equivalent
 */
export function emitPattern(node: Node): string {
  return new Emitter().emit(node, true);
}

class Emitter {
  #captures = 0;
  #inLookbehind = false;

  /** @param isLast true if nothing follows `node` in the pattern */
  emit(node: Node, isLast: boolean): string {
    switch (node.kind) {
      case "set":
        return emitSet(node.set);
      case "sequence":
        return node.items.map((item, i) => {
          const last = isLast && i === node.items.length - 1;
          return item.kind === "choice" ? `(?:${this.emit(item, last)})` : this.emit(item, last);
        }).join("");
      case "choice":
        return node.options.map((option) => this.emit(option, isLast)).join("|");
      case "repeat":
        return this.#repeat(node);
      case "atomic":
        return this.#atomic(node.body, isLast);
      case "case":
        return `(?${node.ignore ? "" : "-"}i:${this.emit(node.body, isLast)})`;
      case "look":
        return this.#look(node);
      case "anchor":
        return emitAnchor(node.at);
    }
  }

  #repeat(node: Node & { kind: "repeat" }): string {
    const body = this.emit(node.body, false);
    const atom = node.body.kind === "set" ? body : `(?:${body})`;
    const { min, max } = node;
    let count = `{${min},${max === Infinity ? "" : max}}`;
    if (max === Infinity && min <= 1) count = min === 0 ? "*" : "+";
    else if (max === 1 && min === 0) count = "?";
    else if (min === max) count = `{${min}}`;
    return `${atom}${count}${node.lazy ? "?" : ""}`;
  }

  #atomic(body: Node, isLast: boolean): string {
    // A greedy match backtracks only if a later part fails.
    if (isLast) return `(?:${this.emit(body, isLast)})`;
    if (this.#inLookbehind) throw new PatternError("an atomic group in a lookbehind");
    // JavaScript never backtracks into a lookahead.
    const capture = ++this.#captures;
    return `(?:(?=(${this.emit(body, false)}))\\${capture})`;
  }

  #look(node: Node & { kind: "look" }): string {
    const wasInLookbehind = this.#inLookbehind;
    this.#inLookbehind ||= !node.ahead;
    const body = this.emit(node.body, false);
    this.#inLookbehind = wasInLookbehind;
    return `(?${node.ahead ? "" : "<"}${node.negative ? "!" : "="}${body})`;
  }
}

/** Writes a set as an expression that matches exactly one code point. */
export function emitSet(set: CharSet): string {
  const items = flatten(set.items);
  const plain = items.filter((item) => item.kind !== "set");
  const sets = items.flatMap((item) => item.kind === "set" ? [item.set] : []);
  if (sets.length === 0 && !set.and) {
    return `[${set.negated ? "^" : ""}${plain.map(emitItem).join("")}]`;
  }
  const parts = sets.map(emitSet);
  if (plain.length > 0) parts.push(`[${plain.map(emitItem).join("")}]`);
  const union = parts.length === 1 ? parts.join("") : `(?:${parts.join("|")})`;
  const cut = set.and ? `(?:(?=${union})${emitSet(set.and)})` : union;
  return set.negated ? `(?:(?!${cut})[^])` : cut;
}

/** Flattens nested unions to a list of items. */
function flatten(items: readonly SetItem[]): SetItem[] {
  return items.flatMap((item) => {
    if (item.kind !== "set" || item.set.negated || item.set.and) return [item];
    return flatten(item.set.items);
  });
}

function emitItem(item: SetItem): string {
  if (item.kind === "escape") return item.source;
  if (item.kind === "set") return "";
  const low = emitCodePoint(item.low);
  return item.low === item.high ? low : `${low}-${emitCodePoint(item.high)}`;
}

function emitCodePoint(codePoint: number): string {
  const character = String.fromCodePoint(codePoint);
  return /[A-Za-z0-9 ]/.test(character) ? character : `\\u{${codePoint.toString(16)}}`;
}

function emitAnchor(at: Anchor): string {
  switch (at) {
    case "line start":
      return "(?:(?<![^])|(?<=\\n)(?=[^]))";
    case "line end":
      return "(?![^\\n])";
    case "text start":
      return "(?<![^])";
    case "text end":
      return "(?![^])";
    case "last line end":
      return "(?=\\n?(?![^]))";
    case "word boundary":
      return `(?:${AFTER_WORD}${NOT_BEFORE_WORD}|${NOT_AFTER_WORD}${BEFORE_WORD})`;
    case "no word boundary":
      return `(?:${AFTER_WORD}${BEFORE_WORD}|${NOT_AFTER_WORD}${NOT_BEFORE_WORD})`;
  }
}

const WORD_SET = emitSet(WORD);
const AFTER_WORD = `(?<=${WORD_SET})`, NOT_AFTER_WORD = `(?<!${WORD_SET})`;
const BEFORE_WORD = `(?=${WORD_SET})`, NOT_BEFORE_WORD = `(?!${WORD_SET})`;
