/**
 * JSON numbers as automata. Numbers have at most 15 digits before the point and 15 after it, and no
 * exponent: enough for the precision of a double, and bounded in length.
 */
import { type Automaton, explore, intersect } from "../automata/automaton.ts";
import { charsOf, complement } from "../automata/char_set.ts";
import { checkLimit } from "../limits.ts";

const MOST_DIGITS = 15;

/** A decimal number: `(negative ? -1 : 1) * whole.fraction`. */
interface Decimal {
  readonly negative: boolean;
  /** Digits before the point, without leading zeros. */
  readonly whole: string;
  /** Digits after the point, without trailing zeros. */
  readonly fraction: string;
}

/** A bound on one side. */
export interface Bound {
  readonly at: Decimal;
  readonly inclusive: boolean;
}

/** Constraints on a number, all of which apply. */
interface NumberRules {
  readonly integer: boolean;
  readonly minimums: readonly Bound[];
  readonly maximums: readonly Bound[];
  /** Positive numbers; the value is a multiple of each. */
  readonly divisors: readonly Decimal[];
}

/** Returns the exact decimal value of a double's shortest spelling. */
export function decimalOf(value: number): Decimal {
  const [mantissa = "", exponent = "0"] = Math.abs(value).toString().split("e");
  const [before = "", after = ""] = mantissa.split(".");
  const point = before.length + Number(exponent);
  const digits = before + after;
  const whole = point > 0 ? digits.slice(0, point).padEnd(point, "0") : "";
  const fraction = point < 0 ? "0".repeat(-point) + digits : digits.slice(Math.max(0, point));
  return {
    negative: value < 0,
    whole: whole.replace(/^0+/, ""),
    fraction: fraction.replace(/0+$/, ""),
  };
}

/** Order of the digits read so far relative to a bound's digits; "equal" is still undecided. */
type Order = "less" | "equal" | "greater";

/** State of the reader of a number. */
interface State {
  readonly at: "start" | "sign" | "zero" | "whole" | "point" | "fraction";
  readonly negative: boolean;
  /** Number of digits read of the current part, without a leading zero. */
  readonly digits: number;
  /** Order of the magnitude relative to each bound. */
  readonly orders: readonly Order[];
  /** The magnitude in units of the last digit, modulo the divisor. */
  readonly remainder: number;
  readonly isZero: boolean;
}

const CLASSES = [..."0123456789-."].map(charsOf);
const OTHERS = complement(charsOf("0123456789-."));
const DIGITS = 10, MINUS = 10, POINT = 11;

/** Accepts the spellings of the numbers that satisfy all rules. */
export function numbers(rules: NumberRules): Automaton {
  const places = rules.integer ? 0 : MOST_DIGITS;
  const parts = [
    ...rules.minimums.map((bound) => spellings(places, [bound, undefined], undefined)),
    ...rules.maximums.map((bound) => spellings(places, [undefined, bound], undefined)),
    ...rules.divisors.map(divisorOf).map((divisor) => spellings(divisor.places, [], divisor)),
  ];
  return intersect(spellings(places, [], undefined), ...parts);
}

/** Accepts the spellings with at most `places` decimals. */
function spellings(
  places: number,
  bounds: readonly (Bound | undefined)[],
  divisor: Divisor | undefined,
): Automaton {
  // Without bounds, sign and magnitude are irrelevant; omitting them reduces the number of states.
  const sized = bounds.some((bound) => bound !== undefined);
  const key = (
    s: State,
  ) => [s.at, s.digits, s.remainder, sized && [s.negative, ...s.orders, s.isZero]];
  const start: State = {
    at: "start",
    negative: false,
    digits: 0,
    orders: bounds.map(() => "equal"),
    remainder: 0,
    isZero: true,
  };
  return explore(
    [...CLASSES, OTHERS],
    start,
    (s) => key(s).join(),
    (s, symbol) => follow(s, symbol, bounds, divisor, places),
    (s) => accepted(s, bounds, divisor),
  );
}

/** The divisor `value / 10^places`. */
interface Divisor {
  readonly value: number;
  readonly places: number;
}

function divisorOf({ whole, fraction }: Decimal): Divisor {
  const value = Number(whole + fraction);
  checkLimit("multipleOf without its decimal point", value, 1_000);
  checkLimit("the number of decimals of multipleOf", fraction.length, MOST_DIGITS);
  return { value, places: fraction.length };
}

function follow(
  s: State,
  symbol: number,
  bounds: readonly (Bound | undefined)[],
  divisor: Divisor | undefined,
  places: number,
): State | undefined {
  if (symbol === MINUS) return s.at === "start" ? { ...s, at: "sign", negative: true } : undefined;
  if (symbol === POINT) {
    if (places === 0 || (s.at !== "zero" && s.at !== "whole")) return undefined;
    const orders = bounds.map((bound, i) => atPoint(s, bound, i));
    return { ...s, at: "point", digits: 0, orders };
  }
  if (symbol >= DIGITS) return undefined;
  const remainder = divisor === undefined ? 0 : (s.remainder * 10 + symbol) % divisor.value;
  const isZero = s.isZero && symbol === 0;
  if (s.at === "start" || s.at === "sign") {
    if (symbol === 0) return { ...s, at: "zero" };
    return {
      ...s,
      at: "whole",
      digits: 1,
      orders: compare(s, symbol, bounds, "whole"),
      remainder,
      isZero,
    };
  }
  if (s.at === "whole") {
    if (s.digits === MOST_DIGITS) return undefined;
    const orders = compare(s, symbol, bounds, "whole");
    return { ...s, digits: s.digits + 1, orders, remainder, isZero };
  }
  if (s.at === "zero" || s.digits === places) return undefined;
  const orders = compare(s, symbol, bounds, "fraction");
  return { ...s, at: "fraction", digits: s.digits + 1, orders, remainder, isZero };
}

function compare(
  s: State,
  digit: number,
  bounds: readonly (Bound | undefined)[],
  part: "whole" | "fraction",
): Order[] {
  return s.orders.map((order, i) => {
    const digits = bounds[i]?.at[part];
    if (order !== "equal" || digits === undefined) return order;
    // Past its digits, a fraction continues with zeros, and a longer whole part is always greater.
    const other = s.digits < digits.length ? Number(digits[s.digits]) : part === "whole" ? -1 : 0;
    return digit < other ? "less" : digit > other ? "greater" : "equal";
  });
}

/** Returns the order after the whole part: the longer one is greater. */
function atPoint(s: State, bound: Bound | undefined, i: number): Order {
  if (bound === undefined) return "equal";
  const length = bound.at.whole.length;
  return s.digits < length ? "less" : s.digits > length ? "greater" : s.orders[i]!;
}

function accepted(
  s: State,
  bounds: readonly (Bound | undefined)[],
  divisor: Divisor | undefined,
): boolean {
  const inWhole = s.at === "zero" || s.at === "whole";
  if (!inWhole && s.at !== "fraction") return false;
  const decimals = inWhole ? 0 : s.digits;
  if (divisor !== undefined) {
    let { remainder } = s;
    for (let i = decimals; i < divisor.places; i++) remainder = remainder * 10 % divisor.value;
    if (remainder !== 0) return false;
  }
  return bounds.every((bound, i) => {
    if (bound === undefined) return true;
    let order = inWhole ? atPoint(s, bound, i) : s.orders[i]!;
    if (order === "equal" && bound.at.fraction.length > decimals) order = "less";
    const sign = signedOrder(s, order, bound.at);
    if (sign === "equal") return bound.inclusive;
    return sign === (i === 0 ? "greater" : "less");
  });
}

/** Returns the order of the signed values, from the order of their magnitudes. */
function signedOrder(s: State, magnitude: Order, bound: Decimal): Order {
  const boundIsZero = bound.whole === "" && bound.fraction === "";
  if (s.isZero && boundIsZero) return "equal";
  const negative = s.negative && !s.isZero, boundNegative = bound.negative && !boundIsZero;
  if (negative !== boundNegative) return negative ? "less" : "greater";
  if (magnitude === "equal" || !negative) return magnitude;
  return magnitude === "less" ? "greater" : "less";
}
