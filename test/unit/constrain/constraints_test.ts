import { assert, assertEquals, assertRejects, assertThrows } from "@std/assert";
import { Constraints } from "../../../src/constrain/constraints.ts";
import { constraintSpec } from "../../../src/constrain/spec.ts";
import type { ConstraintState } from "../../../src/engine/request/constraint.ts";
import { ForgeError } from "../../../src/errors.ts";
import {
  acceptsText,
  allowedIn,
  byteTokenizer,
  CONTROL_TOKEN,
  EMPTY_TOKEN,
  END_TOKEN,
  spec,
  VOCAB_SIZE,
  withConstraints,
} from "./support.ts";

const MASK_WORDS = Math.ceil(VOCAB_SIZE / 32);

function allowed(state: ConstraintState): number[] {
  const mask = new Uint32Array(MASK_WORDS);
  assert(state.fillMask(mask));
  return allowedIn(mask);
}

const bytes = (text: string) => [...new TextEncoder().encode(text)];

Deno.test("constraints: a mask allows exactly the tokens whose bytes can follow", async () => {
  await withConstraints(async (constraints) => {
    // The grammar allows every text, so every token with bytes can follow unless it breaks UTF-8.
    const constraint = await constraints.compile(spec.regex("[^]*"), false);
    const state = constraint.start();
    const valid = new TextDecoder("utf-8", { fatal: true });
    const expected = Array.from({ length: VOCAB_SIZE }, (_, id) => id).filter((id) => {
      if (id === END_TOKEN) return true;
      if (id >= byteTokenizer.vocabSize || id === CONTROL_TOKEN || id === EMPTY_TOKEN) return false;
      const token = byteTokenizer.tokenBytes(id);
      // A token can begin a text if some following bytes make it valid.
      return [[], [0x80], [0xa0], [0x80, 0x80], [0xa0, 0x80], [0x90, 0x80, 0x80], [
        0x80,
        0x80,
        0x80,
      ]]
        .some((tail) => {
          try {
            valid.decode(Uint8Array.from([...token, ...tail]));
            return true;
          } catch {
            return false;
          }
        });
    });
    assertEquals(allowed(state), expected);
    state.dispose();
  });
});

Deno.test("constraints: characters may be spread over tokens", async () => {
  await withConstraints(async (constraints) => {
    const constraint = await constraints.compile(spec.regex('日"é"'), false);
    const state = constraint.start();
    const [first] = bytes("日");
    assert(allowed(state).includes(first!));
    const beginning = 256 + 15, ending = 256 + 16; // E6 97, and A9 22
    state.accept(beginning);
    assertEquals(allowed(state), [0xa5]);
    state.accept(0xa5);
    state.accept(0x22);
    state.accept(0xc3);
    assertEquals(allowed(state), [0xa9, ending]);
    state.accept(ending);
    assert(state.isTerminated);
    assertEquals(allowed(state), [END_TOKEN]);
    state.dispose();
  });
});

Deno.test("constraints: bytes begin and continue characters as UTF-8 does", async () => {
  await withConstraints(async (constraints) => {
    const any = await constraints.compile(spec.regex("[^]"), false);
    const range = (first: number, last: number) =>
      Array.from({ length: last - first + 1 }, (_, i) => first + i);
    /** Returns the bytes that may follow others. */
    const after = (...taken: number[]) => {
      const state = any.start();
      for (const byte of taken) state.accept(byte);
      const found = allowed(state).filter((id) => id < 256);
      state.dispose();
      return found;
    };
    assertEquals(after(), [...range(0, 0x7f), ...range(0xc2, 0xf4)]);
    const seconds: [lead: number, first: number, last: number][] = [
      ...[[0xc2, 0x80, 0xbf], [0xdf, 0x80, 0xbf], [0xe0, 0xa0, 0xbf], [0xe1, 0x80, 0xbf]],
      ...[[0xed, 0x80, 0x9f], [0xef, 0x80, 0xbf], [0xf0, 0x90, 0xbf], [0xf4, 0x80, 0x8f]],
    ] as [number, number, number][];
    for (const [lead, first, last] of seconds) {
      assertEquals(after(lead), range(first, last), lead.toString(16));
      for (const second of lead < 0xe0 ? [] : [first, last]) {
        assertEquals(after(lead, second), range(0x80, 0xbf), lead.toString(16));
      }
    }
  });
});

Deno.test("constraints: end tokens are allowed where the text may end, and never accepted", async () => {
  await withConstraints(async (constraints) => {
    const state = (await constraints.compile(spec.regex("12?"), false)).start();
    assert(!allowed(state).includes(END_TOKEN));
    assertThrows(() => state.accept(END_TOKEN), ForgeError);
    state.accept("1".charCodeAt(0));
    assertEquals(allowed(state), ["2".charCodeAt(0), END_TOKEN]);
    assert(!state.isTerminated);
    assertThrows(() => state.accept(END_TOKEN), ForgeError);
    assertThrows(() => state.accept("1".charCodeAt(0)), ForgeError);
    assertThrows(() => state.accept(VOCAB_SIZE), ForgeError);
    state.accept("2".charCodeAt(0));
    assert(state.isTerminated);
    state.dispose();
    assertThrows(() => state.accept(0), ForgeError);
  });
});

Deno.test("constraints: states of one constraint, and forks, are independent", async () => {
  await withConstraints(async (constraints) => {
    const constraint = await constraints.compile(spec.regex("a(b|c)d"), false);
    const one = constraint.start(), two = constraint.start();
    one.accept(97);
    const fork = one.fork();
    one.accept(98);
    assertEquals(allowed(one), [100]);
    assertEquals(allowed(fork), [98, 99]);
    assertEquals(allowed(two), [97, 256 + 11]); // "a" and "ab"
    one.dispose();
    fork.accept(99);
    assertEquals(allowed(fork), [100]);
    fork.dispose();
    two.dispose();
    two.dispose();
  });
});

Deno.test("constraints: a leading space that decoding removes is not part of the text", async () => {
  await withConstraints(async (constraints) => {
    const plain = await constraints.compile(spec.regex("x+"), true);
    assert(acceptsText(plain, "xx") && acceptsText(plain, " xx") && !acceptsText(plain, "  xx"));
    // If the text itself begins with a space, one more space must come before it.
    for (
      const spaced of [
        spec.regex(" ?x"),
        spec.grammar('root ::= " x" | "x"'),
        spec.grammar('root ::= s "x"\ns ::= "" | " "'),
        spec.grammar('root ::= s s r\ns ::= ""\nr ::= "x" | y\ny ::= [ ] "x"'),
      ]
    ) {
      const constraint = await constraints.compile(spaced, true);
      const accepted = ["x", " x", "  x", "   x"].map((text) => acceptsText(constraint, text));
      assertEquals(accepted, [false, true, true, false], JSON.stringify(spaced));
    }
    const lettered = await constraints.compile(spec.grammar('root ::= a | "y"\na ::= "x"'), true);
    for (const [text, isValid] of [["x", true], [" y", true], ["  x", false]] as const) {
      assertEquals(acceptsText(lettered, text), isValid, text);
    }
  });
});

Deno.test("constraints: each is compiled once, and evicted ones again", async () => {
  await withConstraints(async (constraints) => {
    const first = await constraints.compile(spec.regex("first"), false);
    assert(first === await constraints.compile(spec.regex("first"), false));
    assert(first !== await constraints.compile(spec.regex("first"), true));
    const state = first.start();
    // The one in use is the latest, so 31 others fit next to it.
    const second = await constraints.compile(spec.regex("second"), false);
    assert(first === await constraints.compile(spec.regex("first"), false));
    for (let i = 0; i < 31; i++) await constraints.compile(spec.regex(`new ${i}`), false);
    assert(first === await constraints.compile(spec.regex("first"), false));
    assert(second !== await constraints.compile(spec.regex("second"), false));
    for (let i = 0; i < 100; i++) await constraints.compile(spec.regex(`other ${i}`), false);
    assertEquals(constraints.cost.compiled, 135);
    state.accept("f".charCodeAt(0));
    state.dispose();
    assert(acceptsText(first, "first"), "used after it was dropped");
    assert(first !== await constraints.compile(spec.regex("first"), false));
  });
});

Deno.test("constraints: the times of masks and compilations are sums over all of them", async () => {
  await withConstraints(async (constraints) => {
    const { cost } = constraints;
    const start = performance.now();
    for (let compiled = 1; compiled <= 50; compiled++) {
      const before = cost.compileMs;
      await constraints.compile(spec.regex(`[^]{${compiled}}`), false);
      assert(cost.compileMs >= before, `${cost.compileMs} ms after ${before} ms`);
    }
    const state = (await constraints.compile(spec.regex("[^]*"), false)).start();
    const mask = new Uint32Array(MASK_WORDS);
    for (let masks = 1; masks <= 500; masks++) {
      const before = cost.maskMs;
      state.fillMask(mask);
      assertEquals(cost.masks, masks);
      assert(cost.maskMs >= before, `${cost.maskMs} ms after ${before} ms`);
    }
    assert(cost.maskMs > 0);
    assert(cost.compileMs + cost.maskMs <= performance.now() - start);
    state.dispose();
  });
});

Deno.test("constraints: memory stays flat over 10,000 uses", async () => {
  await withConstraints(async (constraints) => {
    const mask = new Uint32Array(MASK_WORDS);
    const use = async (count: number) => {
      for (let i = 0; i < count; i++) {
        const constraint = await constraints.compile(
          spec.regex(`a{${i % 8}}b${i % 25 === 0 ? i : ""}`),
          false,
        );
        const state = constraint.start();
        state.fillMask(mask);
        state.fork().dispose();
        state.dispose();
      }
    };
    await use(2_000);
    const before = Deno.memoryUsage().rss;
    await use(8_000);
    const grown = Deno.memoryUsage().rss - before;
    assert(grown < 64 * 2 ** 20, `${grown} bytes more`);
  });
});

Deno.test("constraints: tokens beyond the model, and texts of end tokens, are not allowed", async () => {
  const smaller = new Constraints(byteTokenizer, 260, [END_TOKEN, 259]);
  const state = (await smaller.compile(spec.regex("[^]*"), false)).start();
  const mask = new Uint32Array(9);
  assert(state.fillMask(mask));
  const ids = allowedIn(mask);
  assertEquals(ids.filter((id) => id > 255), [256, 257, 258, 259]);
  state.dispose();
  smaller.dispose();

  const isWord = (id: number) => id === "a".charCodeAt(0);
  const plain = new Constraints({ ...byteTokenizer, isSpecial: () => false }, VOCAB_SIZE, [97]);
  const ended = (await plain.compile(spec.regex("a?b"), false)).start();
  assertEquals(allowed(ended).filter(isWord), []);
  assertThrows(() => ended.accept(97), ForgeError);
  ended.accept(98);
  assertEquals(allowed(ended), [97]);
  ended.dispose();
  plain.dispose();
});

Deno.test("constraints: a vocabulary that cannot spell the text is an error", async () => {
  const constraints = new Constraints({ ...byteTokenizer, vocabSize: 100 }, 100, []);
  const state = (await constraints.compile(spec.regex("az"), false)).start();
  state.accept(97);
  const error = assertThrows(() => state.fillMask(new Uint32Array(4)), ForgeError);
  assert(error.message.includes("no token that could come next"), error.message);
  state.dispose();
  // No other token is needed where the text may end.
  const ended = (await constraints.compile(spec.regex("az?"), false)).start();
  ended.accept(97);
  assert(ended.isTerminated);
  const mask = new Uint32Array(4).fill(1);
  assert(ended.fillMask(mask));
  assertEquals(allowedIn(mask), []);
  ended.dispose();
  constraints.dispose();
});

Deno.test("constraints: nothing is compiled or accepted after the end", async () => {
  const constraints = new Constraints(byteTokenizer, VOCAB_SIZE, [END_TOKEN]);
  const scoped = await constraints.compile(spec.regex("a"), false);
  const state = scoped.start();
  state.dispose();
  for (const use of [() => state.accept(97), () => state.isTerminated, () => state.fork()]) {
    assertEquals(assertThrows(use, ForgeError).code, "device");
  }
  constraints.dispose();
  const compile = () => constraints.compile(spec.regex("b"), false);
  assertEquals((await assertRejects(compile, ForgeError, "closed")).code, "device");
});

Deno.test("constraints: options exclude each other and are type-checked", () => {
  assertEquals(constraintSpec({}), undefined);
  assertEquals(constraintSpec({ jsonObject: false }), undefined);
  assertEquals(constraintSpec({ regex: "a" }), { kind: "regex", pattern: "a" });
  assertThrows(() => constraintSpec({ regex: "a", grammar: "b" }), ForgeError);
  assertThrows(() => constraintSpec({ jsonObject: true, jsonSchema: true }), ForgeError);
  assertThrows(() => constraintSpec(JSON.parse('{"regex":1}')), ForgeError);
  const invalid: [Record<string, unknown>, string][] = [
    [{ jsonObject: "yes" }, 'jsonObject is "yes"'],
    [{ grammar: 1 }, "grammar is 1"],
    [{ regex: ["a"] }, "regex is an array"],
    [{ jsonSchema: { const: 1n } }, "jsonSchema is not JSON: "],
    [{ jsonSchema: () => 1 }, "jsonSchema is a function"],
  ];
  for (const [options, message] of invalid) {
    assertEquals(assertThrows(() => constraintSpec(options), ForgeError, message).code, "usage");
  }
  const cyclic: Record<string, unknown> = {};
  cyclic["not"] = cyclic;
  assertThrows(() => constraintSpec({ jsonSchema: cyclic }), ForgeError);
});
