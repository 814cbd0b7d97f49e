/** Tests that the readers of an answer find the same parts however its text is split. */
import { assert, assertEquals, assertRejects } from "@std/assert";
import type { JsonObject } from "../../../src/formats/json.ts";
import { RequestError } from "../../../src/requests/values.ts";
import { EnforceableTools } from "../../../src/serve/chat/tools.ts";
import { ChatChoice } from "../../../src/serve/openai/chat_choice.ts";
import { OllamaFormat } from "../../../src/serve/ollama/format.ts";
import type { Service } from "../../../src/serve/service.ts";
import { Blocks } from "../../../src/serve/chat/blocks.ts";
import {
  type CallFormat,
  callSchema,
  findCallFormat,
} from "../../../src/serve/chat/call_formats.ts";
import { CallReader } from "../../../src/serve/chat/call_reader.ts";
import type { GenerationEnd, Piece } from "../../../src/engine/generation/request.ts";
import { HarmonyReader } from "../../../src/serve/chat/harmony.ts";
import { endsInReasoning, ReasoningReader } from "../../../src/serve/chat/reasoning.ts";
import type { Part, PartReader } from "../../../src/serve/chat/dialect.ts";
import type { Tokenizer } from "../../../src/tokenizer/tokenizer.ts";
import { Random } from "../../support/random.ts";
import { sharedAvailable, sharedPath } from "../../support/shared.ts";

const HERMES = findCallFormat("tools <tool_call>")!;
const MISTRAL = findCallFormat("tools [TOOL_CALLS]")!;
const LLAMA = findCallFormat('tools "parameters": <|start_header_id|>')!;
const XML = findCallFormat("tools <tool_call><function=a><parameter=b>")!;
const MARKS = { open: "<think>", close: "</think>" };
const NAMES = new Set(["f", "g"]);
const TOOLS = new Map([...NAMES].map((name) => [name, { properties: { t: { type: "string" } } }]));

const PIECES = [
  "<think>",
  "</think>",
  "<tool_call>",
  "</tool_call>",
  '{"name": "f", "arguments": {"a": "</tool_call>"}}',
  '{"name": "g", "arguments": {}}',
  '{"name": "h", "arguments": {}}',
  '<tool_call>\n{"name": "f", "arguments": {"a": 1}}\n</tool_call>',
  "<",
  "</th",
  "<tool",
  " \n",
  "\n\n",
  "word",
  "é🙂",
];

function newReader(isOpen: boolean): PartReader {
  return new ReasoningReader(MARKS, isOpen, new CallReader(HERMES, TOOLS, Infinity, false));
}

/** Joined parts of one kind, or one call. */
type Joined =
  | { readonly kind: "reasoning" | "content"; text: string }
  | { readonly kind: "call"; readonly name: string; arguments: string; isOpen?: true };

/** Reads a text in pieces and joins adjacent parts of the same kind. */
function read(reader: PartReader, pieces: readonly string[]): Joined[] {
  const joined: Joined[] = [];
  const parts: Part[] = [...pieces.flatMap((piece) => reader.push(piece)), ...reader.end()];
  for (const part of parts) {
    const last = joined.at(-1);
    if (part.kind === "call") {
      joined.push({ kind: "call", name: part.name, arguments: "", isOpen: true });
    } else if (part.kind === "arguments" || part.kind === "called") {
      assert(last?.kind === "call" && last.isOpen, "arguments of a call that is open");
      if (part.kind === "called") delete last.isOpen;
      else last.arguments += part.text;
    } else if (last?.kind === part.kind) last.text += part.text;
    else joined.push({ kind: part.kind, text: part.text });
  }
  return joined;
}

Deno.test("readers: pieces do not change the parts, and only marks and space are dropped", () => {
  const random = new Random("readers", 1);
  const pick = (count: number) => Math.floor(random.uniform() * count);
  let calls = 0;
  for (let round = 0; round < 3000; round++) {
    const text = Array.from({ length: 1 + pick(9) }, () => PIECES[pick(PIECES.length)]).join("");
    const isOpen = pick(2) === 0;
    const whole = read(newReader(isOpen), [text]);
    assertEquals(read(newReader(isOpen), [...text]), whole, JSON.stringify(text));
    const cut = pick(text.length + 1);
    assertEquals(read(newReader(isOpen), [text.slice(0, cut), text.slice(cut)]), whole, text);
    for (const part of whole) {
      if (part.kind === "call") calls++;
      else assert(text.includes(part.text.trim()) || part.text.includes("tool_call>"), text);
    }
  }
  assert(calls > 100, `${calls} calls`);
});

Deno.test("blocks: each is opened, extended and closed in this order, and has its own id", () => {
  const text = "<think>hm</think>I look" +
    '<tool_call>{"name": "f", "arguments": {"a": 1}}</tool_call>';
  const cases: [pieces: readonly string[], isCut: boolean][] = [
    [[...text], false],
    [[text], false],
    [[text.slice(0, -20)], true],
    [[text.slice(0, 30), text.slice(30, -20)], true],
  ];
  for (const [pieces, isCut] of cases) {
    const blocks = new Blocks(newReader(false));
    const end = { finishReason: "stop" } as unknown as GenerationEnd;
    const events = pieces.flatMap((piece, i) => {
      const isLast = i === pieces.length - 1;
      return blocks.take({ text: piece, token: 1, ...(isLast ? { end } : {}) } as Piece);
    });
    const [reasoning, answer, call] = blocks.all;
    assertEquals(blocks.all.map(({ kind }) => kind), ["reasoning", "text", "call"]);
    assertEquals([reasoning!.text, answer!.text, call!.name], ["hm", "I look", "f"]);
    assertEquals(call!.text.endsWith("}"), !isCut);
    assertEquals([blocks.endsInCalls, blocks.end], [!isCut, end]);
    assertEquals(new Set(blocks.all.map(({ id }) => id)).size, 3);
    assert(/^\w{9}$/.test(call!.id), call!.id);
    const kinds = events.map(({ kind, index }) => `${kind}${index}`).join(" ");
    assert(/^(open(\d) (delta\2 )*close\2 ?){3}$/.test(kinds), kinds);
    for (const [index, block] of blocks.all.entries()) {
      const deltas = events.flatMap((event) =>
        event.kind === "delta" && event.index === index ? [event.text] : []
      );
      assertEquals(deltas.join(""), block.text);
      assert(events.every((event) => event.index !== index || event.block === block));
    }
  }
});

Deno.test("choices: each piece has its log-probabilities, and the last the reason of the end", () => {
  const tokenizer = {
    ...{ vocabSize: 9, isSpecial: () => false },
    tokenBytes: (id: number) => Uint8Array.of(97 + id),
  };
  const newChoice = (hasLogprobs: boolean) =>
    new ChatChoice(1, newReader(false), tokenizer as unknown as Tokenizer, hasLogprobs);
  const end = { finishReason: "length" } as unknown as GenerationEnd;
  const piece = (text: string, token?: number, end?: GenerationEnd) => ({
    ...{ text, token, end, top: [] },
    logprob: token === undefined ? undefined : -token,
  });
  const logprob = (token: number) => ({
    ...{ token: "abcdef"[token], bytes: [97 + token], logprob: -token, top_logprobs: [] },
  });
  const delta = (delta: object, tokens: number[] = [], finish_reason: string | null = null) => ({
    ...{ index: 1, delta, finish_reason },
    logprobs: tokens.length === 0 ? null : { content: tokens.map(logprob) },
  });
  const begin = delta({ role: "assistant", content: "" });
  const choice = newChoice(true);
  assertEquals<unknown>(choice.deltas(), [begin]);
  const steps: [Piece[], object[]][] = [
    // The beginning of a mark, and what it turns out to be.
    [[piece("<th", 1)], [delta({}, [1])]],
    [[piece("ink>a</think>b", 2)], [
      delta({ reasoning_content: "a" }, [2]),
      delta({ content: "b" }),
    ]],
    [[piece("c", 3), piece("", 4)], [delta({ content: "c" }, [3, 4])]],
    [[], []],
    [[piece("d", 5), piece("", undefined, end)], [
      delta({ content: "d" }, [5]),
      delta({}, [], "length"),
    ]],
  ];
  for (const [pieces, expected] of steps) {
    for (const one of pieces) choice.take(one);
    assertEquals<unknown>(choice.deltas(), expected);
  }
  assertEquals<unknown>(choice.whole(), {
    index: 1,
    message: { role: "assistant", content: "bcd", reasoning_content: "a" },
    logprobs: { content: [1, 2, 3, 4, 5].map(logprob) },
    finish_reason: "length",
  });
  const plain = newChoice(false);
  plain.take(piece("<th", 1));
  assertEquals<unknown>(plain.deltas(), [begin]);
  plain.take(piece("", 2));
  assertEquals(plain.deltas(), []);
  plain.take(piece("e", 3));
  plain.take(piece("", undefined, end));
  assertEquals<unknown>(plain.deltas(), [
    delta({ content: "<the" }),
    delta({}, [], "length"),
  ]);
});

Deno.test("readers: calls of every format, in any pieces", () => {
  const random = new Random("calls", 1);
  const pick = (count: number) => Math.floor(random.uniform() * count);
  const objects = [
    '{"name": "f", "arguments": {"a": [1, "}"], "b": {"c": "\\"</tool_call>"}}}',
    '{"parameters": {"a": 1}, "id": "x{", "name": "g"}',
    '{"name": "g"}',
    '{"name": "g", "arguments": null}',
    '{"id": 7, "name": "f", "arguments": {}}',
    '{"name": "h", "arguments": {}}',
    '{"name": "f", "arguments": []}',
    '{"name": "f", "argu',
    '{"name": 1}',
    '{"name": "f", "arguments": {"a": "b',
    "<function=f>\n<parameter=a>\n1\n</parameter>\n</function>",
    "<function=g></function>",
    "<function=f>x",
    "<function=f><parameter=a>1</parameter>x",
    '<function=f>\n<parameter=t>\n\nx"y\n</para\n\n</parameter>\n<parameter=a>1</parameter></function>',
    "<function=f><parameter=t></parameter><parameter=t>\n</parameter></function>",
  ];
  const marks = ["<tool_call>", "</tool_call>", "[TOOL_CALLS]", "<|python_tag|>"];
  const others = ["[", "]", ", ", "{", "}", '"', "word", " ", "\n", "<", "</tool", "f"];
  const found = { calls: 0, open: 0, content: 0 };
  for (const format of [HERMES, MISTRAL, LLAMA, XML]) {
    for (let round = 0; round < 1000; round++) {
      const text = Array.from({ length: 1 + pick(7) }, () => {
        const kind = pick(5);
        if (kind < 2) return objects[pick(objects.length)];
        return kind < 4 ? marks[pick(marks.length)] : others[pick(others.length)];
      }).join("");
      const isCall = pick(4) === 0;
      const most = pick(3) === 0 ? 1 : Infinity;
      const reader = () => new CallReader(format, TOOLS, most, isCall);
      const whole = read(reader(), [text]);
      assertEquals(read(reader(), [...text]), whole, `${format.open} ${JSON.stringify(text)}`);
      const cut = pick(text.length + 1);
      assertEquals(read(reader(), [text.slice(0, cut), text.slice(cut)]), whole, text);
      for (const [i, part] of whole.entries()) {
        if (part.kind !== "call") {
          assertEquals(part.kind, "content");
          found.content++;
        } else if (part.isOpen !== true) {
          found.calls++;
          assert(NAMES.has(part.name) && /^\{.*[}\]]$/s.test(part.arguments), text);
        } else {
          found.open++;
          assert(part.arguments.startsWith("{"), text);
          // A call stays open only at the end of the text or if it turns out to be content.
          assert(i === whole.length - 1 || whole[i + 1]!.kind === "content", text);
        }
      }
      assert(whole.filter(({ kind }) => kind === "call").length <= most, text);
    }
  }
  assert(found.calls > 300 && found.open > 60 && found.content > 2000, JSON.stringify(found));
});

Deno.test("readers: each format has its calls, and other text is content", () => {
  const f = (args: string) => ({ kind: "call", name: "f", arguments: args }) as const;
  const g = { kind: "call", name: "g", arguments: "{}" } as const;
  const said = (text: string) => ({ kind: "content", text }) as const;
  const one = '{"name": "f", "arguments": {"a": 1}}', two = '{"name": "g", "parameters": {}}';
  const cases: readonly (readonly [CallFormat, text: string, Joined[], most?: number])[] = [
    [HERMES, `a\n<tool_call>${one}</tool_call>\nb`, [said("a"), f('{"a":1}'), said("\nb")]],
    [HERMES, `<tool_call>${one}</tool_call>\n<tool_call>${two}</tool_call>\n`, [
      f('{"a":1}'),
      g,
    ]],
    [HERMES, `<tool_call>${one}</tool_call><tool_call>${two}</tool_call>`, [f('{"a":1}')], 1],
    [HERMES, `<tool_call>${one}`, [f('{"a":1}')]],
    [HERMES, one, [said(one)]],
    [HERMES, `<tool_call>[${one}]</tool_call>`, [said(`<tool_call>[${one}]</tool_call>`)]],
    [HERMES, '<tool_call>{"name": "f"}</tool_call>', [f("{}")]],
    [HERMES, '<tool_call>{"name": "f", "arguments": null}</tool_call>', [f("{}")]],
    [HERMES, '<tool_call>{"id": [1, "}"], "name": "f", "arguments": {}, "x": -1.5}', [f("{}")]],
    [HERMES, '<tool_call>{"arguments": {}}', [said('<tool_call>{"arguments": {}}')]],
    [HERMES, '<tool_call>{"name": "f", "name": "g", "arguments": {"b": 2}, "arguments": {}}', [
      f('{"b":2}'),
    ]],
    [HERMES, '<tool_call>{"name": "\\u0066", "arguments": {"a b": "\\" }"}}', [
      f('{"a b":"\\" }"}'),
    ]],
    [HERMES, `<tool_call>${one}</tool_call><tool_call>${two}</tool_call>`, [f('{"a":1}'), g], 2],
    [HERMES, `<tool_call>${one}\n</tool`, [f('{"a":1}')]],
    ...['{"id": @, "name": "f", "arguments": {}}', '("name": "f", "arguments": {}}'].map(
      (text): [CallFormat, string, Joined[]] => [
        HERMES,
        `<tool_call>${text}`,
        [said(`<tool_call>${text}`)],
      ],
    ),
    [HERMES, "a <tool", [said("a <tool")]],
    [HERMES, "a \n", [said("a \n")]],
    [MISTRAL, `[TOOL_CALLS][ ${one} , ${two} ] b`, [f('{"a":1}'), g, said(" b")]],
    [MISTRAL, `[TOOL_CALLS]${one}`, [f('{"a":1}')]],
    [MISTRAL, one, [said(one)]],
    [MISTRAL, `[TOOL_CALLS][${one} x`, [f('{"a":1}'), said("x")]],
    [MISTRAL, "[TOOL_CALLS][ x", [said("[TOOL_CALLS][ x")]],
    [LLAMA, `\n${one}`, [f('{"a":1}')]],
    [LLAMA, `<|python_tag|>${two}`, [g]],
    [LLAMA, `a ${two}`, [said(`a ${two}`)]],
    [LLAMA, `a <|python_tag|>${two}`, [said("a"), g]],
    [LLAMA, '{"x": 1}', [said('{"x": 1}')]],
    [XML, "<tool_call><function=f><parameter=a>{}</parameter></function></tool_call>b", [
      f('{"a":{}}'),
      said("b"),
    ]],
    [XML, "<tool_call><function=g></function>", [g]],
    [XML, "<tool_call><function=f><parameter=t>\n\n1\n\n</parameter></function>", [
      f('{"t":"\\n1\\n"}'),
    ]],
    [XML, "<tool_call><function=f", [said("<tool_call><function=f")]],
    [XML, "<tool_call><function=f><parameter=a>1</parameter>x", [
      { ...f('{"a":1'), isOpen: true },
      said("x"),
    ]],
    [XML, `<tool_call>${one}</tool_call>`, [said(`<tool_call>${one}</tool_call>`)]],
  ];
  for (const [format, text, expected, most = Infinity] of cases) {
    const reader = () => new CallReader(format, TOOLS, most, false);
    assertEquals(read(reader(), [text]), expected, text);
    assertEquals(read(reader(), [...text]), expected, text);
  }
});

Deno.test("readers: reasoning is what stands between the marks at the beginning", () => {
  const thought = (text: string) => ({ kind: "reasoning", text }) as const;
  const said = (text: string) => ({ kind: "content", text }) as const;
  const cases: readonly (readonly [isOpen: boolean, text: string, Joined[]])[] = [
    [false, "<think>a</think>b", [thought("a"), said("b")]],
    [false, "<think></think>b", [said("b")]],
    [false, "<think>a", [thought("a")]],
    [false, "<think>a </thi", [thought("a </thi")]],
    [false, "<think>a <b</think>\n\n", [thought("a <b")]],
    [false, "<think>a</think>b<think>c</think>", [thought("a"), said("b<think>c</think>")]],
    [false, "b<think>a</think>", [said("b<think>a</think>")]],
    [false, "<thi", [said("<thi")]],
    [false, "<this>", [said("<this>")]],
    [false, " a", [said(" a")]],
    [true, "a\n</think>\n\nb", [thought("a"), said("b")]],
    [true, "a\n", [thought("a")]],
    [true, "</think>b", [said("b")]],
    [true, "<think>a</think>b", [thought("<think>a"), said("b")]],
  ];
  for (const [isOpen, text, expected] of cases) {
    assertEquals(read(newReader(isOpen), [text]), expected, text);
    assertEquals(read(newReader(isOpen), [...text]), expected, text);
  }
});

Deno.test("readers: tokens beyond the vocabulary are no part of the prompt's end", () => {
  const texts = ["a", "<think>", "\n", "b"];
  const tokenizer = {
    vocabSize: texts.length,
    decode: (ids: Iterable<number>, { skipSpecial }: { skipSpecial: boolean }) => {
      assert(!skipSpecial);
      return Array.from(ids, (id) => texts[id] ?? "unknown").join("");
    },
  } as unknown as Tokenizer;
  const ends: [ids: number[], isOpen: boolean][] = [[[], false], [[0, 1], true], [[1, 2], true]];
  for (const [ids, isOpen] of [...ends, [[1, 9], true], [[1, 3], false]] as typeof ends) {
    assertEquals(endsInReasoning(MARKS, ids, tokenizer), isOpen, `${ids}`);
  }
});

Deno.test("calls: the schema of a call has that of the arguments, with its references", () => {
  const parameters = {
    $defs: { a: { $ref: "#/$defs/b" }, default: { const: { $ref: "#" } } },
    properties: { enum: { $ref: "#/$defs/a" }, properties: { items: { $ref: "#" } } },
    anyOf: [{ $ref: "#/$defs/default" }],
    default: { $ref: "#/$defs/a" },
    enum: [{ $ref: "#" }],
    $ref: "other.json#/a",
  };
  const tools = [{ name: "f", parameters: {} }, { name: "g", parameters }];
  for (
    const [format, key, place] of [
      [HERMES, "arguments", "#/anyOf/1/properties/arguments"],
      [LLAMA, "parameters", "#/anyOf/1/properties/parameters"],
      [MISTRAL, "arguments", "#/items/anyOf/1/properties/arguments"],
    ] as const
  ) {
    const moved = {
      ...parameters,
      $defs: { a: { $ref: `${place}/$defs/b` }, default: { const: { $ref: "#" } } },
      properties: { enum: { $ref: `${place}/$defs/a` }, properties: { items: { $ref: place } } },
      anyOf: [{ $ref: `${place}/$defs/default` }],
    };
    const call = {
      anyOf: [["f", {}], ["g", moved]].map(([name, schema]) => ({
        type: "object",
        properties: { name: { const: name }, [key]: schema },
        required: ["name", key],
        additionalProperties: false,
      })),
    };
    const list = { type: "array", items: call, minItems: 1 };
    const isList = format === MISTRAL;
    assertEquals(callSchema(format, tools, Infinity), isList ? list : call);
    assertEquals(callSchema(format, tools, 2), isList ? { ...list, maxItems: 2 } : call);
  }
});

Deno.test("calls: a template shows the format of calls", () => {
  const llama = '"parameters": <|start_header_id|>';
  for (
    const [template, open, syntax] of [
      ["tools <tool_call>", "<tool_call>", "json"],
      ["tools <tool_call><function=", undefined, undefined],
      ["tools <tool_call><function=<parameter=", "<tool_call>", "xml"],
      ["tools <tool_call><arg_key>", undefined, undefined],
      ["my_tools <tool_call>", undefined, undefined],
      ["tools [TOOL_CALLS]", "[TOOL_CALLS]", "json"],
      ["tools [TOOL_CALLS][ARGS]", undefined, undefined],
      [`tools ${llama}`, "<|python_tag|>", "json"],
      ['tools "parameters" <|start_header_id|>', undefined, undefined],
      [llama, undefined, undefined],
    ] as const
  ) {
    const format = findCallFormat(template);
    assertEquals([format?.open, format?.syntax], [open, syntax], template);
  }
});

Deno.test("readers: a call is reported as soon as it is recognised", () => {
  const reader = new CallReader(HERMES, TOOLS, Infinity, false);
  const push = (text: string) => reader.push(text);
  assertEquals(push('a <tool_call>{"name": "f'), [{ kind: "content", text: "a" }]);
  assertEquals(push('", "arguments" : '), []);
  assertEquals(push(' { "x"'), [{ kind: "call", name: "f" }, { kind: "arguments", text: '{"x"' }]);
  assertEquals(push(' : "y z'), [{ kind: "arguments", text: ':"y z' }]);
  assertEquals(push('" }'), [{ kind: "arguments", text: '"}' }]);
  assertEquals(push("}\n</tool"), [{ kind: "called" }]);
  assertEquals(push('_call><tool_call>{"arguments": {"b": 1}, "name": "g"'), [
    { kind: "call", name: "g" },
    { kind: "arguments", text: '{"b":1}' },
  ]);
  assertEquals([...push("}</tool_call>"), ...reader.end()], [{ kind: "called" }]);
});

Deno.test("readers: what cannot become a call is content at once, not at the end", () => {
  const texts = [
    [HERMES, '<tool_call>["f"'],
    [HERMES, '<tool_call>{"name": "unknown"'],
    [HERMES, "<tool_call>f()"],
    [XML, "<tool_call><function=unknown>"],
    [XML, "<tool_call>f()"],
    [XML, "<tool_call><function=f x"],
    [XML, "<tool_call><function=f><other>"],
  ] as const;
  for (const [format, text] of texts) {
    const reader = new CallReader(format, TOOLS, Infinity, false);
    const shown = [...`${text}.`].flatMap((piece) => reader.push(piece));
    const content = shown.map((part) => part.kind === "content" ? part.text : part.kind).join("");
    assertEquals(content, `${text}.`);
  }
});

Deno.test("readers: white space at the beginning of reasoning is dropped", () => {
  for (
    const text of ["<think>\n\n Hm. I see.\n</think>\n\nYes.", "\n<think> \nHm. I see.</think>Yes."]
  ) {
    const parts: Joined[] = [
      { kind: "reasoning", text: "Hm. I see." },
      { kind: "content", text: "Yes." },
    ];
    assertEquals(read(newReader(false), [text]), parts);
    assertEquals(read(newReader(false), [...text]), parts);
  }
});

Deno.test("readers: string values are streamed, other values are given whole", () => {
  const reader = new CallReader(XML, TOOLS, Infinity, false);
  const push = (text: string) => reader.push(text);
  assertEquals(push("<tool_call><function=f><parameter=t>"), []);
  assertEquals(push('\nA "b'), [
    { kind: "call", name: "f" },
    { kind: "arguments", text: '{"t":"' },
    { kind: "arguments", text: 'A \\"b' },
  ]);
  assertEquals(push("\n</param"), []);
  assertEquals(push("s\n"), [{ kind: "arguments", text: "\\n</params" }]);
  assertEquals(push("</parameter><parameter=n>[1"), [{ kind: "arguments", text: '"' }]);
  assertEquals(push(", 2]</parameter>"), [{ kind: "arguments", text: ',"n":[1,2]' }]);
  assertEquals(push("</function>"), [{ kind: "arguments", text: "}" }, { kind: "called" }]);
});

Deno.test("readers: messages in channels, in any pieces", () => {
  const random = new Random("channels", 1);
  const pick = (count: number) => Math.floor(random.uniform() * count);
  const pieces = [
    "<|channel|>analysis<|message|>",
    "<|channel|>final<|message|>",
    "<|start|>assistant<|channel|>commentary to=functions.f <|constrain|>json<|message|>",
    "<|start|>assistant to=functions.g<|channel|>commentary<|message|>",
    "<|channel|>commentary to=functions.h<|message|>",
    "<|end|>",
    "<|",
    '{"a": 1}',
    "word",
    " to=",
    "\n",
  ];
  const kinds = new Set<string>();
  for (let round = 0; round < 3000; round++) {
    const text = Array.from({ length: 1 + pick(8) }, () => pieces[pick(pieces.length)]).join("");
    const whole = read(new HarmonyReader(NAMES, Infinity), [text]);
    assertEquals(read(new HarmonyReader(NAMES, Infinity), [...text]), whole, JSON.stringify(text));
    for (const { kind } of whole) kinds.add(kind);
  }
  assertEquals([...kinds].sort(), ["call", "content", "reasoning"]);
  const answer = "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>commentary" +
    '<|message|>Look:<|end|><|start|>assistant to=functions.f<|channel|>commentary json<|message|>{"a": 1}';
  assertEquals(read(new HarmonyReader(NAMES, Infinity), [answer]), [
    { kind: "reasoning", text: "Hm." },
    { kind: "content", text: "Look:" },
    { kind: "call", name: "f", arguments: '{"a":1}' },
  ]);
  const said = (text: string): Joined => ({ kind: "content", text });
  const thought = "<|channel|>analysis<|message|>Hm.<|end|>";
  const call: Joined = { kind: "call", name: "f", arguments: '{"a":1}' };
  const cases: readonly (readonly [text: string, Joined[]])[] = [
    ["plain", [said("plain")]],
    ["to=x", [said("to=x")]],
    ["<|channel|>final", []],
    ["<|message|>x", [said("x")]],
    [`${thought}<|start|>assistant<|channel|>final<|message|>`, [{
      kind: "reasoning",
      text: "Hm.",
    }]],
    [' to=functions.f <|constrain|>json<|message|>\n {"a": 1} \n', [call]],
    [' to=functions.f<|message|>{"a": 1} x', [call, said(" x")]],
    [" to=functions.f<|message|> <|end|>", [said(" ")]],
    [" to=functions.f<|message|><|end|>", []],
    [" to=functions.f<|message|> x", [said(" x")]],
  ];
  for (const [text, expected] of cases) {
    for (const parts of [[text], [...text]]) {
      assertEquals(read(new HarmonyReader(NAMES, Infinity), parts), expected, text);
    }
  }
});

Deno.test("readers: a list of calls ends at the limit", () => {
  const text = '[TOOL_CALLS][{"name": "f", "arguments": {}}, {"name": "g", "arguments": {}}]';
  for (const [most, names] of [[1, ["f"]], [2, ["f", "g"]], [3, ["f", "g"]]] as const) {
    const parts = read(new CallReader(MISTRAL, TOOLS, most, false), [...text]);
    assertEquals(parts.map((part) => part.kind === "call" ? part.name : part.text), [...names]);
  }
});

Deno.test("readers: an empty list of calls is not content", () => {
  for (const list of ["[]", "[ ]", "[,]"]) {
    assertEquals(
      read(new CallReader(MISTRAL, TOOLS, Infinity, false), [`[TOOL_CALLS]${list}`]),
      [],
    );
  }
});

Deno.test("readers: calls in channels above the limit are dropped, unknown ones are content", () => {
  const message = (name: string) =>
    `<|start|>assistant<|channel|>commentary to=functions.${name}<|message|>{"a": "${name}"}<|end|>`;
  const calls = [..."fgh"].map(message).join("");
  const unknown = { kind: "content", text: '{"a": "h"}' } as const;
  const [first, second] = [..."fg"].map((name) =>
    ({ kind: "call", name, arguments: `{"a":"${name}"}` }) as const
  );
  assertEquals(read(new HarmonyReader(NAMES, 2), [calls]), [first!, second!, unknown]);
  assertEquals(read(new HarmonyReader(NAMES, 1), [calls]), [first!, unknown]);
});

Deno.test("readers: a mark inside the arguments does not end a call", () => {
  const call = '{"name": "f", "arguments": {"a": "x</tool_call>y"}}';
  const parts = read(newReader(false), [`a\n<tool_call>\n${call}\n</tool_call>\n`]);
  assertEquals(parts, [
    { kind: "content", text: "a" },
    { kind: "call", name: "f", arguments: '{"a":"x</tool_call>y"}' },
  ]);
});

Deno.test("readers: calls as functions and parameters, with values by their types", () => {
  const format = findCallFormat("tools <tool_call><function=a><parameter=b>")!;
  const tools = new Map<string, JsonObject>([["f", {
    properties: { text: { type: "string" }, n: { type: "integer" } },
  }]]);
  const call = (body: string) =>
    read(new CallReader(format, tools, Infinity, false), [
      ...`x\n<tool_call>\n${body}\n</tool_call>`,
    ]);
  const parameter = (key: string, value: string) => `<parameter=${key}>\n${value}\n</parameter>\n`;
  for (
    const [parameters, expected] of [
      ["", {}],
      [parameter("text", "12"), { text: "12" }],
      [parameter("text", "a\n\nb <c>") + parameter("n", "12"), { text: "a\n\nb <c>", n: 12 }],
      [parameter("other", '["a"]') + parameter("n", "twelve"), { other: ["a"], n: "twelve" }],
    ] as const
  ) {
    assertEquals(call(`<function=f>\n${parameters}</function>`), [
      { kind: "content", text: "x" },
      { kind: "call", name: "f", arguments: JSON.stringify(expected) },
    ]);
  }
  tools.set("bare", {});
  assertEquals(call(`<function=bare>\n${parameter("n", "12")}</function>`)[1], {
    kind: "call",
    name: "bare",
    arguments: '{"n":12}',
  });
  for (const body of ["<function=g>\n</function>", "<function=f>\nx</function>", '{"name": "f"}']) {
    const content = `x\n<tool_call>\n${body}\n</tool_call>`;
    assertEquals(call(body).map((part) => part.kind === "content" && part.text).join(""), content);
  }
});

Deno.test("tools: parameters that cannot be enforced are replaced, unless the tool is strict", async () => {
  const tool = (name: string, parameters: JsonObject, isStrict = false) => ({
    name,
    parameters,
    isStrict,
  });
  const enforceable = new EnforceableTools();
  const good = tool("f", { type: "object", properties: { a: { type: "integer" } } }, true);
  const bad = tool("g", { not: {} });
  const any = { ...bad, parameters: { type: "object" } };
  assertEquals(await enforceable.of(HERMES, [good]), [good]);
  const both = await enforceable.of(HERMES, [good, bad]);
  assertEquals(both, [good, any]);
  assert(both === await enforceable.of(HERMES, [good, { ...bad }]), "it is known");
  assert(both !== await enforceable.of(MISTRAL, [good, bad]), "each format has its schema");
  assertEquals(await enforceable.of(HERMES, [bad, good]), [any, good]);
  await assertRejects(
    () => enforceable.of(HERMES, [good, { ...bad, isStrict: true }]),
    RequestError,
    "the strict tool g cannot be enforced",
  );
  // The last 32 sets are known.
  for (let i = 0; i < 31; i++) await enforceable.of(HERMES, [tool(`n${i}`, {})]);
  assertEquals(both === await enforceable.of(HERMES, [good, bad]), false);
  const latest = await enforceable.of(HERMES, [good, bad]);
  for (let i = 0; i < 20; i++) await enforceable.of(HERMES, [tool(`m${i}`, {})]);
  assert(latest === await enforceable.of(HERMES, [good, bad]));
});

Deno.test("Ollama: calls are whole, times are in nanoseconds, and a stream has each part once", () => {
  const text = 'a<tool_call>{"name": "f", "arguments": {"x": 1}}</tool_call>' +
    '<tool_call>{"name": "g", "arguments": {"x" 1}}</tool_call>' +
    '<tool_call>{"name": "g", "arguments": {}}</tool_call>';
  const end = {
    finishReason: "constraint_complete",
    promptTokens: 3,
    completionTokens: 4,
    timings: { prefillMs: 5, decodeMs: 7.5000006 },
  } as unknown as GenerationEnd;
  const calls = [["f", { x: 1 }], ["g", {}]].map(([name, args]) => ({
    function: { name, arguments: args },
  }));
  for (const pieces of [[text], [...text]]) {
    const format = new OllamaFormat(
      { name: "m", loadMs: 2 } as unknown as Service,
      newReader(false),
      ({ content, thinking, calls }) => ({ content, thinking, calls: [...calls] }),
    );
    assertEquals(format.messages(), [], "nothing is known at the beginning");
    const streamed = pieces.flatMap((piece, i) => {
      format.take(0, { text: piece, ...(i === pieces.length - 1 ? { end } : {}) } as Piece);
      return format.messages().map((message) => JSON.parse(message));
    });
    const [last] = format.closing().map((message) => JSON.parse(message));
    const whole = format.whole();
    // Arguments that are no JSON are content.
    assertEquals([whole["content"], whole["calls"]], ['a{"x"1}', calls]);
    assertEquals(streamed.map(({ content }) => content).join(""), 'a{"x"1}');
    assertEquals(streamed.flatMap((message) => message.calls), calls);
    assert(streamed.every(({ done, model }) => !done && model === "m"));
    assertEquals([last.content, last.calls], ["", []]);
    for (const one of [whole, last]) {
      const { created_at: _, total_duration: total, content: __, calls: ___, ...facts } = one;
      assertEquals(facts, {
        model: "m",
        thinking: "",
        done: true,
        done_reason: "stop",
        load_duration: 2e6,
        prompt_eval_count: 3,
        prompt_eval_duration: 5e6,
        eval_count: 4,
        eval_duration: 7_500_001,
      });
      assert(Number.isInteger(total));
    }
  }
});

Deno.test({
  name: "readers: templates of models on the hub determine their call formats",
  ignore: !sharedAvailable("chat-templates"),
  fn() {
    const marks = Array.from(Deno.readDirSync(sharedPath("chat-templates")))
      .filter(({ name }) => name.endsWith(".jinja"))
      .map(({ name }) => {
        const template = Deno.readTextFileSync(sharedPath("chat-templates", name));
        return [name.split("-")[1], findCallFormat(template)?.open] as const;
      });
    assertEquals(Object.fromEntries(marks.toSorted()), {
      ai: undefined,
      gemma: undefined,
      "Qwen2.5": "<tool_call>",
      Qwen3: "<tool_call>",
      // This template has its own variables for tools.
      SmolLM3: undefined,
      llama: "<|python_tag|>",
      Phi: undefined,
      Mistral: "[TOOL_CALLS]",
    });
  },
});
