/** Checks a real model through the public API: 256 tokens on which llama2.c and llama.cpp agree. */
import { assert, assertEquals, assertMatch } from "@std/assert";
import { load, StreamDecoder } from "../../../src/mod.ts";
import { sharedAvailable, sharedPath } from "../../support/shared.ts";
import { readJson } from "../reference_check.ts";

const ignore = !sharedAvailable("models", "stories260K");

const expected = () =>
  readJson<{ prompt_ids: number[]; greedy_ids: number[]; text: string }>(
    sharedPath("models", "stories260K", "expected.json"),
  );

for (const device of ["reference", "cpu"]) {
  for (const file of ["", "stories260K-f32.gguf"]) {
    const kind = file === "" ? "folder" : "GGUF file";
    Deno.test({
      name: `stories260K (${kind}) gives the expected story on ${device}`,
      ignore,
      fn: async () => {
        const { prompt_ids, greedy_ids, text } = expected();
        await using model = await load(sharedPath("models", "stories260K", file), { device });
        assertEquals([...model.encodePrompt("", { raw: true }).tokens], prompt_ids);
        const answer = await model.complete("", { raw: true, temperature: 0, maxTokens: 256 });
        assertEquals(answer.tokenIds, greedy_ids);
        assertEquals(answer.text, text);
        assertEquals(answer.finishReason, "length");
        assertEquals([answer.promptTokens, answer.completionTokens], [1, 256]);
      },
    });
  }
}

Deno.test({
  name: "stories260K streams the text that it completes",
  ignore,
  fn: async () => {
    const { greedy_ids, text } = expected();
    await using model = await load(sharedPath("models", "stories260K"), { device: "cpu" });
    const decoder = new StreamDecoder(model.tokenizer, { startsText: true });
    let streamed = "";
    const tokens: number[] = [];
    const options = { raw: true, temperature: 0, maxTokens: 256 } as const;
    for await (const piece of model.generate("", options)) {
      streamed += piece.text;
      if (piece.token === undefined) continue;
      tokens.push(piece.token);
      assertEquals(piece.text, decoder.push(piece.token));
    }
    assertEquals(tokens, greedy_ids);
    assertEquals(streamed, text);
  },
});

Deno.test({
  name: "stories260K in Q8_0, whose rows of 172 columns are F16, gives a story",
  ignore,
  fn: async () => {
    const path = sharedPath("models", "stories260K", "stories260K-q8_0.gguf");
    await using model = await load(path, { device: "cpu" });
    const types = new Set([...model.checkpoint.tensors.values()].map(({ type }) => type));
    assertEquals([...types].sort(), ["F16", "F32", "Q8_0"]);
    const { text, completionTokens } = await model.complete("", {
      raw: true,
      temperature: 0,
      maxTokens: 100,
    });
    assertEquals(completionTokens, 100);
    assertMatch(text, /^Once upon a time, there was a /);
    const words = text.match(/[A-Za-z']+/g) ?? [];
    assert(words.length > 30, text);
    assertMatch(text, /^[\w\s.,!?'"-]+$/);
  },
});
