import { assertEquals, assertThrows } from "@std/assert";
import { ForgeError } from "../../../src/errors.ts";
import { StreamDecoder, type Tokenizer } from "../../../src/tokenizer/tokenizer.ts";
import {
  addedToken,
  build,
  byteFallbackJson,
  byteLevelJson,
  characterJson,
  type Json,
} from "./support.ts";

function push(stream: StreamDecoder, ids: Iterable<number>): string[] {
  return Array.from(ids, (id) => stream.push(id));
}

function bytes(tokenizer: Tokenizer, text: string): Int32Array {
  return tokenizer.encode(text, { addSpecial: false });
}

Deno.test("a character spread over tokens is returned with its last byte", () => {
  const tokenizer = build(byteLevelJson([], []));
  const stream = new StreamDecoder(tokenizer);
  assertEquals(push(stream, bytes(tokenizer, "é😀a")), ["", "é", "", "", "", "😀", "a"]);
  assertEquals(stream.flush(), "");
});

Deno.test("byte tokens of a SentencePiece vocabulary stream like other tokens", () => {
  const tokenizer = build(byteFallbackJson(["▁", "a"], []));
  const stream = new StreamDecoder(tokenizer);
  assertEquals(push(stream, bytes(tokenizer, "a😀")), [" ", "a", "", "", "", "😀"]);
});

Deno.test("an incomplete character is U+FFFD, at the end and inside of a text", () => {
  const tokenizer = build(byteLevelJson([], []));
  const [first = 0, second = 0] = bytes(tokenizer, "😀");
  const stream = new StreamDecoder(tokenizer);
  assertEquals(push(stream, [first, second]), ["", ""]);
  assertEquals(stream.flush(), "\ufffd");
  assertEquals(push(stream, [first, 64]), ["", "\ufffd" + tokenizer.decode([64])]);
});

Deno.test("a byte-order mark is text", () => {
  const tokenizer = build(byteLevelJson([], []));
  const ids = bytes(tokenizer, "\ufeffa");
  const stream = new StreamDecoder(tokenizer);
  assertEquals(push(stream, ids).join(""), "\ufeffa");
  assertEquals(tokenizer.decode(ids), "\ufeffa");
});

Deno.test("startsText removes one leading space, also after control tokens", () => {
  const json = byteFallbackJson(["▁", "a"], []);
  const tokenizer = build({ ...json, added_tokens: [addedToken(258, "<s>")] });
  const ids = [258, ...bytes(tokenizer, " a a")];
  assertEquals(push(new StreamDecoder(tokenizer), ids).join(""), "  a a");
  const stripping = new StreamDecoder(tokenizer, { startsText: true });
  assertEquals(push(stripping, ids).join("") + stripping.flush(), " a a");
});

Deno.test("a byte-level model keeps a leading space", () => {
  const tokenizer = build(byteLevelJson(["Ġa"], ["Ġ a"]));
  const stream = new StreamDecoder(tokenizer, { startsText: true });
  assertEquals(push(stream, [...bytes(tokenizer, " a a")]), [" a", " a"]);
});

Deno.test("a strip of several characters continues over tokens until the text begins", () => {
  const decoder = {
    type: "Sequence",
    decoders: [{ type: "Fuse" }, { type: "Strip", content: "x", start: 3, stop: 0 }],
  };
  const tokenizer = build(characterJson("xa", { decoder }));
  const [x = 0, a = 0] = [tokenizer.idOf("x"), tokenizer.idOf("a")];
  for (const [ids, text] of [[[x, x, x, x, a], "xa"], [[x, a, x], "ax"]] as const) {
    const stream = new StreamDecoder(tokenizer, { startsText: true });
    assertEquals(push(stream, ids).join(""), text);
    assertEquals(tokenizer.decode(ids), text);
  }
});

Deno.test("stripsLeadingSpace says if decoding removes a space from the start of a text", () => {
  const strip = (content: string, start = 1) => ({
    type: "Sequence",
    decoders: [
      { type: "Replace", pattern: { String: "▁" }, content: " " },
      { type: "Fuse" },
      { type: "Strip", content, start, stop: 0 },
    ],
  });
  const metaspace = { type: "Metaspace", replacement: "▁" };
  const cases: [Json, boolean][] = [
    [{ decoder: strip(" ") }, true],
    [{ decoder: strip("x") }, false],
    [{ decoder: metaspace }, true],
    [{ decoder: { ...metaspace, prepend_scheme: "never" } }, false],
    // Words separated by spaces: the first has none before it.
    [{ decoder: { type: "WordPiece", prefix: "##" } }, true],
    [{}, true],
    [byteLevelJson([], []), false],
  ];
  for (const [json, strips] of cases) {
    const tokenizer = build({ ...characterJson("▁xa"), ...json });
    assertEquals(tokenizer.stripsLeadingSpace, strips, JSON.stringify(json.decoder));
  }
});

Deno.test("an id outside the vocabulary is rejected with the valid range", () => {
  const stream = new StreamDecoder(build(byteLevelJson([], [])));
  for (const id of [-1, 256, 1.5, NaN]) {
    const error = assertThrows(() => stream.push(id), ForgeError, "valid are 0 to 255");
    assertEquals(error.code, "bad_input");
  }
});

Deno.test("a control token of shownTokens adds its name", () => {
  const json = byteLevelJson([], []);
  const tokenizer = build({
    ...json,
    added_tokens: [addedToken(256, "<call>"), addedToken(257, "<other>")],
  });
  const [a = 0] = bytes(tokenizer, "a");
  const ids = [256, a, 257];
  assertEquals(push(new StreamDecoder(tokenizer), ids), ["", "a", ""]);
  const shown = new StreamDecoder(tokenizer, { shownTokens: new Set([256, a]) });
  assertEquals(push(shown, ids), ["<call>", "a", ""]);
});

Deno.test("a control token that is shown begins the text", () => {
  const tokenizer = build(characterJson("▁a", {
    decoder: { type: "Metaspace", replacement: "▁" },
    added_tokens: [addedToken(4, "<call>")],
  }));
  const options = { startsText: true, shownTokens: new Set([4]) };
  assertEquals(push(new StreamDecoder(tokenizer, options), [4, 1, 2]), ["<call>", " ", "a"]);
  assertEquals(push(new StreamDecoder(tokenizer, { startsText: true }), [4, 1, 2]), ["", "", "a"]);
});

Deno.test("an id without a piece does not begin a text", () => {
  const tokenizer = build(characterJson("▁a", {
    decoder: { type: "Metaspace", replacement: "▁" },
    added_tokens: [addedToken(9, "<call>")],
  }));
  assertEquals([tokenizer.tokenText(5), tokenizer.decode([5, 1, 2])], ["", "a"]);
  const stream = new StreamDecoder(tokenizer, { startsText: true });
  assertEquals(push(stream, [5, 1, 2]), ["", "", "a"]);
});
