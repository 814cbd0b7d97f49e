import { assertEquals } from "@std/assert";
import { addCounts, countTestCases, summaryLine, testCounts } from "../../support/summary.ts";

const report = `<?xml version="1.0" encoding="UTF-8"?>
<testsuites name="deno test" tests="5" failures="2" errors="0" time="0.017">
  <testsuite name="./a_test.ts" tests="5" disabled="1" errors="0" failures="2">
    <testcase name="passes &lt;testcase &lt;failure&gt;" time="0.009" line="1" col="6">
    </testcase>
    <testcase name="fails" time="0.000" line="2" col="6">
      <failure message="&lt;skipped/&gt;">Error: &lt;testcase name=&quot;x&quot;&gt;</failure>
    </testcase>
    <testcase name="breaks" time="0.000" line="2" col="6">
      <error message="x">Error</error>
    </testcase>
    <testcase name="skips" time="0.000" line="3" col="6">
      <skipped/>
    </testcase>
    <testcase name="passes too" time="0.000" line="4" col="6"/>
  </testsuite>
</testsuites>`;

Deno.test("countTestCases: by outcome, whatever the messages say", () => {
  assertEquals(countTestCases(report), {
    passed: 2,
    failed: 2,
    skipped: 1,
    failures: ["fails: <skipped/>", "breaks: x"],
  });
});

Deno.test("testCounts: a failure outside of the report is counted", () => {
  const passing = '<testcase name="a" ></testcase>';
  const summary = (report: string | undefined, succeeded: boolean) =>
    summaryLine(testCounts(report, succeeded));
  assertEquals(summary(passing, true), "1 passed, 0 failed");
  assertEquals(summary(passing, false), "1 passed, 1 failed");
  assertEquals(summary(undefined, false), "0 passed, 1 failed");
  assertEquals(summary(undefined, true), "0 passed, 1 failed");
  assertEquals(summary(report, false), "2 passed, 2 failed, 1 skipped");
});

Deno.test("summaryLine: names skipped tests only where there are any", () => {
  const total = addCounts(
    { passed: 3, failed: 0, skipped: 0 },
    { passed: 4, failed: 1, skipped: 2 },
  );
  assertEquals(summaryLine(total), "7 passed, 1 failed, 2 skipped");
  assertEquals(summaryLine({ passed: 1, failed: 0, skipped: 0 }), "1 passed, 0 failed");
});
