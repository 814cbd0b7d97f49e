import { PRICES, type TemplateBudget } from "./budget.ts";
import { floatOf, formatPercent } from "./format.ts";
import type { ArithmeticOperator, ComparisonOperator } from "./syntax.ts";
import {
  compare,
  contains,
  equals,
  escapeHtml,
  isInteger,
  isNumber,
  isText,
  Markup,
  plain,
  TemplateError,
  toIndex,
  Tuple,
  typeName,
  Undefined,
  type Value,
} from "./values.ts";

/** Most bits of an int that arithmetic may produce. */
const MAX_INTEGER_BITS = 2 ** 16;

/** Applies an arithmetic operator as Python does. */
export function arithmetic(
  operator: ArithmeticOperator,
  left: Value,
  right: Value,
  budget: TemplateBudget,
): Value {
  for (const value of [left, right]) {
    if (value instanceof Undefined && !(operator === "%" && isText(left))) throw value.error();
  }
  switch (operator) {
    case "+":
      return add(left, right, budget);
    case "*":
      return multiply(left, right, budget);
    case "%":
      return modulo(left, right, budget);
    default: {
      if (!isNumber(left) || !isNumber(right)) throw unsupported(operator, left, right);
      if (isInteger(left) && isInteger(right)) {
        return integerArithmetic(operator, BigInt(left), BigInt(right), budget);
      }
      return floatArithmetic(operator, floatOf(left, operator), floatOf(right, operator));
    }
  }
}

function unsupported(operator: string, left: Value, right: Value): TemplateError {
  return new TemplateError(`"${operator}" cannot combine ${typeName(left)} and ${typeName(right)}`);
}

/** Python's `+`. */
export function add(left: Value, right: Value, budget: TemplateBudget): Value {
  if (isText(left) && isText(right)) {
    if (left instanceof Markup || right instanceof Markup) {
      return new Markup(escapeHtml(left, budget).text + escapeHtml(right, budget).text);
    }
    budget.payText(left.length + right.length);
    return left + right;
  }
  if (isNumber(left) && isNumber(right)) {
    if (!isInteger(left) || !isInteger(right)) return floatOf(left, "+") + floatOf(right, "+");
    return checkSize(BigInt(left) + BigInt(right), budget);
  }
  if (Array.isArray(left) && Array.isArray(right)) {
    budget.pay((left.length + right.length) * PRICES.visit);
    return [...left, ...right];
  }
  if (left instanceof Tuple && right instanceof Tuple) {
    budget.pay((left.items.length + right.items.length) * PRICES.visit);
    return new Tuple([...left.items, ...right.items]);
  }
  for (const value of [left, right]) if (value instanceof Undefined) throw value.error();
  throw unsupported("+", left, right);
}

function multiply(left: Value, right: Value, budget: TemplateBudget): Value {
  if (isNumber(left) && isNumber(right)) {
    if (!isInteger(left) || !isInteger(right)) return floatOf(left, "*") * floatOf(right, "*");
    return checkSize(BigInt(left) * BigInt(right), budget);
  }
  const [sequence, times] = isInteger(left) ? [right, left] : [left, right];
  if (!isInteger(times)) throw unsupported("*", left, right);
  if (Math.abs(Number(times)) > Number.MAX_SAFE_INTEGER) throw tooLarge();
  const count = Math.max(0, toIndex(times));
  if (isText(sequence)) {
    budget.payText(plain(sequence).length * count);
    const text = plain(sequence).repeat(count);
    return sequence instanceof Markup ? new Markup(text) : text;
  }
  const items = sequence instanceof Tuple ? sequence.items : sequence;
  if (!Array.isArray(items)) throw unsupported("*", left, right);
  budget.pay(items.length * count * PRICES.visit);
  const repeated: Value[] = [];
  for (let turn = 0; items.length > 0 && turn < count; turn++) {
    for (const item of items) repeated.push(item);
  }
  return sequence instanceof Tuple ? new Tuple(repeated) : repeated;
}

/** Python's `%`: formatting if the left side is text, otherwise the remainder of a division. */
export function modulo(left: Value, right: Value, budget: TemplateBudget): Value {
  if (isText(left)) return formatPercent(left, right, budget);
  for (const value of [left, right]) if (value instanceof Undefined) throw value.error();
  if (!isNumber(left) || !isNumber(right)) throw unsupported("%", left, right);
  if (isInteger(left) && isInteger(right)) {
    const divisor = BigInt(right);
    if (divisor === 0n) throw new TemplateError("division by zero");
    return BigInt(left) - floorDivide(BigInt(left), divisor, budget) * divisor;
  }
  const [dividend, divisor] = [floatOf(left, "%"), floatOf(right, "%")];
  if (divisor === 0) throw new TemplateError("division by zero");
  const remainder = dividend % divisor;
  if (remainder === 0) return divisor < 0 ? -0 : 0;
  return remainder < 0 === divisor < 0 ? remainder : remainder + divisor;
}

function floorDivide(left: bigint, right: bigint, budget: TemplateBudget): bigint {
  checkSize(left, budget);
  const quotient = left / right;
  return left % right !== 0n && left < 0n !== right < 0n ? quotient - 1n : quotient;
}

function integerArithmetic(
  operator: "-" | "/" | "//" | "**",
  left: bigint,
  right: bigint,
  budget: TemplateBudget,
): Value {
  switch (operator) {
    case "-":
      return checkSize(left - right, budget);
    case "/":
      return divide(left, right);
    case "//":
      if (right === 0n) throw new TemplateError("division by zero");
      return floorDivide(left, right, budget);
    case "**": {
      if (right < 0n) return floatArithmetic("**", Number(left), Number(right));
      const bits = left.toString(16).length * 4 * Number(right);
      if (bits > MAX_INTEGER_BITS && left !== 0n && left !== 1n && left !== -1n) throw tooLarge();
      budget.payText(bits);
      return left ** right;
    }
  }
}

/** Returns the float nearest to the quotient of two ints, which may be larger than any float. */
function divide(left: bigint, right: bigint): number {
  if (right === 0n) throw new TemplateError("division by zero");
  if (Number.isSafeInteger(Number(left)) && Number.isSafeInteger(Number(right))) {
    return Number(left) / Number(right);
  }
  // A quotient of more bits than a float has; its last bit is set if a remainder is left.
  const shift = BigInt(right.toString(2).length - left.toString(2).length + 64);
  const [dividend, divisor] = shift < 0n ? [left, right << -shift] : [left << shift, right];
  const bits = dividend / divisor | BigInt(dividend % divisor !== 0n);
  const half = Number(shift / 2n);
  const quotient = Number(bits) * 2 ** -half * 2 ** (half - Number(shift));
  if (!Number.isFinite(quotient)) {
    throw new TemplateError("the quotient of two ints is too large for a float");
  }
  return quotient;
}

function floatArithmetic(
  operator: "-" | "/" | "//" | "**",
  left: number,
  right: number,
): number {
  switch (operator) {
    case "-":
      return left - right;
    case "/":
      if (right === 0) throw new TemplateError("division by zero");
      return left / right;
    case "//":
      if (right === 0) throw new TemplateError("division by zero");
      return floorQuotient(left, right);
    case "**": {
      if (left === 0 && right < 0) {
        throw new TemplateError("0 cannot be raised to a negative power");
      }
      // In Python, 1 ** nan and (-1) ** inf are 1.
      const power = left === 1 || (left === -1 && !Number.isFinite(right)) ? 1 : left ** right;
      if (Number.isNaN(power) && left < 0) {
        throw new TemplateError("a fractional power of a negative number is not supported");
      }
      if (!Number.isFinite(power) && Number.isFinite(left) && Number.isFinite(right)) {
        throw new TemplateError("a power is too large for a float");
      }
      return power;
    }
  }
}

/** Python's `//` of floats: subtracts the remainder first, because a quotient may round up. */
function floorQuotient(left: number, right: number): number {
  const remainder = left % right;
  const isBelow = remainder !== 0 && remainder < 0 !== right < 0;
  const quotient = (left - remainder) / right - Number(isBelow);
  if (quotient === 0) return 0 * (left / right);
  return Math.round(quotient);
}

function tooLarge(): TemplateError {
  return new TemplateError(
    `an int has more than ${MAX_INTEGER_BITS} bits, the most that are supported`,
  );
}

/** Pays for an int by its size. @throws {TemplateError} if it is too large */
function checkSize(value: bigint, budget: TemplateBudget): bigint {
  if (BigInt.asIntN(64, value) === value) return value;
  const digits = value.toString(16).length;
  if (digits * 4 > MAX_INTEGER_BITS) throw tooLarge();
  budget.payText(digits);
  return value;
}

/** Applies a comparison as Python does. */
export function comparison(
  operator: ComparisonOperator,
  left: Value,
  right: Value,
  budget: TemplateBudget,
): boolean {
  switch (operator) {
    case "==":
      return equals(left, right, budget);
    case "!=":
      return !equals(left, right, budget);
    case "in":
      return contains(right, left, budget);
    case "not in":
      return !contains(right, left, budget);
    case "<":
      return compare(left, right, budget) < 0;
    case "<=":
      return compare(left, right, budget) <= 0;
    case ">":
      return compare(left, right, budget) > 0;
    case ">=":
      return compare(left, right, budget) >= 0;
  }
}
