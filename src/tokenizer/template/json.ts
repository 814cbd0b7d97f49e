import { PRICES, type TemplateBudget } from "./budget.ts";
import {
  compare,
  Dict,
  floatText,
  integerText,
  isText,
  plain,
  TemplateError,
  Tuple,
  typeName,
  Undefined,
  type Value,
} from "./values.ts";

/** Format of `tojson`, as the arguments of Python's `json.dumps`. */
interface JsonStyle {
  /** Writes characters beyond ASCII as escapes. */
  readonly ascii: boolean;
  /** Indentation of each level: a number of spaces, or text. */
  readonly indent: number | string | undefined;
  /** Separators of items, and of keys and values. */
  readonly separators: [item: string, key: string] | undefined;
  readonly sortsKeys: boolean;
}

/** Writes a value as JSON, as Python does. */
export function writeJson(value: Value, style: JsonStyle, budget: TemplateBudget): string {
  return new JsonWriter(style, budget).write(value, "\n");
}

class JsonWriter {
  readonly #style: JsonStyle;
  readonly #budget: TemplateBudget;
  readonly #step: string | undefined;
  readonly #between: string;
  readonly #colon: string;

  constructor(style: JsonStyle, budget: TemplateBudget) {
    this.#style = style;
    this.#budget = budget;
    const { indent } = style;
    if (typeof indent === "number") budget.payText(indent);
    this.#step = typeof indent === "number" ? " ".repeat(indent) : indent;
    [this.#between, this.#colon] = style.separators ?? [indent === undefined ? ", " : ",", ": "];
  }

  /** @param margin the line end and indentation of the value */
  write(value: Value, margin: string): string {
    this.#budget.pay(PRICES.value);
    if (isText(value)) return this.#quote(plain(value));
    if (value === null) return "null";
    if (typeof value === "boolean") return value ? "true" : "false";
    if (typeof value === "bigint") return integerText(value, this.#budget);
    if (typeof value === "number") return numberText(value);
    const inner = this.#step === undefined ? "" : margin + this.#step;
    const outer = this.#step === undefined ? "" : margin;
    return this.#budget.nested(() => {
      if (value instanceof Dict) {
        return this.#wrap("{", this.#entries(value, inner), "}", inner, outer);
      }
      const items = value instanceof Tuple ? value.items : value;
      if (!Array.isArray(items)) {
        const what = value instanceof Undefined
          ? value.error().message
          : `JSON has no type for ${typeName(value)}`;
        throw new TemplateError(`tojson cannot write a value: ${what}`);
      }
      return this.#wrap("[", items.map((item) => this.write(item, inner)), "]", inner, outer);
    });
  }

  #wrap(open: string, parts: string[], close: string, inner: string, outer: string): string {
    if (parts.length === 0) return open + close;
    this.#budget.payText(parts.length * (this.#between.length + inner.length));
    const text = open + inner + parts.join(this.#between + inner) + outer + close;
    // Text is copied once for each level of nesting.
    this.#budget.pay(text.length * PRICES.scan);
    return text;
  }

  #entries(dict: Dict, margin: string): string[] {
    const entries = Array.from(dict.entries());
    if (this.#style.sortsKeys) entries.sort(([a], [b]) => compare(a, b, this.#budget));
    return entries.map(([key, value]) => {
      this.#budget.payText(this.#colon.length);
      return this.#quote(keyText(key, this.#budget)) + this.#colon + this.write(value, margin);
    });
  }

  #quote(text: string): string {
    // One character can become an escape of six.
    this.#budget.payText(2 * text.length);
    const json = JSON.stringify(text);
    if (!this.#style.ascii) return json;
    this.#budget.payText(6 * text.length);
    return json.replace(
      /[^ -~]/g,
      (character) => `\\u${character.charCodeAt(0).toString(16).padStart(4, "0")}`,
    );
  }
}

function numberText(value: number): string {
  if (Number.isNaN(value)) return "NaN";
  if (!Number.isFinite(value)) return value < 0 ? "-Infinity" : "Infinity";
  return floatText(value);
}

function keyText(key: Value, budget: TemplateBudget): string {
  if (isText(key)) return plain(key);
  if (key === null) return "null";
  if (typeof key === "boolean") return key ? "true" : "false";
  if (typeof key === "bigint") return integerText(key, budget);
  if (typeof key === "number") return numberText(key);
  throw new TemplateError(`tojson got a key of type ${typeName(key)}; JSON keys are text`);
}
