/** Waits with an end, so that a test of a program that hangs fails, and says what it waited for. */

/** Time that nothing takes, even on a busy machine, unless it hangs. */
const PATIENCE_MS = 120_000;

/**
 * Waits for a promise.
 *
 * @param what is described after the time is over
 * @throws {Error} after two minutes
 */
export async function within<T>(work: Promise<T>, what: () => string): Promise<T> {
  let timer: ReturnType<typeof setTimeout> | undefined;
  const late = new Promise<never>((_, reject) => {
    timer = setTimeout(
      () => reject(new Error(`after ${PATIENCE_MS / 1000} s there is no ${what()}`)),
      PATIENCE_MS,
    );
  });
  try {
    return await Promise.race([work, late]);
  } finally {
    clearTimeout(timer);
  }
}

interface UntilOptions {
  /** Describes the condition after the time is over. */
  readonly what?: () => string;
  /** The time. */
  readonly patienceMs?: number;
  /** Time between two looks. */
  readonly pauseMs?: number;
}

/**
 * Waits until a condition holds.
 *
 * @throws {Error} after the time, by default two minutes
 */
export async function until(
  condition: () => boolean | Promise<boolean>,
  options: UntilOptions = {},
): Promise<void> {
  const { what = () => String(condition), patienceMs = PATIENCE_MS, pauseMs = 2 } = options;
  const end = performance.now() + patienceMs;
  while (!await condition()) {
    if (performance.now() > end) throw new Error(`not after ${patienceMs / 1000} s: ${what()}`);
    await new Promise((resolve) => setTimeout(resolve, pauseMs));
  }
}
