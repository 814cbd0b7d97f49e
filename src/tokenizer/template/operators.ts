import { PRICES, type TemplateBudget } from "./budget.ts";
import { payForSearch } from "./text.ts";
import {
  equals,
  isList,
  isMapping,
  isText,
  isUndefined,
  type TemplateValue,
  templateValue,
  textValue,
  toText,
} from "./values.ts";

/**
 * Applies a binary operator as Python does, for operands that the jinja package would convert to
 * text or compare by identity. `undefined` where the package does the same as Python.
 */
export function binary(
  operator: string,
  left: TemplateValue,
  right: TemplateValue,
  budget: TemplateBudget,
): TemplateValue | undefined {
  switch (operator) {
    case "==":
      return templateValue(equals(left, right, budget));
    case "!=":
      return templateValue(!equals(left, right, budget));
    case "in":
    case "not in": {
      const found = contains(right, left, budget);
      return templateValue(found === (operator === "in"));
    }
    case "~":
      return textValue(toText(left, budget) + toText(right, budget), budget);
    case "+":
      return add(left, right, budget);
    default:
      return undefined;
  }
}

function add(
  left: TemplateValue,
  right: TemplateValue,
  budget: TemplateBudget,
): TemplateValue | undefined {
  if (isText(left) && isText(right)) return textValue(left.value + right.value, budget);
  if (isText(left) || isText(right)) {
    throw new Error(`text and ${kindOf(isText(left) ? right : left)} cannot be added`);
  }
  if (isList(left) && isList(right)) {
    budget.pay((left.value.length + right.value.length) * PRICES.visit);
  }
  return undefined;
}

function contains(whole: TemplateValue, part: TemplateValue, budget: TemplateBudget): boolean {
  if (isList(whole)) return whole.value.some((item) => equals(item, part, budget));
  if (isUndefined(whole)) return false;
  if (isMapping(whole)) return isText(part) && whole.value.has(part.value);
  if (isText(whole) && isText(part)) {
    payForSearch(whole.value, part.value, budget);
    return whole.value.includes(part.value);
  }
  throw new Error(`"in" cannot look for ${kindOf(part)} in ${kindOf(whole)}`);
}

function kindOf(value: TemplateValue): string {
  return value.type.replace(/Value$/, "").toLowerCase();
}
