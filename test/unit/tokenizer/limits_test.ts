/** Encoding fails if and only if a text has more tokens than the limit. */
import { assert, assertEquals, assertThrows } from "@std/assert";
import { encodeText } from "../../../src/engine/request/prompt.ts";
import { ForgeError } from "../../../src/errors.ts";
import { type Tokenizer, TokenLimitError } from "../../../src/tokenizer/tokenizer.ts";
import { openCheckpoint, openTokenizer } from "../../../src/mod.ts";
import { Random } from "../../support/random.ts";
import { join } from "@std/path";
import { ROOT } from "../../support/checkout.ts";
import { sharedAvailable, sharedPath } from "../../support/shared.ts";
import { build, byteFallbackJson, byteLevelJson, randomText } from "./support.ts";

const MERGES = [["a", "b"], ["ab", "ab"], ["abab", "abab"], ["Ġ", "Ġ"], ["ĠĠ", "ĠĠ"]] as const;

function tokenizers(): [string, Tokenizer][] {
  const joined = MERGES.map((pair) => pair.join(""));
  const spaces = joined.map((piece) => piece.replaceAll("Ġ", "▁"));
  const spaced = MERGES.map((pair) => pair.map((piece) => piece.replaceAll("Ġ", "▁")));
  const made: [string, Tokenizer][] = [
    ["bytes", build(byteLevelJson(joined, MERGES))],
    ["characters", build(byteFallbackJson(["▁", "a", "b", ...spaces], spaced))],
    ["demo", openTokenizer(openCheckpoint(join(ROOT, "models", "demo")))],
  ];
  for (const name of ["qwen2", "llama-spm", "phi-3"]) {
    const path = ["tokenizers", `ggml-vocab-${name}.gguf`] as const;
    if (!sharedAvailable(...path)) continue;
    made.push([name, openTokenizer(openCheckpoint(sharedPath(...path)))]);
  }
  return made;
}

/** Returns a text with long words of few characters, which are checked before they are merged. */
function longWords(random: Random): string {
  const word = () => {
    const letters = ["ab", " ", "a", "é", "😀", "\n", "1", "=", "abcdefgh", "<0x0A>"];
    const letter = letters[random.int(0, letters.length - 1)]!;
    return letter.repeat(random.int(1, 400));
  };
  return Array.from({ length: random.int(1, 4) }, word).join("");
}

Deno.test("encode: a limit rejects exactly the texts with more tokens", () => {
  const random = new Random("tokenizer/limits");
  for (const [name, tokenizer] of tokenizers()) {
    for (let round = 0; round < 60; round++) {
      const text = round % 2 === 0 ? longWords(random) : randomText(() => random.uniform(), 300);
      const ids = tokenizer.encode(text, { addSpecial: false });
      const encode = (maxTokens: number, truncate = false) =>
        tokenizer.encode(text, { addSpecial: false, maxTokens, truncate });
      assertEquals(encode(ids.length), ids, `${name}: ${JSON.stringify(text)}`);
      if (ids.length === 0) continue;
      const less = random.int(0, ids.length - 1);
      const { limit } = assertThrows(() => encode(less), TokenLimitError);
      assertEquals(limit, less);
      const cut = encode(less, true);
      assert(cut.length <= less);
      assertEquals(cut, ids.slice(0, cut.length));
    }
  }
});

Deno.test("encode: texts far beyond the context are rejected with a bounded count", () => {
  for (const [name, tokenizer] of tokenizers()) {
    for (const letter of ["ab", "é", "x1"]) {
      const text = letter.repeat(500_000);
      const error = assertThrows(() => encodeText(text, tokenizer, 64, "the text"), ForgeError);
      assertEquals(
        error.message,
        "the text has more than 16384 tokens; the context holds 64",
        `${name}: ${letter}`,
      );
    }
  }
});
