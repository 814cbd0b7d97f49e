/**
 * The tests of operations on the CUDA device, each file in its own process, several at a time:
 * `operations.ts [--emulated]`. Prints the lines of `lines.ts`.
 */
import { join, relative } from "@std/path";
import { root } from "../root.ts";
import { type CheckLine, say } from "./lines.ts";

/** Test files that an emulator runs in seconds. */
const EMULATED = ["norms_test.ts"];

/** Processes at a time; they share the device's memory and the cache of compiled kernels. */
const MOST_PROCESSES = 8;
/** A file's tests take seconds; the limit stops kernels that do not end. */
const LIMIT_MS = 240_000;

async function main(args: readonly string[]): Promise<boolean> {
  const folder = join(root, "test", "ops");
  const files = args.includes("--emulated")
    ? EMULATED
    : Array.from(Deno.readDirSync(folder), ({ name }) => name)
      .filter((name) => name.endsWith("_test.ts")).sort();
  const waiting = files.map((name) => join(folder, name));
  let passed = true;
  const worker = async () => {
    for (let file = waiting.shift(); file !== undefined; file = waiting.shift()) {
      const { lines, output } = await testFile(file);
      lines.forEach(say);
      if (output !== "") console.error(output);
      passed &&= lines.every((line) => line.passed);
    }
  };
  await Promise.all(Array.from({ length: MOST_PROCESSES }, worker));
  return passed;
}

/**
 * Runs the tests of a file in a process of its own. Returns the lines of its tests, and the
 * process's output if one failed.
 */
export async function testFile(
  path: string,
  limitMs = LIMIT_MS,
): Promise<{ readonly lines: readonly CheckLine[]; readonly output: string }> {
  const report = await Deno.makeTempFile({ prefix: "forge-report-", suffix: ".xml" });
  try {
    const limit = AbortSignal.timeout(limitMs);
    const { success, code, signal, stdout, stderr } = await new Deno.Command(Deno.execPath(), {
      args: ["test", "-A", "--quiet", "--no-check", `--junit-path=${report}`, path],
      cwd: root,
      env: { FORGE_TEST_DEVICES: "cuda", NO_COLOR: "1" },
      stdin: "null",
      stdout: "piped",
      stderr: "piped",
      signal: limit,
    }).output();
    const lines = testCases(Deno.readTextFileSync(report)).map(({ name, failure }): CheckLine => {
      const passed = failure === undefined;
      return { kind: "check", name, passed, ...(passed ? {} : { detail: failure }) };
    });
    if (success) return { lines, output: "" };
    const decoder = new TextDecoder();
    const said = decoder.decode(stdout), errors = decoder.decode(stderr);
    if (lines.every(({ passed }) => passed)) {
      const how = limit.aborted
        ? `stopped after ${limitMs / 1000} s`
        : signal !== null
        ? `ended by ${signal}`
        : `ended with exit code ${code}`;
      // The last line of stdout names the test that was running.
      const detail = [how, lastLines(said, 1), lastLines(errors, 3)]
        .filter((text) => text !== "").join("; ");
      lines.push({ kind: "check", name: relative(root, path), passed: false, detail });
    }
    return { lines, output: `${path}\n${said}${errors}` };
  } finally {
    Deno.removeSync(report);
  }
}

/** Returns the last lines of a text that are not empty, on one line. */
function lastLines(text: string, most: number): string {
  const lines = text.split("\n").map((line) => line.trim()).filter((line) => line !== "");
  return lines.slice(-most).join(" | ");
}

/** Returns the cases of a JUnit report that were not skipped; none for an empty report. */
export function testCases(xml: string): { name: string; failure: string | undefined }[] {
  const text = (escaped: string) =>
    escaped.replaceAll("&quot;", '"').replaceAll("&lt;", "<").replaceAll("&gt;", ">")
      .replaceAll("&apos;", "'").replaceAll("&amp;", "&");
  return xml.split(/<testcase\s/).slice(1).filter((part) => !/<skipped[\s/>]/.test(part))
    .map((part) => {
      const name = text(/^[^>]*?\bname="([^"]*)"/.exec(part)?.[1] ?? "");
      const tag = /<(?:failure|error)\b([^>]*)>/.exec(part)?.[1];
      const message = /\bmessage="([^"]*)"/.exec(tag ?? "")?.[1] ?? "failed";
      return { name, failure: tag === undefined ? undefined : text(message) };
    });
}

if (import.meta.main && !await main(Deno.args)) Deno.exit(1);
