import { PRICES, type TemplateBudget } from "./budget.ts";
import { FILTERS, isIterable, isSequence } from "./filters.ts";
import { isLower, isUpper } from "./methods.ts";
import { modulo } from "./operators.ts";
import {
  type Arguments,
  Callable,
  compare,
  contains,
  Dict,
  equals,
  hashKey,
  isNumber,
  isText,
  Markup,
  toText,
  Undefined,
  type Value,
} from "./values.ts";

/** Test of the value before `is`, with the arguments after the name. */
type Test = (value: Value, args: Arguments, budget: TemplateBudget) => boolean;

function plainTest(holds: (value: Value, budget: TemplateBudget) => boolean): Test {
  return (value, args, budget) => {
    args.bind("the test");
    return holds(value, budget);
  };
}

/** Test of a value as text. */
function textTest(holds: (text: string) => boolean): Test {
  return plainTest((value, budget) => {
    const text = toText(value, budget);
    budget.pay(text.length * PRICES.scan);
    return holds(text);
  });
}

function relation(holds: (value: Value, other: Value, budget: TemplateBudget) => boolean): Test {
  return (value, args, budget) =>
    holds(value, args.bindPositional("the test", "other")[0]!, budget);
}

/** True if a value, which must be hashable, is a name of a table. */
function isNameIn(table: ReadonlyMap<string, unknown>, value: Value): boolean {
  return table.has(hashKey(value) as string);
}

const equal = relation(equals);
const unequal = relation((value, other, budget) => !equals(value, other, budget));
const greater = relation((value, other, budget) => compare(value, other, budget) > 0);
const greaterOrEqual = relation((value, other, budget) => compare(value, other, budget) >= 0);
const less = relation((value, other, budget) => compare(value, other, budget) < 0);
const lessOrEqual = relation((value, other, budget) => compare(value, other, budget) <= 0);

/** Tests by name. */
export const TESTS: ReadonlyMap<string, Test> = new Map<string, Test>([
  ["!=", unequal],
  ["<", less],
  ["<=", lessOrEqual],
  ["==", equal],
  [">", greater],
  [">=", greaterOrEqual],
  ["boolean", plainTest((value) => typeof value === "boolean")],
  ["callable", plainTest((value) => value instanceof Callable || value instanceof Undefined)],
  ["defined", plainTest((value) => !(value instanceof Undefined))],
  ["divisibleby", (value, args, budget) => {
    return equals(modulo(value, args.bind("divisibleby", "num")[0]!, budget), 0n, budget);
  }],
  ["eq", equal],
  ["equalto", equal],
  ["escaped", plainTest((value) => value instanceof Markup)],
  ["even", plainTest((value, budget) => equals(modulo(value, 2n, budget), 0n, budget))],
  ["false", plainTest((value) => value === false)],
  ["filter", plainTest((value) => isNameIn(FILTERS, value))],
  ["float", plainTest((value) => typeof value === "number")],
  ["ge", greaterOrEqual],
  ["greaterthan", greater],
  ["gt", greater],
  ["in", (value, args, budget) => contains(args.bind("in", "seq")[0]!, value, budget)],
  ["integer", plainTest((value) => typeof value === "bigint")],
  ["iterable", plainTest(isIterable)],
  ["le", lessOrEqual],
  ["lessthan", less],
  ["lower", textTest(isLower)],
  ["lt", less],
  ["mapping", plainTest((value) => value instanceof Dict)],
  ["ne", unequal],
  ["none", plainTest((value) => value === null)],
  ["number", plainTest(isNumber)],
  ["odd", plainTest((value, budget) => equals(modulo(value, 2n, budget), 1n, budget))],
  ["sameas", (value, args, budget) => {
    const [other] = args.bind("sameas", "other");
    // JavaScript compares text by its characters.
    if (typeof value === "string") budget.pay(value.length * PRICES.scan);
    return Object.is(value, other);
  }],
  ["sequence", plainTest(isSequence)],
  ["string", plainTest(isText)],
  ["test", plainTest((value) => isNameIn(TESTS, value))],
  ["true", plainTest((value) => value === true)],
  ["undefined", plainTest((value) => value instanceof Undefined)],
  ["upper", textTest(isUpper)],
]);
