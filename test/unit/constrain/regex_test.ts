import { assert, assertEquals, assertStringIncludes, assertThrows } from "@std/assert";
import { accepts } from "../../../src/constrain/automata/automaton.ts";
import {
  type CharSet,
  charSet,
  complement,
  difference,
  intersection,
  MAX_CODE_POINT,
  pairs,
  union,
} from "../../../src/constrain/automata/char_set.ts";
import { parseRegex } from "../../../src/constrain/automata/regex.ts";
import { containing, matching } from "../../../src/constrain/automata/regex_automaton.ts";
import { ForgeError } from "../../../src/errors.ts";
import { Random } from "../../support/random.ts";
import { randomText, spec, withConstraints } from "./support.ts";

const PATTERNS = [
  "yes|no",
  "^(?:yes|no)$",
  "[a-c]+\\d{2,3}",
  "(?<year>\\d{4})-(?<month>\\d\\d)",
  "a??b*?c+?",
  ".{0,5}é\\u00e9\\u{1F642}\\x41\\n\\t\\cA\\0",
  "[^\\w\\s]{1,3}",
  "[\\]\\-\\\\^a]+",
  "\\p{Lu}\\p{Script=Greek}?\\P{L}",
  "(?:|a)(b|)",
  "^$",
  "(^a|^b)(c|d$)",
  "[\\ud83d\\ude42-\\u{1f64f}]",
  "(((a*)*)*b)*",
  "[0-9a-f]{8}(?:-[0-9a-f]{4}){3}",
  "\\/\\.\\*\\$",
  "[\\d\\D]",
  "[\\b]",
  "[a-]\\cz\\v\\f[^-a]",
  "(?:a|b)".repeat(70),
];

Deno.test("regex: random texts match in JavaScript, as a whole", async () => {
  const random = new Random("regex texts");
  await withConstraints(async (constraints) => {
    for (const pattern of PATTERNS) {
      const whole = new RegExp(`^(?:${pattern})$`, "u");
      const constraint = await constraints.compile(spec.regex(pattern), false);
      let ended = 0;
      for (let i = 0; i < 20; i++) {
        const text = randomText(constraint, random);
        if (text === undefined) continue;
        ended++;
        assert(whole.test(text), `${pattern} does not match ${JSON.stringify(text)}`);
      }
      assert(ended > 0, pattern);
    }
  });
});

Deno.test("regex: automata agree with JavaScript's engine on random patterns and texts", () => {
  const random = new Random("regex fuzz");
  const alphabet = ["a", "b", "c", "1", "é", "\n", " ", "-"];
  const text = () => Array.from({ length: random.int(0, 5) }, () => random.pick(alphabet)).join("");
  const pattern = (depth: number): string => {
    const kind = depth === 0 ? random.int(0, 4) : random.int(0, 9);
    if (kind < 2) return random.pick(["a", "b", "c", "1", "é", " ", "-"]);
    if (kind === 2) return random.pick([".", "\\d", "\\w", "\\s", "[ab]", "[^a]", "[a-c1]", "\\n"]);
    if (kind === 3) return random.pick(["^", "$", "", "(?:)"]);
    if (kind === 4) return "\\p{Ll}";
    if (kind < 7) return pattern(depth - 1) + pattern(depth - 1);
    if (kind === 7) return `(?:${pattern(depth - 1)}|${pattern(depth - 1)})`;
    return `(?:${pattern(depth - 1)})${random.pick(["*", "+", "?", "{2}", "{1,3}", "{0,}", "*?"])}`;
  };
  for (let i = 0; i < 400; i++) {
    const source = pattern(3);
    const regex = parseRegex(source, "the regex");
    const whole = matching(regex), part = containing(regex);
    const wholeRegExp = new RegExp(`^(?:${source})$`, "u"), partRegExp = new RegExp(source, "u");
    for (let j = 0; j < 20; j++) {
      const sample = text();
      // Repeated or adjacent edges match nothing here, and more in JavaScript.
      const strict = !/[\^$]/.test(source);
      for (
        const [mine, theirs] of [
          [accepts(whole, sample), wholeRegExp.test(sample)],
          [accepts(part, sample), partRegExp.test(sample)],
        ] as const
      ) {
        const label = `${JSON.stringify(source)} on ${JSON.stringify(sample)}`;
        if (strict) assertEquals(mine, theirs, label);
        else assert(!mine || theirs, label);
      }
    }
  }
});

Deno.test("regex: classes and escapes stand for the characters of JavaScript", () => {
  // All below U+3000, the surrogates' neighbours, emoji, and the last ones.
  const codes = [[0, 0x3000], [0xd700, 0xd800], [0xe000, 0xe100], [0x1d400, 0x1d500]]
    .concat([[0x1f000, 0x1f800], [0x20000, 0x20010], [0x10ff00, 0x110000]])
    .flatMap(([from, to]) => Array.from({ length: to! - from! }, (_, i) => from! + i));
  for (
    const source of [
      "[a-cb-d]",
      "[c-ea-b]",
      "[^a-cb-d\\0]",
      "[^]",
      ".",
      "\\S",
      "\\W",
      "\\D",
      "[a-]",
    ]
      .concat("[^-a]", "\\cA", "\\x41", "\\0", "[\\b\\v\\f]", "\\p{Lu}", "\\P{L}", "[^\\P{Lu}]")
      .concat(
        "\\p{Emoji}",
        "[\\ud83d\\ude42-\\u{1f64f}]",
        "\\ud83d\\udc00",
        "[\\ud7ff-\\udbff\\udfff]",
      )
  ) {
    const regex = parseRegex(source, "the regex"), expected = new RegExp(`^${source}$`, "u");
    assert(regex.kind === "set", source);
    const found = codes.filter((code) => intersection(regex.set, [code, code]).length > 0);
    assertEquals(found, codes.filter((code) => expected.test(String.fromCodePoint(code))), source);
  }
});

Deno.test("regex: sets of characters are sorted ranges that do not touch", () => {
  const random = new Random("character sets");
  const starts = [0, 0xd7f0, 0xdff0, MAX_CODE_POINT - 40];
  const codes = starts.flatMap((start) => Array.from({ length: 41 }, (_, i) => start + i))
    .filter((code) => code < 0xd800 || code >= 0xe000);
  const range = (): [number, number] => {
    const start = random.pick(starts), low = random.int(0, 40);
    return [start + low, start + random.int(low, 40)];
  };
  for (let round = 0; round < 300; round++) {
    const [one, other] = [0, 1].map(() => Array.from({ length: random.int(0, 5) }, range));
    const isIn = (ranges: readonly [number, number][] | undefined, code: number) =>
      ranges!.some(([low, high]) => low <= code && code <= high);
    const a = charSet(one!), b = charSet(other!);
    const sets: [CharSet, (code: number) => boolean][] = [
      [a, (code) => isIn(one, code)],
      [union(a, b), (code) => isIn(one, code) || isIn(other, code)],
      [intersection(a, b), (code) => isIn(one, code) && isIn(other, code)],
      [difference(a, b), (code) => isIn(one, code) && !isIn(other, code)],
      [complement(a), (code) => !isIn(one, code)],
    ];
    for (const [set, expected] of sets) {
      const ranges = pairs(set);
      assertEquals(codes.filter((code) => isIn(ranges, code)), codes.filter(expected));
      assert(ranges.every(([low, high], i) => low <= high && low > (ranges[i - 1]?.[1] ?? -2) + 1));
    }
  }
});

Deno.test("regex: constructs that cannot be enforced are rejected by name", () => {
  const refusals: [string, string][] = [
    ["a(?=b)", "a lookahead"],
    ["a(?!b)", "a lookahead"],
    ["(?<=a)b", "a lookbehind"],
    ["(?<!a)b", "a lookbehind"],
    ["(a)\\1", "a back-reference"],
    ["(?<n>a)\\k<n>", "a back-reference"],
    ["\\bword", "a word boundary (\\b)"],
    ["a\\Bb", "a word boundary (\\B)"],
    ["(?i:a)", "flags inside a group"],
    ["\\ud800", "half a surrogate pair"],
    ["\\udc00", "half a surrogate pair"],
    ["\\ud83d\\u0041", "half a surrogate pair"],
    ["\\ud83d\\x41", "half a surrogate pair"],
    ["\\ud83d\\u{dc00}", "half a surrogate pair"],
    ["\\ud83d\\ue000", "half a surrogate pair"],
    ["\\ud83dx", "half a surrogate pair"],
    ["\\u{d800}", "half a surrogate pair"],
    ["(", "Unterminated group"],
    ["a{2,1}", "numbers out of order"],
    ["[b-a]", "out of order"],
    ["\\y", "Invalid escape"],
    ["a++", "Nothing to repeat"],
    ["\\p{Nope}", "Invalid property name"],
  ];
  for (const [pattern, words] of refusals) {
    const error = assertThrows(() => parseRegex(pattern, "the regex"), ForgeError);
    assertStringIncludes(error.message, words);
  }
});

Deno.test("regex: a contradiction is an error", async () => {
  await withConstraints(async (constraints) => {
    for (const pattern of ["a$b", "a^b", "[]"]) {
      let message = "";
      await constraints.compile(spec.regex(pattern), false).catch((error) =>
        message = error.message
      );
      assertStringIncludes(message, "no text at all");
    }
  });
});
