import { assertEquals, assertStringIncludes, assertThrows } from "@std/assert";
import { logitBias, parseTokenBias } from "../../../src/cli/options/logit_bias.ts";
import { ForgeError } from "../../../src/errors.ts";
import { byteTokenizer } from "../constrain/support.ts";

Deno.test("logit bias: ids, texts and quoted texts", () => {
  const cases: [string, number | string, number][] = [
    ["42=-5", 42, -5],
    ["42=+1.5e1", 42, 15],
    [" the=-inf", " the", -Infinity],
    ['"42"=3', "42", 3],
    ["===2", "==", 2],
    ['"=1', '"', 1],
    ["\n=.5", "\n", 0.5],
  ];
  for (const [text, token, bias] of cases) {
    assertEquals(parseTokenBias(text), { token, bias }, text);
  }
  for (
    const text of [
      "",
      "x",
      "=1",
      "x=",
      "x=y",
      "x=inf",
      "x=1x",
      "x=a1",
      "x=--1",
      "x=-inf1",
      "x=1e",
      "x=NaN",
    ]
  ) {
    assertEquals(parseTokenBias(text), undefined, text);
  }
});

Deno.test("logit bias: a text must be one token", () => {
  assertEquals(logitBias(undefined, byteTokenizer), undefined);
  const biases = [{ token: "a", bias: 2 }, { token: 7, bias: -1 }];
  assertEquals(logitBias(biases, byteTokenizer), { "7": -1, "97": 2 });
  // The special tokens around a text are no part of it.
  const encode = (text: string, { addSpecial }: { addSpecial?: boolean } = {}) =>
    Int32Array.from([...(addSpecial ? [1] : []), ...byteTokenizer.encode(text)]);
  const tokenizer = { encode } as unknown as typeof byteTokenizer;
  assertEquals(logitBias([{ token: "a", bias: 2 }], tokenizer), { "97": 2 });
  const error = assertThrows(
    () => logitBias([{ token: "ab", bias: 1 }], byteTokenizer),
    ForgeError,
  );
  assertStringIncludes(error.message, '"ab" is 2 tokens (97, 98)');
});
