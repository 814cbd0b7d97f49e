import { assert, assertEquals, assertStringIncludes, assertThrows } from "@std/assert";
import { accepts } from "../../../src/constrain/automata/automaton.ts";
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
