import { Environment } from "jinja";
import { PRICES, type TemplateBudget } from "./budget.ts";

/** A value while a template runs. */
export type TemplateValue = ReturnType<Environment["lookupVariable"]>;
/** Text. */
export type TextValue = Extract<TemplateValue, { value: string }>;
/** A list or a tuple. */
export type ListValue = Extract<TemplateValue, { value: TemplateValue[] }>;
/** A dict or a namespace. */
export type MappingValue = Extract<TemplateValue, { value: Map<string, TemplateValue> }>;

/** Whether it is text. */
export function isText(value: TemplateValue): value is TextValue {
  return value.type === "StringValue";
}

/** Whether it is a list or a tuple. */
export function isList(value: TemplateValue): value is ListValue {
  return value.type === "ArrayValue" || value.type === "TupleValue";
}

/** Whether it is a dict or a namespace. */
export function isMapping(value: TemplateValue): value is MappingValue {
  return value.value instanceof Map;
}

/** Whether it can be called. */
export function isFunction(value: TemplateValue): boolean {
  return value.type === "FunctionValue";
}

/** Whether it is `none`. */
export function isNone(value: TemplateValue): boolean {
  return value.type === "NullValue";
}

/** Whether it is what a name stands for that nothing defines. */
export function isUndefined(value: TemplateValue): boolean {
  return value.type === "UndefinedValue";
}

/** A plain JavaScript value as a template value; `undefined` becomes the undefined of templates. */
export function templateValue(value: unknown): TemplateValue {
  return new Environment().set("value", value);
}

/** Text as a template value, paid for. */
export function textValue(text: string, budget: TemplateBudget): TemplateValue {
  budget.payText(text.length);
  return templateValue(text);
}

/** How large a value is, counting shared parts as often as they are reached. */
export interface ValueSize {
  readonly values: number;
  readonly characters: number;
  readonly depth: number;
}

/** Measures a value, paying for every part it visits. */
export function measure(value: TemplateValue, budget: TemplateBudget): ValueSize {
  const size = { values: 0, characters: 0, depth: 0 };
  addSize(value, budget, size, 0);
  return size;
}

function addSize(
  value: TemplateValue,
  budget: TemplateBudget,
  size: { values: number; characters: number; depth: number },
  depth: number,
): void {
  budget.pay(PRICES.visit);
  size.values++;
  size.depth = Math.max(size.depth, depth);
  if (isText(value)) {
    size.characters += value.value.length;
  } else if (isList(value)) {
    for (const part of value.value) addSize(part, budget, size, depth + 1);
  } else if (isMapping(value)) {
    for (const [key, part] of value.value) {
      size.characters += key.length;
      addSize(part, budget, size, depth + 1);
    }
  }
}

/** Python's `==`. */
export function equals(a: TemplateValue, b: TemplateValue, budget: TemplateBudget): boolean {
  budget.pay(PRICES.visit);
  if (a === b) return true;
  if (isText(a) && isText(b)) {
    budget.pay(Math.min(a.value.length, b.value.length) * PRICES.scan);
    return a.value === b.value;
  }
  if (isList(a) && isList(b)) {
    const other = b.value;
    return a.type === b.type && a.value.length === other.length &&
      a.value.every((part, index) => equals(part, other[index]!, budget));
  }
  if (isMapping(a) && isMapping(b)) {
    if (a.value.size !== b.value.size) return false;
    for (const [key, part] of a.value) {
      const other = b.value.get(key);
      if (other === undefined || !equals(part, other, budget)) return false;
    }
    return true;
  }
  const [left, right] = [asNumber(a), asNumber(b)];
  if (left !== undefined && right !== undefined) return left === right;
  return a.type === b.type && a.value === b.value;
}

function asNumber(value: TemplateValue): number | undefined {
  if (typeof value.value === "boolean") return Number(value.value);
  return typeof value.value === "number" ? value.value : undefined;
}

/** Python's `str()`: what `{{ value }}` prints. */
export function toText(value: TemplateValue, budget: TemplateBudget): string {
  if (isText(value)) return value.value;
  if (isUndefined(value)) return "";
  return toRepr(value, budget);
}

/** Python's `repr()`: how a value looks inside a list. */
function toRepr(value: TemplateValue, budget: TemplateBudget): string {
  budget.pay(PRICES.value);
  if (isText(value)) {
    budget.payText(value.value.length);
    return quoteLikePython(value.value);
  }
  if (isUndefined(value)) return "Undefined";
  if (isNone(value)) return "None";
  if (typeof value.value === "boolean") return value.value ? "True" : "False";
  if (isFunction(value)) throw new Error("a function cannot be printed");
  if (isList(value)) {
    const inner = value.value.map((part) => toRepr(part, budget));
    if (value.type === "ArrayValue") return `[${inner.join(", ")}]`;
    return inner.length === 1 ? `(${inner[0]},)` : `(${inner.join(", ")})`;
  }
  if (isMapping(value)) {
    const inner = Array.from(value.value, ([key, part]) => {
      budget.payText(key.length);
      return `${quoteLikePython(key)}: ${toRepr(part, budget)}`;
    });
    return `{${inner.join(", ")}}`;
  }
  return value.toString();
}

function quoteLikePython(text: string): string {
  const mark = text.includes("'") && !text.includes('"') ? '"' : "'";
  const escaped = text.replace(/[\\'"]|\p{Cc}/gu, (character) => {
    switch (character) {
      case "\n":
        return "\\n";
      case "\r":
        return "\\r";
      case "\t":
        return "\\t";
      case "\\":
        return "\\\\";
      case "'":
      case '"':
        return character === mark ? `\\${character}` : character;
      default:
        return `\\x${character.charCodeAt(0).toString(16).padStart(2, "0")}`;
    }
  });
  return mark + escaped + mark;
}
