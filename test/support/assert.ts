/**
 * The part of `@std/assert` that the tests use, implemented with `node:assert` under the same
 * names. Where JSR can be reached, the import in `deno.json` may point at `jsr:@std/assert`
 * instead.
 */
import nodeAssert from "node:assert/strict";

/** The expected class of an error. */
// The parameters of constructors are contravariant: `unknown[]` would accept few of them.
// deno-lint-ignore no-explicit-any
type ErrorClass<E extends Error> = new (...args: any[]) => E;

/** Fails unless `value` is truthy. */
export function assert(value: unknown, message?: string): asserts value {
  nodeAssert.ok(value, message);
}

/** Fails unless `actual` and `expected` are deeply equal. */
export function assertEquals<T>(actual: T, expected: T, message?: string): void {
  nodeAssert.deepStrictEqual(actual, expected, message);
}

/** Fails unless `actual` and `expected` differ by at most `tolerance` (NaN always fails). */
export function assertAlmostEquals(actual: number, expected: number, tolerance = 1e-7): void {
  const difference = Math.abs(actual - expected);
  if (!(difference <= tolerance)) {
    nodeAssert.fail(`${actual} is not within ${tolerance} of ${expected} (off by ${difference})`);
  }
}

/** Fails unless `actual` contains `expected`. */
export function assertStringIncludes(actual: string, expected: string): void {
  if (!actual.includes(expected)) {
    nodeAssert.fail(`expected ${JSON.stringify(actual)} to include ${JSON.stringify(expected)}`);
  }
}

/** Fails unless `actual` matches `expected`. */
export function assertMatch(actual: string, expected: RegExp): void {
  nodeAssert.match(actual, expected);
}

function checkThrown<E extends Error>(
  thrown: unknown,
  errorClass: ErrorClass<E>,
  includes: string | undefined,
): E {
  if (!(thrown instanceof errorClass)) {
    nodeAssert.fail(`expected ${errorClass.name}, got ${Deno.inspect(thrown)}`);
  }
  if (includes !== undefined) assertStringIncludes(thrown.message, includes);
  return thrown;
}

/**
 * Fails unless `fn` throws an `errorClass` whose message includes `includes`; returns the error.
 */
export function assertThrows<E extends Error>(
  fn: () => unknown,
  errorClass: ErrorClass<E>,
  includes?: string,
): E {
  let thrown: unknown;
  try {
    fn();
  } catch (error) {
    thrown = error;
  }
  return checkThrown(thrown, errorClass, includes);
}

/**
 * Fails unless `fn` rejects with an `errorClass` whose message includes `includes`; returns the
 * error.
 */
export async function assertRejects<E extends Error>(
  fn: () => PromiseLike<unknown>,
  errorClass: ErrorClass<E>,
  includes?: string,
): Promise<E> {
  let thrown: unknown;
  try {
    await fn();
  } catch (error) {
    thrown = error;
  }
  return checkThrown(thrown, errorClass, includes);
}
