import { assert, assertEquals, assertRejects, assertStringIncludes } from "@std/assert";
import {
  type Expression,
  Grammar,
  isNullable,
  rulesWhere,
} from "../../../src/constrain/grammar/grammar.ts";
import { ForgeError } from "../../../src/errors.ts";
import { Random } from "../../support/random.ts";
import { acceptsText, randomText, spec, withConstraints } from "./support.ts";

const ARITHMETIC = `
# sums of products
root   ::= sum "="
sum    ::= product (("+" | "-") product)*
product ::= factor ( [*/] factor )*
factor ::= number | '(' sum ')' | "-" factor
number ::= [1-9] [0-9]{0,3} | "0"
`;

Deno.test("grammar: accepts the texts of its rules", async () => {
  const cases: [string, string[], string[]][] = [
    [ARITHMETIC, ["1=", "12*(3+4)/-5=", "((0))="], ["1", "01=", "1+=", "(1=", "12345=", "1 + 1="]],
    [`root ::= "a" root? "b"`, ["ab", "aabb", "aaabbb"], ["", "a", "aab", "abb", "abab"]],
    [`root ::= ("x" item){2,3}\nitem ::= [^a-z\\]] | "é" | .`, ["x1x2", "xéx日x]"], [
      "x1",
      "x1x2x3x4",
    ]],
    [`root ::= "a\\n\\x41\\u00e9\\U0001F642\\""`, ['a\nAé🙂"'], ["a"]],
    [`root ::= a.b-c_d\na.b-c_d ::= "" | "z"+ "!"`, ["", "z!", "zz!"], ["!", "z"]],
    [`root ::= [^a-c]{2,} "." [0-9]{1,}`, ["xy.1", "^^.1", "xyz!.22"], [
      "x.1",
      "ay.1",
      "xc.1",
      "xy.",
    ]],
    [`root ::= "a"{2} b{2}\nb ::= "b" | "c" b`, ["aabb", "aacbcb"], [
      "ab",
      "aab",
      "aaabb",
      "aabbb",
    ]],
    [`root ::= [a-] [-b] [\\x41-\\x43] (b{1,2})?\nb ::= "x"`, ["a-A", "--C", "abBxx"], [
      "bbA",
      "aaA",
    ]],
    [`root\t::=\r\n"a"#"c"\r\n\t| b.1 # end\nb.1 ::= '"' "\\'"`, ["a", `"'`], ["b", "c", '"']],
    [`root ::= "\\U0010FFFF" | "\\uE000" | "\\uD7FF"`, ["\u{10ffff}", "\ue000", "\ud7ff"], [""]],
    // More groups than may be nested in each other.
    [`root ::= ${'("a" | b) '.repeat(70)}\nb ::= "b"`, ["ab".repeat(35)], ["a".repeat(69)]],
    [`root ::= a ("" | b)\na ::= "x"\nb ::= "y"`, ["x", "xy"], ["y", "xx", "xyy"]],
    [`root ::= (w ",")* w\nw ::= "a" | "ab"`, ["a", "ab", "a,ab,a"], ["a,", ",a", "b"]],
  ];
  await withConstraints(async (constraints) => {
    for (const [source, good, bad] of cases) {
      const constraint = await constraints.compile(spec.grammar(source), false);
      for (const text of good) {
        assert(acceptsText(constraint, text), `${source}: ${text} is refused`);
      }
      for (const text of bad) {
        assert(!acceptsText(constraint, text), `${source}: ${text} is accepted`);
      }
    }
  });
});

Deno.test("grammar: random texts of nested rules are balanced", async () => {
  const random = new Random("grammar");
  await withConstraints(async (constraints) => {
    const constraint = await constraints.compile(
      spec.grammar(`root ::= "(" inner ")"\ninner ::= ("[" inner "]" | "(" inner ")" | "x"){0,3}`),
      false,
    );
    let ended = 0;
    for (let i = 0; i < 50; i++) {
      let text = randomText(constraint, random, 200);
      if (text === undefined) continue;
      ended++;
      for (let before = ""; before !== text;) {
        before = text;
        text = text.replaceAll(/\(x*\)|\[x*\]/g, "x").replaceAll(/x+/g, "x");
      }
      assert(text === "x", text);
    }
    assert(ended > 0);
  });
});

Deno.test("grammar: errors name the rule or the line", async () => {
  const refusals: [string, string][] = [
    [`rot ::= "a"`, "no rule root"],
    [`root ::= a\na ::= b`, `"b", used in line 2, is not defined`],
    [`root ::= "a"\n\nroot ::= "b"`, `line 3 of the grammar defines the rule "root" again`],
    [`root ::= root "a" | "b"`, `the rule "root" can begin with itself`],
    [`root ::= a\na ::= "x"? b "c"\nb ::= a | "y"`, "left-recursive"],
    [`root ::= (e | "a")*\ne ::= "b"?`, "left-recursive"],
    [`root ::= e e root | "a"\ne ::= "b"?`, `the rule "root" can begin with itself`],
    [`root ::= "a" b\nb ::= "c" | d\nd ::= b`, `the rule "b", "d" can begin with itself`],
    [`root ::= "a" root`, "no text at all"],
    [`root ::= "abc`, "line 1 of the grammar has a string without end"],
    [`root ::= "a"\n  | [a-z`, "line 2 of the grammar has a class without end"],
    [`root ::= ("a"`, `lacks a ")"`],
    [`root ::= "a" |`, "nothing where a part is expected"],
    [`root ::= [z-a]`, "counts down"],
    [`root ::= "a"{3,2}`, "counts down"],
    [`root ::= "a"{x}`, "valid is {n}"],
    [`root ::= "\\q"`, `the escape "\\\\q"`],
    [`root ::= "\\ud800"`, "not a character"],
    [`root ::= "\\udfff"`, "not a character"],
    [`root ::= "\\U00110000"`, "not a character"],
    [`root ::= "\\x4"`, "not a character"],
    [`root ::= "\\u00"`, "not a character"],
    [`root ::= "a\nb"`, "line 1 of the grammar has a string without end"],
    [`root ::= b{0,100000}\nb ::= "b"`, "a repeat count of the grammar is 100000; at most 20000"],
    [`${"a".repeat(1 << 20)} `, "the length of the grammar is 1048577; at most 1048576"],
    [`root = "a"`, `lacks "::="`],
    [`::= "a"`, "where a rule is expected"],
    [`root ::= ${"(".repeat(200)}`, "too large"],
    [`root ::= "a"{100000}`, "a repeat count of the grammar is 100000; at most 20000"],
    [`root ::= "a"{30000,}`, "a repeat count of the grammar is 30000; at most 20000"],
    [`root ::= ${`"a" root | `.repeat(33_333)}"b"`, "expressions is 102085; at most 100000"],
    ["", "no rule root"],
  ];
  await withConstraints(async (constraints) => {
    for (const [source, words] of refusals) {
      let message = "nothing was refused";
      await constraints.compile(spec.grammar(source), false).catch((error) => {
        assert(error instanceof ForgeError, String(error));
        message = error.message;
      });
      assertStringIncludes(message, words);
    }
  });
});

Deno.test("grammar: an error names the line of a rule that is used but not defined", async () => {
  const lines = Array.from({ length: 500 }, (_, i) => `r${i} ::= "x" (r${i + 1} | "y")`);
  await withConstraints(async (constraints) => {
    const source = `root ::= r0\n\n# a comment\n${lines.join("\n")}`;
    const error = await assertRejects(
      () => constraints.compile(spec.grammar(source), false),
      ForgeError,
    );
    assertStringIncludes(error.message, '"r500", used in line 503, is not defined');
  });
});

Deno.test("grammar: rulesWhere equals a plain fixed-point computation", () => {
  const random = new Random("grammar/rules where");
  const leaf = (expression: Expression) => expression.kind === "text" && expression.text === "";
  for (let round = 0; round < 300; round++) {
    const grammar = new Grammar();
    const nRules = random.int(1, 8);
    for (let rule = 0; rule < nRules; rule++) grammar.declare();
    const make = (depth: number): Expression => {
      const kind = random.int(0, depth === 0 ? 2 : 4);
      if (kind === 0) return { kind: "text", text: "" };
      if (kind === 1) return { kind: "text", text: "a" };
      if (kind === 2) return { kind: "rule", rule: random.int(0, nRules - 1) };
      const parts = Array.from({ length: random.int(0, 3) }, () => make(depth - 1));
      return kind === 3 ? { kind: "sequence", items: parts } : { kind: "choice", options: parts };
    };
    for (let rule = 0; rule < nRules; rule++) grammar.define(rule, make(3));
    const expected = new Set<number>();
    for (let before = -1; before < expected.size;) {
      before = expected.size;
      grammar.bodies.forEach((body, rule) => isNullable(body, expected) && expected.add(rule));
    }
    const sorted = (rules: ReadonlySet<number>) => [...rules].sort((a, b) => a - b);
    assertEquals(sorted(rulesWhere(grammar, leaf)), sorted(expected));
  }
});
