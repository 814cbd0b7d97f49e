/** Checks of arguments and options, and suggestions for misspelled ones. */
import { assertEquals, assertThrows } from "@std/assert";
import { ForgeError } from "../../../src/errors.ts";
import {
  BOOLEAN,
  checkArgument,
  checkOptions,
  checkWholeNumber,
  FUNCTION,
  NUMBER,
  OBJECT,
  type OptionCheck,
  SIGNAL,
  STRING,
  STRINGS,
  TEXTS,
  TOKENS,
} from "../../../src/formats/arguments.ts";
import { nearestName } from "../../../src/formats/suggest.ts";

Deno.test("the nearest name differs by two edits, or by one if the name is short", () => {
  const known = ["temperature", "maxTokens", "topK", "stop", "min"];
  const cases: [name: string, nearest: string | undefined][] = [
    // One edit of each kind: changed, added, removed, swapped.
    ...["tempereture", "temperrature", "temprature", "tempreature"]
      .map((name): [string, string] => [name, "temperature"]),
    // Two edits, and three.
    ["temprture", "temperature"],
    ["xtemperaturex", "temperature"],
    ["etpmerature", "temperature"],
    ["temrtue", undefined],
    // Differences of style do not count.
    ["MAX_TOKENS", "maxTokens"],
    ["max.tokens-", "maxTokens"],
    ["top-k", "topK"],
    // Short names have one edit.
    ["mn", "min"],
    ["mim", "min"],
    ["mx", undefined],
    ["stpp", "stop"],
    ["sxxp", "stop"],
    ["xxxp", undefined],
    // The nearest of several.
    ["topP", "topK"],
    ["stoq", "stop"],
    ["", undefined],
  ];
  for (const [name, nearest] of cases) assertEquals(nearestName(name, known), nearest, name);
  assertEquals(nearestName("a", []), undefined);
  // Names of other programs stand for those here.
  assertEquals(nearestName("numpredict", known, { numPredict: "maxTokens" }), "maxTokens");
  assertEquals(nearestName("min", known, { mix: "topK" }), "min");
});

Deno.test("options have known names and values of their types", () => {
  const checks = { maxTokens: NUMBER, stop: STRINGS, signal: undefined };
  const check = (options: unknown) =>
    checkOptions<Record<keyof typeof checks, unknown>>("run", options as never, checks);
  for (const options of [{}, { maxTokens: 1, stop: ["a"], signal: 5 }, { maxTokens: undefined }]) {
    check(options);
  }
  const refusals: [options: unknown, message: string][] = [
    [null, "run is null; valid is an object of options"],
    [["a"], "run is an array; valid is an object of options"],
    [{ maxTokens: "1" }, 'maxTokens is "1"; valid is a number'],
    [{ maxTokens: null }, "maxTokens is null; valid is a number"],
    [{ maxTokns: 1 }, 'run has no option "maxTokns"; did you mean maxTokens?'],
    [{ numPredict: 1 }, 'run has no option "numPredict"; did you mean maxTokens?'],
    // The option that this name stands for is none of them.
    [{ systemPrompt: 1 }, 'no option "systemPrompt"; valid are maxTokens, stop, signal'],
    [{ constructor: 1 }, 'no option "constructor"; valid are'],
  ];
  for (const [options, message] of refusals) {
    assertEquals(assertThrows(() => check(options), ForgeError, message).code, "usage");
  }
  const templates = { templateVariables: OBJECT };
  const named = () => checkOptions("chat", { tools: [] } as object, templates as never);
  assertThrows(named, ForgeError, "did you mean templateVariables: { tools }?");
});

Deno.test("arguments have values of their types", () => {
  const ids = new Int32Array(1), text = "text", signal = new AbortController().signal;
  const values = [text, 5, true, null, undefined, {}, [], [text], [ids], [5], ids, signal, () => 1];
  const accepted: [check: OptionCheck, values: readonly unknown[]][] = [
    [STRING, [text]],
    [NUMBER, [5]],
    [BOOLEAN, [true]],
    [OBJECT, [values[5], ids, signal]],
    [STRINGS, [values[6], values[7]]],
    [TEXTS, [values[6], values[7], values[8]]],
    [TOKENS, [ids]],
    [SIGNAL, [signal]],
    [FUNCTION, [values[12]]],
  ];
  for (const [check, own] of accepted) {
    for (const value of values) {
      if (own.includes(value)) checkArgument("it", value, check);
      else {
        const refused = () => checkArgument("it", value, check);
        assertThrows(refused, ForgeError, `; valid is ${check.valid}`);
      }
    }
  }
});

Deno.test("a whole number lies between its limits, which are included", () => {
  for (const value of [2, 3, 4]) assertEquals(checkWholeNumber("n", value, 2, 4), value);
  for (const value of [1, 5, 2.5, NaN, Infinity, "3" as unknown as number]) {
    const refused = () => checkWholeNumber("n", value, 2, 4);
    assertThrows(refused, ForgeError, "valid is a whole number from 2 to 4");
  }
});
