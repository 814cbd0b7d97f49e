/** Errors as the command shows them: one line, an exit code, stacks on demand. */
import { assertEquals, assertStringIncludes } from "@std/assert";
import {
  describeError,
  errorText,
  exitCode,
  INTERRUPTED,
} from "../../../src/cli/output/error_text.ts";
import { ForgeError } from "../../../src/errors.ts";

Deno.test("errors: each kind has its exit code", () => {
  const codes = [
    [new Deno.errors.BrokenPipe("closed"), 0],
    [new ForgeError("cancelled", "stopped"), INTERRUPTED],
    [new ForgeError("usage", "wrong"), 2],
    [new ForgeError("bad_model", "wrong"), 1],
    [new TypeError("wrong"), 1],
    ["text", 1],
  ] as const;
  for (const [error, code] of codes) assertEquals(exitCode(error), code, String(error));
});

Deno.test("errors: stacks are shown on demand, except for wrong usage, and advised for others", () => {
  const cause = new ForgeError("bad_model", "the cause");
  const line = "forge: error: ";
  const failure = new ForgeError("device", "it failed", { cause });
  assertEquals(errorText(failure, false), `${line}it failed\n`);
  const shown = errorText(failure, true).split("\n");
  assertEquals(shown.slice(0, 2), [
    `${line}it failed`,
    `  raised ${failure.stack!.split("\n")[0]}`,
  ]);
  assertStringIncludes(shown.join("\n"), `  caused by ${cause.stack!}`);
  const usage = new ForgeError("usage", "it is wrong");
  for (const verbose of [false, true]) {
    assertEquals(errorText(usage, verbose), `${line}it is wrong\n`);
  }
  const internal = "internal error: TypeError: a";
  assertEquals(
    errorText(new TypeError("a\nb"), false),
    `${line}${internal}; FORGE_DEBUG=1 shows the stack\n`,
  );
  assertStringIncludes(errorText(new TypeError("a\nb"), true), `${line}${internal}\n  raised`);
});

Deno.test("errors: a lacking permission and values that are no errors are described", () => {
  const lacking = 'Requires net access to "x"';
  const denied = new Deno.errors.NotCapable(`${lacking}, run again with the --allow-net flag`);
  const text = errorText(denied, false);
  assertStringIncludes(text, `Deno: ${lacking}; start forge with`);
  assertEquals(text.includes("--allow-net") || text.includes("FORGE_DEBUG"), false, text);
  assertEquals(describeError({ a: 1 }), "internal error: { a: 1 }");
});
