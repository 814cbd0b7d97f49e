/**
 * The tests of operations on the CUDA device, each file in its own process, several at a time:
 * `operations.ts [--emulated]`. Prints the lines of `lines.ts`.
 */
import { join } from "@std/path";
import { root } from "../root.ts";
import { say } from "./lines.ts";

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
      passed = await runFile(file) && passed;
    }
  };
  await Promise.all(Array.from({ length: MOST_PROCESSES }, worker));
  return passed;
}

async function runFile(path: string): Promise<boolean> {
  const report = await Deno.makeTempFile({ prefix: "forge-report-", suffix: ".xml" });
  try {
    const { success, stdout, stderr } = await new Deno.Command(Deno.execPath(), {
      args: ["test", "-A", "--quiet", "--no-check", `--junit-path=${report}`, path],
      cwd: root,
      env: { FORGE_TEST_DEVICES: "cuda", NO_COLOR: "1" },
      stdin: "null",
      stdout: "piped",
      stderr: "piped",
      signal: AbortSignal.timeout(LIMIT_MS),
    }).output();
    const cases = testCases(Deno.readTextFileSync(report));
    for (const { name, failure } of cases) {
      const passed = failure === undefined;
      say({ kind: "check", name, passed, ...(passed ? {} : { detail: failure }) });
    }
    if (!success) {
      const decoder = new TextDecoder();
      const output = `${decoder.decode(stdout)}${decoder.decode(stderr)}`;
      console.error(`${path}\n${output}`);
      if (cases.every(({ failure }) => failure === undefined)) {
        const detail = output.trimEnd().split("\n").at(-1) ?? "";
        say({ kind: "check", name: path.slice(root.length + 1), passed: false, detail });
      }
    }
    return success;
  } finally {
    Deno.removeSync(report);
  }
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
