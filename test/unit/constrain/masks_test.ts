import { assert, assertEquals, assertStringIncludes, assertThrows } from "@std/assert";
import { Constraints } from "../../../src/constrain/constraints.ts";
import { tokenBytes } from "../../../src/constrain/masks/vocabulary.ts";
import type { ConstraintSpec } from "../../../src/constrain/spec.ts";
import type { Constraint } from "../../../src/engine/request/constraint.ts";
import { ForgeError } from "../../../src/errors.ts";
import { JSON_SCHEMAS } from "../../support/json_schemas.ts";
import { Random } from "../../support/random.ts";
import {
  acceptsText,
  allowedIn,
  byteTokenizer,
  END_TOKEN,
  spec,
  VOCAB_SIZE,
  withConstraints,
} from "./support.ts";

/** A position where a mask may be wrong because of a cached result of another place. */
const COUNTED: readonly ConstraintSpec[] = [
  spec.regex("[a-z]{2,30}x?"),
  spec.regex("(?:é|日本|ab){3,40}"),
  spec.schema({ type: "string", minLength: 3, maxLength: 40 }),
  spec.schema({ type: "array", items: { type: "string", maxLength: 12 }, maxItems: 5 }),
  spec.schema({ type: "string", pattern: "^(?:ab|日)*$", maxLength: 30 }),
  spec.grammar(`root ::= ("\\"" text "\\"" | [0-9]{1,20}) ("," root)?\ntext ::= [^"]{0,25}`),
];

/** Returns the tokens that a state accepts, tried one by one. */
function accepted(constraint: Constraint, path: readonly number[]): number[] {
  return Array.from({ length: VOCAB_SIZE }, (_, id) => id).filter((id) => {
    const state = constraint.start();
    for (const token of path) state.accept(token);
    try {
      state.accept(id);
      return true;
    } catch (error) {
      assert(error instanceof ForgeError);
      return false;
    } finally {
      state.dispose();
    }
  });
}

Deno.test("masks: allowed tokens are the accepted tokens", async () => {
  const random = new Random("masks");
  const specs = [...COUNTED, ...Object.values(JSON_SCHEMAS).map((schema) => spec.schema(schema))];
  const mask = new Uint32Array(Math.ceil(VOCAB_SIZE / 32));
  await withConstraints(async (constraints) => {
    for (const source of specs) {
      const constraint = await constraints.compile(source, false);
      const state = constraint.start();
      const path: number[] = [];
      for (let i = 0; i < 30 && !state.isTerminated; i++) {
        state.fillMask(mask);
        const allowed = allowedIn(mask).filter((id) => id !== END_TOKEN);
        if (i % 3 === 0) {
          assertEquals(allowed, accepted(constraint, path), `${JSON.stringify(source)} ${path}`);
        }
        // Longer tokens are rarer and cross more places.
        const long = allowed.filter((id) => id >= 256);
        const choices = long.length > 0 && random.chance(0.4) ? long : allowed;
        const token = random.pick(choices);
        state.accept(token);
        path.push(token);
      }
      state.dispose();
    }
  });
});

Deno.test("masks: the bytes of long tokens stand one after another", () => {
  const tokens = [0, 3, 90, 1, 200].map((length, id) => new Uint8Array(length).fill(id));
  const { bytes, starts } = tokenBytes(tokens.length, (id) => tokens[id]!);
  assertEquals([...starts], [0, 0, 3, 93, 94, 294]);
  assertEquals([...bytes], tokens.flatMap((token) => [...token]));
});

Deno.test("masks: the last tokens of a vocabulary of any size are allowed", async () => {
  for (const size of [1, 31, 32, 33, 63, 64, 65, 100, 259]) {
    const tokenizer = {
      ...byteTokenizer,
      vocabSize: size,
      eosIds: [],
      tokenBytes: () => new TextEncoder().encode("a"),
      isSpecial: () => false,
    };
    const constraints = new Constraints(tokenizer, size, []);
    const mask = new Uint32Array(Math.ceil(size / 32));
    // As many tokens as there are, and a place where a few of them can follow.
    for (const pattern of ["a*", "a{1,3}"]) {
      const state = (await constraints.compile(spec.regex(pattern), false)).start();
      state.fillMask(mask);
      const everyToken = Array.from({ length: size }, (_, id) => id);
      assertEquals(allowedIn(mask), everyToken, `${size} tokens, ${pattern}`);
      state.dispose();
    }
    constraints.dispose();
  }
});

type Part = string | readonly ["ref", number];
type Rules = readonly (readonly (readonly Part[])[])[];

/**
 * Rules of alternatives of letters and references. The last rule has only letters, so texts end.
 */
function randomRules(random: Random): Rules {
  const count = random.int(2, 4);
  return Array.from(
    { length: count },
    (_, rule) =>
      Array.from(
        { length: random.int(1, 3) },
        () =>
          Array.from({ length: random.int(0, 3) }, (): Part => {
            const isLetter = rule === count - 1 || random.chance(0.5);
            return isLetter ? random.pick(["a", "b", "ab"]) : ["ref", random.int(0, count - 1)];
          }),
      ),
  );
}

/** Returns all texts of up to `most` letters of each rule, by iterating to a fixed point. */
function languages(rules: Rules, most: number): ReadonlySet<string>[] {
  const texts = rules.map(() => new Set<string>());
  for (let grows = true; grows;) {
    grows = false;
    rules.forEach((alternatives, rule) => {
      for (const parts of alternatives) {
        let found = [""];
        for (const part of parts) {
          const next = typeof part === "string" ? [part] : [...texts[part[1]]!];
          found = [...new Set(found.flatMap((text) => next.map((more) => text + more)))]
            .filter((text) => text.length <= most);
        }
        for (const text of found) {
          if (texts[rule]!.has(text)) continue;
          texts[rule]!.add(text);
          grows = true;
        }
      }
    });
  }
  return texts;
}

function writeRules(rules: Rules): string {
  return rules.map((alternatives, rule) => {
    const body = alternatives.map((parts) =>
      parts.length === 0
        ? '""'
        : parts.map((part) => typeof part === "string" ? `"${part}"` : ruleName(part[1])).join(" ")
    );
    return `${ruleName(rule)} ::= ${body.join(" | ")}`;
  }).join("\n");
}

const ruleName = (rule: number) => rule === 0 ? "root" : `r${rule}`;

Deno.test("masks: random grammars, also ambiguous ones, accept exactly their language", async () => {
  const random = new Random("languages");
  const most = 6;
  const texts = Array.from(
    { length: most + 1 },
    (_, length) =>
      Array.from(
        { length: 2 ** length },
        (_, bits) => Array.from({ length }, (_, i) => bits >> i & 1 ? "a" : "b").join(""),
      ),
  ).flat();
  let compared = 0;
  await withConstraints(async (constraints) => {
    for (let i = 0; i < 150; i++) {
      const rules = randomRules(random);
      const source = writeRules(rules);
      let constraint: Constraint;
      try {
        constraint = await constraints.compile(spec.grammar(source), false);
      } catch (error) {
        assert(error instanceof ForgeError);
        assert(/left-recursive|no text at all/.test(error.message), error.message);
        continue;
      }
      compared++;
      const [language] = languages(rules, most);
      for (const text of texts) {
        assertEquals(acceptsText(constraint, text), language!.has(text), `${source}: "${text}"`);
      }
    }
  });
  assert(compared > 50, `${compared} grammars were compared`);
});

Deno.test("masks: ambiguity takes no exponential work", async () => {
  await withConstraints(async (constraints) => {
    const constraint = await constraints.compile(
      spec.grammar('root ::= "a" root "b" | "a" root "c" | "a" s "b" | ""\ns ::= "a" s "c" | root'),
      false,
    );
    const text = `${"a".repeat(300)}${"cb".repeat(150)}`;
    assert(acceptsText(constraint, text));
    assert(!acceptsText(constraint, `${text}b`));
  });
});

Deno.test("masks: strings of thousands of characters are counted exactly", async () => {
  await withConstraints(async (constraints) => {
    const constraint = await constraints.compile(
      spec.schema({ type: "string", minLength: 900, maxLength: 4096, pattern: "^[a-z ]*$" }),
      false,
    );
    for (
      const [length, isValid] of [[899, false], [900, true], [4096, true], [4097, false]] as const
    ) {
      assertEquals(acceptsText(constraint, `"${"x".repeat(length)}"`), isValid, `${length}`);
    }
    const many = await constraints.compile(
      spec.schema({ type: "array", maxItems: 100, items: { type: "string", maxLength: 1000 } }),
      false,
    );
    const list = (count: number) => JSON.stringify(Array.from({ length: count }, () => "a"));
    assert(acceptsText(many, list(100)) && !acceptsText(many, list(101)));
  });
});

Deno.test("masks: a pattern that takes too long to compile is rejected", async () => {
  await withConstraints(async (constraints) => {
    const patterns = Array.from({ length: 60 }, (_, i) => `(?:a|b)*a(?:a|b){${11 + i % 2}}c{${i}}`);
    const properties = Object.fromEntries(
      patterns.map((pattern, i) => [`p${i}`, { type: "string", pattern }]),
    );
    let message = "nothing was refused";
    await constraints.compile(spec.schema({ properties }), false).catch((error) => {
      message = error.message;
    });
    assertStringIncludes(message, "take too long to compile");
  });
});

Deno.test("masks: too many alternatives to walk in time are rejected", async () => {
  // Every alternative allows nearly all tokens, and each in a different way.
  const letters = Array.from(
    { length: 4000 },
    (_, i) => `"x" [^${String.fromCodePoint(0x4e00 + i)}]* r${i % 2}`,
  );
  const source = `root ::= ${letters.join(" | ")}\nr0 ::= "a"\nr1 ::= "b"`;
  const tokens = Array.from({ length: 20_000 }, (_, i) => new TextEncoder().encode(`token${i}`));
  await assertTooMany(source, [new TextEncoder().encode("x"), ...tokens]);
});

Deno.test("masks: too many optional rules to read in time are rejected", async () => {
  const names = Array.from({ length: 800 }, (_, i) => `r${i}`);
  const source = [`root ::= ${names.join(" ")}`, ...names.map((name) => `${name} ::= "x"?`)];
  const tokens = [1, 2].map((length) => new TextEncoder().encode("x".repeat(length)));
  await assertTooMany(source.join("\n"), tokens);
});

/** Asserts that the mask after token 0 takes too long. */
async function assertTooMany(source: string, tokens: readonly Uint8Array[]): Promise<void> {
  const constraints = new Constraints(
    {
      ...byteTokenizer,
      vocabSize: tokens.length,
      tokenBytes: (id) => tokens[id]!,
      isSpecial: () => false,
    },
    tokens.length,
    [],
  );
  const state = (await constraints.compile(spec.grammar(source), false)).start();
  state.accept(0);
  const mask = new Uint32Array(Math.ceil(tokens.length / 32));
  const error = assertThrows(() => state.fillMask(mask), ForgeError);
  assertStringIncludes(error.message, "too many continuations");
  constraints.dispose();
}

Deno.test("masks: compiling several constraints yields between them", async () => {
  await withConstraints(async (constraints) => {
    let turns = 0;
    const timer = setInterval(() => turns++, 0);
    const schemas = Array.from(
      { length: 20 },
      (_, i) => spec.schema({ type: "string", maxLength: 100 + i }),
    );
    await Promise.all(schemas.map((schema) => constraints.compile(schema, false)));
    clearInterval(timer);
    assert(turns > 0, "the event loop had no turn");
  });
});
