/** Counts the results of a run of the checks. */

/** Numbers of checks by result. */
export interface Counts {
  readonly passed: number;
  readonly failed: number;
  readonly skipped: number;
  /** A line for each failed check that has a name: the name and the first line of its message. */
  readonly failures?: readonly string[];
}

/** The sum of counts. */
export function addCounts(...all: readonly Counts[]): Counts {
  return all.reduce((sum, counts) => ({
    passed: sum.passed + counts.passed,
    failed: sum.failed + counts.failed,
    skipped: sum.skipped + counts.skipped,
    failures: [...sum.failures ?? [], ...counts.failures ?? []],
  }), { passed: 0, failed: 0, skipped: 0 });
}

/**
 * Counts the test cases of a JUnit report written by `deno test --junit-path`; each step of a test
 * is a separate case.
 */
export function countTestCases(report: string): Counts {
  const count = (pattern: RegExp) => report.match(pattern)?.length ?? 0;
  const all = count(/<testcase\s/g);
  const failed = count(/<(?:failure|error)[\s>]/g);
  const skipped = count(/<skipped[\s/>]/g);
  return { passed: all - failed - skipped, failed, skipped, failures: failuresOf(report) };
}

/** The failed cases of a JUnit report, a line each. */
function failuresOf(report: string): string[] {
  const pattern = /<testcase name="([^"]*)"[^>]*>\s*<(?:failure|error) message="([^"]*)"/g;
  return Array.from(report.matchAll(pattern), ([, name = "", message = ""]) => {
    const [line = ""] = message.split(/\n|&#10;/);
    return unescapeXml(`${name}: ${line}`);
  });
}

const ENTITIES: Readonly<Record<string, string>> = { lt: "<", gt: ">", quot: '"', apos: "'" };

function unescapeXml(text: string): string {
  return text.replace(/&(lt|gt|quot|apos);/g, (_, name: string) => ENTITIES[name] ?? "")
    .replaceAll("&amp;", "&");
}

/**
 * Counts the results of `deno test`: the cases of its report, plus one failure if it failed without
 * a failed case, for example when a test file cannot be loaded or a native library ends the
 * process.
 *
 * @param report the JUnit report; undefined if none was written.
 */
export function testCounts(report: string | undefined, succeeded: boolean): Counts {
  const counts = countTestCases(report ?? "");
  const unreported = counts.failed === 0 && (!succeeded || report === undefined) ? 1 : 0;
  return { ...counts, failed: counts.failed + unreported };
}

/** The last line of a run, such as `312 passed, 0 failed, 3 skipped`. */
export function summaryLine(counts: Counts): string {
  const line = `${counts.passed} passed, ${counts.failed} failed`;
  return counts.skipped > 0 ? `${line}, ${counts.skipped} skipped` : line;
}
