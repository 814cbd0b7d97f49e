import { PRICES, type TemplateBudget } from "./budget.ts";
import type { TemplateArguments } from "./text.ts";
import { isList, isMapping, isText, measure, type TemplateValue } from "./values.ts";

/** Pays for an operation that goes through all of a value once and makes something of each part. */
export function payForWhole(value: TemplateValue, budget: TemplateBudget): void {
  if (isText(value)) budget.pay(value.value.length * PRICES.visit);
  else if (isList(value)) budget.pay(value.value.length * PRICES.turn);
  else if (isMapping(value)) budget.pay(value.value.size * PRICES.turn);
}

/** Pays for a filter, or a method of a list or mapping, that the jinja package carries out. */
export function payForFilter(
  name: string,
  operand: TemplateValue,
  args: TemplateArguments,
  budget: TemplateBudget,
): void {
  switch (name) {
    case "tojson":
      payForJson(operand, args, budget);
      break;
    case "sort":
    case "dictsort":
    case "unique": {
      const { values, characters } = measure(operand, budget);
      const rounds = 1 + Math.log2(values);
      budget.pay(rounds * (values * PRICES.value + characters * PRICES.character));
      break;
    }
    case "default":
    case "first":
    case "last":
    case "length":
      return;
    default:
      payForWhole(operand, budget);
  }
  payForPaths(operand, args, budget);
}

function payForJson(value: TemplateValue, args: TemplateArguments, budget: TemplateBudget): void {
  const { values, characters, depth } = measure(value, budget);
  const indent = Math.abs(Number(args.named.get("indent")?.value ?? 0));
  const separators = args.named.get("separators");
  const between = separators === undefined ? 4 : measure(separators, budget).characters;
  budget.pay(values * PRICES.value);
  // One character can become an escape of six.
  budget.payText(6 * characters + values * (between + indent * (depth + 1)));
}

/** The attribute path that a filter is given is taken apart for every item, or comparison of two. */
function payForPaths(value: TemplateValue, args: TemplateArguments, budget: TemplateBudget): void {
  const items = isList(value) ? value.value.length : 1;
  for (const argument of [...args.positional, ...args.named.values()]) {
    if (!isText(argument)) continue;
    budget.pay(items * (1 + Math.log2(1 + items)) * argument.value.length * PRICES.visit);
  }
}

/** Pays for making a namespace of pairs, where two characters of text count as a pair. */
export function payForPairs(value: TemplateValue, budget: TemplateBudget): void {
  const { values, characters } = measure(value, budget);
  budget.pay((values + characters) * PRICES.value);
}
