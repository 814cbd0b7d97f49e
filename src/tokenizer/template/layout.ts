/** Layout of text for people: the filters `wordwrap`, `pprint` and `urlize`. */
import { PRICES, type TemplateBudget } from "./budget.ts";
import { SPACES } from "./lexer.ts";
import {
  type Arguments,
  codePointCount,
  compare,
  Dict,
  escapeHtml,
  isInteger,
  isText,
  isTrue,
  iterate,
  plain,
  repr,
  TemplateError,
  toIndex,
  Tuple,
  typeName,
  type Value,
} from "./values.ts";

/** Line breaking rules of `wordwrap`. */
interface WrapOptions {
  readonly width: number;
  readonly breaksLongWords: boolean;
  readonly breaksOnHyphens: boolean;
}

const CHUNK = /[\t-\r ]+|[^\t-\r ]+/g;
const LETTER = "[\\p{L}\\p{Nl}\\p{No}_]";
/**
 * Parts of a word, as in Python's `textwrap`: a part ends at a hyphen between letters of which two
 * stand on each side, or at a dash.
 */
const HYPHENATED = new RegExp(
  "(?<=[\\p{L}\\p{N}_!\"'&.,?])-{2,}(?=[\\p{L}\\p{N}_])|" +
    `.+?(?:-(?<=${LETTER}{2}-|${LETTER}-${LETTER}-)(?=${LETTER}-?${LETTER})|$|` +
    "(?<=[\\p{L}\\p{N}_!\"'&.,?])(?=-{2,}[\\p{L}\\p{N}_]))",
  "gsu",
);

/** Wraps each line to a width, as Python's `textwrap` does. */
export function wrapLines(
  lines: readonly string[],
  options: WrapOptions,
  budget: TemplateBudget,
): string[] {
  if (options.width <= 0) {
    throw new TemplateError(`the width of wordwrap is ${options.width}; it must be 1 or more`);
  }
  // A line without words stays as an empty one.
  return lines.flatMap((line) => {
    const wrapped = wrapLine(line, options, budget);
    return wrapped.length === 0 ? [""] : wrapped;
  });
}

function wrapLine(line: string, options: WrapOptions, budget: TemplateBudget): string[] {
  budget.payText(2 * line.length);
  const chunks: string[] = [];
  for (const [chunk] of line.matchAll(CHUNK)) {
    // The search for dashes takes time with the square of the word's length.
    budget.pay(PRICES.value + chunk.length ** 2 * PRICES.scan);
    if (chunk.trim() === "" || !options.breaksOnHyphens) chunks.push(chunk);
    else chunks.push(...chunk.match(HYPHENATED) ?? []);
  }
  chunks.reverse();
  const lines: string[] = [];
  while (chunks.length > 0) {
    if (lines.length > 0 && chunks.at(-1)!.trim() === "") chunks.pop();
    const current: string[] = [];
    let width = 0;
    while (chunks.length > 0) {
      const size = codePointCount(chunks.at(-1)!);
      if (width + size > options.width) break;
      current.push(chunks.pop()!);
      width += size;
    }
    if (chunks.length > 0 && codePointCount(chunks.at(-1)!) > options.width) {
      budget.payText(chunks.at(-1)!.length);
      breakLongWord(chunks, current, width, options);
    }
    if (current.length > 0 && current.at(-1)!.trim() === "") current.pop();
    if (current.length > 0) lines.push(current.join(""));
  }
  return lines;
}

/** Moves the part of a word that fits to the line; an unbreakable word gets a line of its own. */
function breakLongWord(
  chunks: string[],
  current: string[],
  width: number,
  options: WrapOptions,
): void {
  if (options.breaksLongWords) {
    const characters = Array.from(chunks.pop()!);
    let room = options.width - width;
    if (options.breaksOnHyphens && characters.length > room) {
      const hyphen = characters.slice(0, room).lastIndexOf("-");
      if (hyphen > 0 && characters.slice(0, hyphen).some((character) => character !== "-")) {
        room = hyphen + 1;
      }
    }
    current.push(characters.slice(0, room).join(""));
    chunks.push(characters.slice(room).join(""));
  } else if (current.length === 0) current.push(chunks.pop()!);
}

const PRETTY_WIDTH = 80;

/** Python's `pprint.pformat`: dicts in the order of their keys, long values over several lines. */
export function prettyPrint(value: Value, budget: TemplateBudget): string {
  return pretty(value, 0, 0, budget);
}

/** @param allowance characters that follow the value on its last line */
function pretty(value: Value, column: number, allowance: number, budget: TemplateBudget): string {
  const line = repr(sorted(value, budget), budget);
  budget.payText(line.length);
  if (line.length <= PRETTY_WIDTH - column - allowance) return line;
  return budget.nested(() => {
    if (value instanceof Dict && value.size > 0) {
      const entries = sortedEntries(value, budget);
      return `{${
        entries.map(([key, item], index) => {
          const name = `${repr(key, budget)}: `;
          const after = index === entries.length - 1 ? allowance + 1 : 1;
          return name + pretty(item, column + 1 + name.length, after, budget);
        }).join(`,\n${" ".repeat(column + 1)}`)
      }}`;
    }
    const isTuple = value instanceof Tuple;
    const items = isTuple ? value.items : value;
    if (Array.isArray(items) && items.length > 0) {
      const close = isTuple ? (items.length === 1 ? ",)" : ")") : "]";
      const parts = items.map((item, index) => {
        const after = index === items.length - 1 ? allowance + close.length : 1;
        return pretty(item, column + 1, after, budget);
      });
      return (isTuple ? "(" : "[") + parts.join(`,\n${" ".repeat(column + 1)}`) + close;
    }
    const splits = typeof value === "string" && value !== "";
    return splits ? prettyText(value, column, allowance, budget) : line;
  });
}

/** Writes long text as several adjacent literals, split after spaces. */
function prettyText(
  text: string,
  column: number,
  allowance: number,
  budget: TemplateBudget,
): string {
  const isTop = column === 0;
  const indent = isTop ? 1 : column;
  const rest = allowance + (isTop ? 1 : 0);
  const chunks: string[] = [];
  const lines = text.split(/(?<=\n)/);
  for (const [index, line] of lines.entries()) {
    const room = PRETTY_WIDTH - indent - (index === lines.length - 1 ? rest : 0);
    if (repr(line, budget).length <= room) {
      chunks.push(repr(line, budget));
      continue;
    }
    const parts = line.match(/\S*\s*/g)!.filter((part) => part !== "");
    let current = "";
    for (const [position, part] of parts.entries()) {
      const isLast = index === lines.length - 1 && position === parts.length - 1;
      const size = PRETTY_WIDTH - indent - (isLast ? rest : 0);
      if (repr(current + part, budget).length > size && current !== "") {
        chunks.push(repr(current, budget));
        current = part;
      } else current += part;
    }
    if (current !== "") chunks.push(repr(current, budget));
  }
  if (chunks.length === 1) return chunks[0]!;
  const joined = chunks.join(`\n${" ".repeat(indent)}`);
  return isTop ? `(${joined})` : joined;
}

function sortedEntries(dict: Dict, budget: TemplateBudget): [Value, Value][] {
  const rank = (a: Value, b: Value) => {
    try {
      return compare(a, b, budget);
    } catch (error) {
      if (!(error instanceof TemplateError)) throw error;
      // As pprint does, by the names of their types.
      const [x, y] = [typeName(a), typeName(b)];
      return x < y ? -1 : Number(x > y);
    }
  };
  return Array.from(dict.entries()).sort(([a], [b]) => rank(a, b));
}

function sorted(value: Value, budget: TemplateBudget): Value {
  return budget.nested(() => {
    if (Array.isArray(value)) return value.map((item) => sorted(item, budget));
    if (value instanceof Tuple) return new Tuple(value.items.map((item) => sorted(item, budget)));
    if (!(value instanceof Dict)) return value;
    return new Dict(
      sortedEntries(value, budget).map(([key, item]) => [key, sorted(item, budget)] as const),
    );
  });
}

const WEB_ADDRESS = new RegExp(
  "^(?:(?:https?://|www\\.)(?:(?:[\\w%-]+\\.)+)?(?:[a-z]{2,63}|xn--[\\w%]{2,59})" +
    "|(?:[\\w%-]{2,63}\\.)+(?:com|net|int|edu|gov|org|info|mil)" +
    "|https?://(?:\\d{1,3}(?:\\.\\d{1,3}){3}|\\[(?:[\\da-f]{0,4}:){2}(?:[\\da-f]{0,4}:?){1,6}\\]))" +
    "(?::\\d{1,5})?(?:[/?#]\\S*)?$",
  "i",
);
const MAIL_ADDRESS = /^\S+@\w[\w.-]*\.\w+$/;
const BRACKETS = [["(", ")"], ["<", ">"], ["&lt;", "&gt;"]] as const;

/** Converts a value to HTML with links for its web and mail addresses. */
export function urlize(value: Value, args: Arguments, budget: TemplateBudget): string {
  const [limit, nofollow, target, rel, schemes] = args.bind(
    "urlize",
    "trim_url_limit?",
    "nofollow?",
    "target?",
    "rel?",
    "extra_schemes?",
  );
  const relations = new Set(isText(rel) ? plain(rel).split(/\s+/).filter((word) => word) : []);
  if (isTrue(nofollow ?? false)) relations.add("nofollow");
  relations.add("noopener");
  const attribute = (name: string, value: string) => {
    return value === "" ? "" : ` ${name}="${escapeHtml(value, budget).text}"`;
  };
  const attributes = attribute("rel", Array.from(relations).sort().join(" ")) +
    attribute("target", isText(target) ? plain(target) : "");
  const most = isInteger(limit) ? toIndex(limit) : Infinity;
  const shorten = (address: string) => {
    return address.length > most ? `${address.slice(0, most)}...` : address;
  };
  const extra = schemes === undefined || schemes === null
    ? []
    : Array.from(iterate(schemes, budget), (scheme) => {
      if (isText(scheme) && /^[\w.+-]{2,}:\/{0,2}$/.test(plain(scheme))) return plain(scheme);
      throw new TemplateError(
        `urlize got the scheme ${repr(scheme, budget)}; valid are schemes such as tel: or ftp://`,
      );
    });
  const link = (address: string): string => {
    if (WEB_ADDRESS.test(address)) {
      const full = /^https?:\/\//.test(address) ? address : `https://${address}`;
      return `<a href="${full}"${attributes}>${shorten(address)}</a>`;
    }
    if (address.startsWith("mailto:") && MAIL_ADDRESS.test(address.slice(7))) {
      return `<a href="${address}">${address.slice(7)}</a>`;
    }
    const isMail = /^(?!www\.|@)[^:]*@/.test(address) && !address.includes(":");
    if (isMail && MAIL_ADDRESS.test(address)) return `<a href="mailto:${address}">${address}</a>`;
    return extra.some((scheme) => address !== scheme && address.startsWith(scheme))
      ? `<a href="${address}"${attributes}>${address}</a>`
      : address;
  };
  const escaped = escapeHtml(value, budget).text;
  budget.payText(4 * escaped.length);
  return escaped.split(new RegExp(`([${SPACES}]+)`)).map((word) => {
    budget.pay(PRICES.value + attributes.length * PRICES.character);
    const head = /^(?:[(<]|&lt;)*/.exec(word)![0];
    let middle = word.slice(head.length);
    let tail = "";
    for (let end; (end = /(?:[)>.,\n]|&gt;)$/.exec(middle)?.[0]) !== undefined;) {
      middle = middle.slice(0, -end.length);
      tail = end + tail;
      budget.pay(word.length * PRICES.scan);
    }
    for (const [open, close] of BRACKETS) {
      let missing = middle.split(open).length - middle.split(close).length;
      for (; missing > 0 && tail.includes(close); missing--) {
        const end = tail.indexOf(close) + close.length;
        middle += tail.slice(0, end);
        tail = tail.slice(end);
        budget.pay(word.length * PRICES.scan);
      }
    }
    return head + link(middle) + tail;
  }).join("");
}
