import { assert, assertEquals } from "@std/assert";
import { readGguf } from "../../../src/formats/gguf/gguf.ts";
import {
  StreamDecoder,
  tokenizerFromGguf,
  tokenizerFromJson,
} from "../../../src/tokenizer/tokenizer.ts";
import { sharedAvailable, sharedPath } from "../../support/shared.ts";
import { random, randomText } from "./support.ts";

const ignore = !sharedAvailable("models", "stories260K");

function readJson(name: string) {
  return JSON.parse(Deno.readTextFileSync(sharedPath("models", "stories260K", name)));
}

function fromFolder() {
  return tokenizerFromJson(readJson("tokenizer.json"), readJson("tokenizer_config.json"), "folder");
}

function fromFile() {
  const path = sharedPath("models", "stories260K", "stories260K-f32.gguf");
  return tokenizerFromGguf(readGguf(path).metadata, path);
}

Deno.test({
  name: "stories260K: tokenizer.json and GGUF give the same ids, and decode alike",
  ignore,
  fn() {
    const folder = fromFolder(), file = fromFile();
    assertEquals(folder.vocabSize, 512);
    assertEquals(file.vocabSize, 512);
    assertEquals([folder.bosId, folder.eosIds, folder.addBos], [1, [2], true]);
    assertEquals([file.bosId, file.eosIds, file.addBos], [1, [2], true]);
    const next = random(11);
    for (let i = 0; i < 1000; i++) {
      const text = randomText(next, 80);
      const ids = folder.encode(text);
      assertEquals([...ids], [...file.encode(text)], JSON.stringify(text));
      assertEquals(folder.decode(ids), file.decode(ids));
    }
    for (let id = 0; id < 512; id++) {
      assertEquals([...folder.tokenBytes(id)], [...file.tokenBytes(id)], `bytes of ${id}`);
      assertEquals(folder.isSpecial(id), file.isSpecial(id), `whether ${id} is special`);
    }
  },
});

Deno.test({
  name: "stories260K: the ids of the documented story decode to its text",
  ignore,
  fn() {
    const expected: { greedy_ids: number[]; text: string } = readJson("expected.json");
    for (const tokenizer of [fromFolder(), fromFile()]) {
      assertEquals(tokenizer.decode(expected.greedy_ids), expected.text);
      assert(!expected.text.startsWith(" "));
      // As a continuation the story begins with the space of its first word.
      for (const startsText of [false, true]) {
        const stream = new StreamDecoder(tokenizer, { startsText });
        const parts = expected.greedy_ids.map((id) => stream.push(id));
        const text = parts.join("") + stream.flush();
        assertEquals(text, (startsText ? "" : " ") + expected.text);
      }
    }
  },
});
