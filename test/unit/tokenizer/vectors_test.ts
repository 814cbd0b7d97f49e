import { assert, assertEquals } from "@std/assert";
import { readGguf } from "../../../src/formats/gguf/gguf.ts";
import { StreamDecoder, tokenizerFromGguf } from "../../../src/tokenizer/tokenizer.ts";
import { sharedAvailable, sharedPath } from "../../support/shared.ts";
import { random, randomText } from "./support.ts";

const MODELS = [
  "llama-bpe",
  "llama-spm",
  "phi-3",
  "gpt-2",
  "qwen2",
  "falcon",
  "deepseek-llm",
  "starcoder",
];

function load(model: string) {
  const path = sharedPath("tokenizers", `ggml-vocab-${model}.gguf`);
  return { path, tokenizer: tokenizerFromGguf(readGguf(path).metadata, path) };
}

for (const model of MODELS) {
  const ignore = !sharedAvailable("tokenizers", `ggml-vocab-${model}.gguf.inp`);

  Deno.test({
    name: `${model}: the ids of every test text are those of llama.cpp's test`,
    ignore,
    fn() {
      const { path, tokenizer } = load(model);
      const texts = Deno.readTextFileSync(`${path}.inp`).split("\n__ggml_vocab_test__\n");
      const expected = Deno.readTextFileSync(`${path}.out`).split("\n");
      assertEquals(texts.length, expected.length);
      for (const [i, text] of texts.entries()) {
        const ids = tokenizer.encode(text, { addSpecial: false });
        const wanted = (expected[i] ?? "").split(/\s+/).filter((id) => id !== "").map(Number);
        assertEquals([...ids], wanted, JSON.stringify(text));
        assertEquals(tokenizer.decode(ids), text);
      }
    },
  });

  Deno.test({
    name: `${model}: decoding gives back random texts, at once and streamed`,
    ignore,
    fn() {
      const { tokenizer } = load(model);
      const next = random(7);
      for (let i = 0; i < 200; i++) {
        // Falcon's vocabulary lacks some control characters, and SentencePiece decodes "▁" as a
        // space.
        const text = randomText(next, 60).replace(/[\p{Cc}▁]/gu, "\n").normalize();
        const ids = tokenizer.encode(text, { addSpecial: false, parseSpecial: false });
        assertEquals(tokenizer.decode(ids), text);
        const stream = new StreamDecoder(tokenizer, { startsText: true });
        let streamed = "";
        for (const id of ids) streamed += stream.push(id);
        assertEquals(streamed + stream.flush(), text);
      }
    },
  });
}

Deno.test({
  name: "special tokens of real files: BOS, the ends of an answer, control tokens in text",
  ignore: !sharedAvailable("tokenizers"),
  fn() {
    const { tokenizer } = load("llama-bpe");
    assertEquals(tokenizer.description, "byte-level BPE, 128256 tokens, pre-tokenizer llama-bpe");
    assertEquals([tokenizer.bosId, tokenizer.addBos, tokenizer.addEos], [128000, true, false]);
    assertEquals(tokenizer.eosIds, [128001, 128009]);
    assertEquals([...tokenizer.encode("Hi")], [128000, 13347]);
    assertEquals([...tokenizer.encode("<|begin_of_text|>Hi")], [128000, 13347]);
    assertEquals([...tokenizer.encode("<|eot_id|>", { addSpecial: false })], [128009]);
    const asText = tokenizer.encode("<|eot_id|>", { addSpecial: false, parseSpecial: false });
    assert(asText.length > 1 && asText.every((id) => !tokenizer.isSpecial(id)));
    assertEquals(tokenizer.decode(asText), "<|eot_id|>");
    assertEquals(tokenizer.decode([128000, 13347, 128009]), "Hi");
    assertEquals(
      tokenizer.decode([128000, 13347, 128009], { skipSpecial: false }),
      "<|begin_of_text|>Hi<|eot_id|>",
    );
    assertEquals(tokenizer.tokenText(4435), "ĠWorld");
    assertEquals([...tokenizer.tokenBytes(4435)], [...new TextEncoder().encode(" World")]);
    assertEquals(tokenizer.tokenBytes(128009).length, 0);
    assertEquals(tokenizer.idOf("ĠWorld"), 4435);
    assertEquals(tokenizer.idOf("no such token"), undefined);

    const phi = load("phi-3").tokenizer;
    assertEquals(phi.eosIds, [32000, 32007]);
    // Phi-3's control tokens absorb the whitespace after them.
    assertEquals(
      [...phi.encode("<|user|>\nHi", { addSpecial: false })],
      [...phi.encode("<|user|>Hi", { addSpecial: false })],
    );
  },
});
