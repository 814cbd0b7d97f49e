import { assert, assertEquals, assertThrows } from "@std/assert";
import { ForgeError } from "../../../src/errors.ts";
import { PATTERNS } from "../../../src/tokenizer/gguf/pre_tokenizers.ts";
import { translateRegex } from "../../../src/tokenizer/regex/translate.ts";

/** Returns the matches of a pattern in a text. */
function matches(pattern: string, text: string): string[] {
  return text.match(translateRegex(pattern, "test")) ?? [];
}

function refusal(pattern: string): string {
  const error = assertThrows(() => translateRegex(pattern, "x.json: here"), ForgeError);
  assertEquals(error.code, "unsupported");
  assert(error.message.startsWith("x.json: here: the regular expression "), error.message);
  return error.message;
}

Deno.test("classes are Unicode's, not JavaScript's", () => {
  assertEquals(matches("\\s", "a\u0085\u00a0\ufeff\u3000"), ["\u0085", "\u00a0", "\u3000"]);
  assertEquals(matches("\\S", "\u0085\ufeff"), ["\ufeff"]);
  assertEquals(matches("\\d+", "12٣x½"), ["12٣"]);
  assertEquals(matches("\\w+", "naïve_ß-हिन्दी"), ["naïve_ß", "हिन्दी"]);
  assertEquals(matches("\\W+", "a, b"), [", "]);
  assertEquals(matches("\\h+", "xyzBEEF09"), ["BEEF09"]);
  assertEquals(matches("\\H+", "xyzBEEFg"), ["xyz", "g"]);
  assertEquals(matches("\\D+", "a12b٣c"), ["a", "b", "c"]);
  assertEquals(matches("[\\D&&[^b]]+", "a1bc"), ["a", "c"]);
  assertEquals(matches("[\\b]", "a\b"), ["\b"]);
  assertEquals(matches("\\bis\\b", "is this is"), ["is", "is"]);
  assertEquals(matches("\\Bs", "s as"), ["s"]);
  assertEquals(matches("é\\b", "né é"), ["é", "é"]);
  assertEquals(matches(".", "\n\r"), ["\r"]);
});

Deno.test("words and punctuation are Oniguruma's, inside and outside of brackets", () => {
  assertEquals(matches("\\w+", "1000² a¼ x\u200dy"), ["1000²", "a¼", "x", "y"]);
  assertEquals(matches("[\\w]+", "1000² a¼"), ["1000", "a"]);
  assertEquals(matches("[[:word:]]+", "a²"), ["a"]);
  assertEquals(matches("\\p{word}+", "a²"), ["a²"]);
  assertEquals(matches("\\d+\\b", "1000² 1000m 1000"), ["1000"]);
  assertEquals(matches("[[:punct:]]", "a,€¢+b"), [",", "€", "¢", "+"]);
  assertEquals(matches("\\p{Punct}", "a,€¢+b"), [","]);
  assertEquals(matches("[[:graph:]]+", "a\u0001b c"), ["a", "b", "c"]);
  assertEquals(matches("[[:print:]]+", "a\u0001b c"), ["a", "b c"]);
});

Deno.test("brackets have the characters of POSIX, and those of Unicode", () => {
  const all = "aF8_ \t\u0001é²\u2028\u{e0080}ǅⅧ\u0301";
  const classes: Record<string, string> = {
    alpha: "aFéǅⅧ",
    alnum: "aF8éǅⅧ",
    blank: " \t",
    cntrl: "\t\u0001",
    digit: "8",
    graph: "aF8_é²ǅⅧ\u0301",
    lower: "aé",
    print: "aF8_ é²ǅⅧ\u0301",
    space: " \t\u2028",
    upper: "FⅧ",
    word: "aF8_éǅⅧ\u0301",
    xdigit: "aF8",
    ascii: "aF8_ \t\u0001",
    any: all,
  };
  for (const [name, expected] of Object.entries(classes)) {
    assertEquals(matches(`[[:${name}:]]`, all).join(""), expected, name);
  }
  assertEquals(matches("\\h+", "gaFAf09:"), ["aFAf09"]);
});

Deno.test("properties and scripts are found in any spelling", () => {
  assertEquals(matches("\\p{Lu}|\\p{lu}", "aB"), ["B"]);
  assertEquals(matches("\\p{Han}+", "a漢字b"), ["漢字"]);
  assertEquals(matches("\\p{Letter}\\p{Uppercase Letter}", "aBc"), ["aB"]);
  assertEquals(matches("\\p{uppercase-letter}", "aBc"), ["B"]);
  assertEquals(matches("\\p{^L}+", "a12b"), ["12"]);
  assertEquals(matches("\\P{L}+", "a12b"), ["12"]);
  assertEquals(matches("\\pL+", "ab1"), ["ab"]);
  assertEquals(matches("\\p{alpha}", "1a"), ["a"]);
  for (const name of ["Klingon", "Script=Han", "gc=L", "", " "]) {
    assert(refusal(`\\p{${name}}`).includes(`{${name}}" is not known`));
  }
  assert(refusal("\\p{L").includes("end of pattern"));
});

Deno.test("sets can be nested, intersected, named and negated", () => {
  assertEquals(matches("[a-c[x-z]]+", "abmxyz"), ["ab", "xyz"]);
  assertEquals(matches("[^a-c[x-z]]+", "abmnxyz"), ["mn"]);
  assertEquals(matches("[\\p{L}&&[^\\p{Han}]]+", "ab漢cd"), ["ab", "cd"]);
  assertEquals(matches("[a-z&&[^aeiou]&&[^x]]+", "abcxd"), ["bc", "d"]);
  assertEquals(matches("[^\\p{L}&&[^\\p{Han}]]+", "ab漢1cd"), ["漢1"]);
  assertEquals(matches("[[:digit:]a-b]+", "1a2c"), ["1a2"]);
  assertEquals(matches("[[:^digit:]]+", "1a2"), ["a"]);
  assertEquals(matches("[[a-c&&[^b]]x]+", "axbc"), ["ax", "c"]);
  assertEquals(matches("[]a]+", "]a["), ["]a"]);
  assertEquals(matches("[a-]+", "-a+"), ["-a"]);
  assertEquals(matches("[\\^\\]\\\\]+", "^]\\a"), ["^]\\"]);
  assertEquals(matches(" ?[^(\\s|[.,!?…。，、।۔،])]+", "Hi, (you|me)"), ["Hi", "you", "me"]);
  assertEquals(matches("[\\x41\\u0042\\x{43}]+", "ABCD"), ["ABC"]);
  assertEquals(matches("[\\W_]+", "a_-b"), ["_-"]);
  assertEquals(matches("[😀-😃]", "😂"), ["😂"]);
});

Deno.test("an escape of a control character matches it alone, in a set and outside", () => {
  const all = Array.from({ length: 128 }, (_, code) => String.fromCharCode(code)).join("");
  const escapes = { t: 9, n: 10, v: 11, f: 12, r: 13, a: 7, e: 27, 0: 0 };
  for (const [letter, code] of Object.entries(escapes)) {
    const found = [String.fromCharCode(code)];
    assertEquals(matches(`\\${letter}`, all), found, letter);
    assertEquals(matches(`[\\${letter}]`, all), found, letter);
  }
});

Deno.test("flags apply to the end of their group", () => {
  assertEquals(matches("(?i:ab)c", "ABc ABC"), ["ABc"]);
  assertEquals(matches("(?i)ab|c", "AB C"), ["AB", "C"]);
  assertEquals(matches("x(?i)a|b", "xA B xb"), ["xA", "xb"]);
  assertEquals(matches("(?i:a(?-i:b))", "Ab AB"), ["Ab"]);
  assertEquals(matches("(?i:'s)", "'S'ſ"), ["'S", "'ſ"]);
  assert(refusal("(?x)a").includes("(?x"));
});

Deno.test("quantifiers have Oniguruma's meaning", () => {
  assertEquals(matches("a{2}", "aaaaa"), ["aa", "aa"]);
  assertEquals(matches("a{,2}b", "aaab"), ["aab"]);
  assertEquals(matches("a{x}", "a{x}"), ["a{x}"]);
  assertEquals(matches("a+?b??", "aab"), ["a", "a"]);
  // A possessive repeat does not backtrack.
  assertEquals(matches("a++a", "aaa"), []);
  assertEquals(matches("a?+a", "aa a"), ["aa"]);
  assertEquals(matches("(?:xa++)a", "xaaa"), []);
  assertEquals(matches("a++b++c", "aabbc"), ["aabbc"]);
  assertEquals(matches("a{1}b", "b ab"), ["ab"]);
  assertEquals(matches("a{2}+", "aaaaa"), ["aaaa"]);
  assertEquals(matches("a{1,3}*b", "b aaaab"), ["b", "aaaab"]);
  assertEquals(matches("(?>a|ab)c", "abc ac"), ["ac"]);
  // After braces a plus is one more quantifier.
  assertEquals(matches("\\d{1,3}+", "12345"), ["12345"]);
  assert(refusal("a{2}?").includes("{2}?"));
  assert(refusal("*a").includes("nothing before"));
  assert(refusal("a{3,2}").includes("counts down"));
  assert(refusal("a{100001}").includes('"{100001}" counts above 100000'));
  assert(refusal("a{1,100001}").includes("counts above 100000"));
  assertEquals(matches("a{0,100000}", "aa"), ["aa", ""]);
  for (const assertion of ["\\b", "^", "(?=a)", "(?<!a)"]) {
    assert(refusal(`${assertion}*`).includes("a quantifier after an assertion"));
  }
  assert(refusal("[[:nope:]]").includes("[:nope:]"));
  assert(refusal("[a-\\d]").includes("a range that ends in a class"));
  assert(refusal("[z-a]").includes("a range that counts down"));
  assert(refusal("\\x{110000}").includes("is not a character"));
  assert(refusal("\\p{12}").includes("12"));
});

Deno.test("anchors and lookarounds", () => {
  assertEquals(matches("^a", "a\na"), ["a", "a"]);
  assertEquals(matches("^a?", "a\n"), ["a"]);
  assertEquals(matches("\\s*$", "a  "), ["  ", ""]);
  assertEquals(matches("a$", "a\nba"), ["a", "a"]);
  assertEquals(matches("\\Aa|a\\z", "a\naa"), ["a", "a"]);
  assertEquals(matches("a\\Z", "ba\n"), ["a"]);
  assertEquals(matches("\\s+(?!\\S)", "a  b  "), [" ", "  "]);
  assertEquals(matches("(?<=a)b|(?<!a)c", "abcac"), ["b", "c"]);
  assertEquals(matches("\\s+$", "  a  "), ["  "]);
  assertEquals(matches("a(?#b)c", "ac"), ["ac"]);
  assertEquals(matches("(?<name>a)(?P<other>b)", "ab"), ["ab"]);
  assertEquals(matches("x(?:a|b)y", "xay xby xa by"), ["xay", "xby"]);
  assertEquals(matches("x(a|b|)y|z", "xay xby xy xz"), ["xay", "xby", "xy", "z"]);
});

Deno.test("constructs that JavaScript lacks are rejected by name", () => {
  assert(refusal("(a)\\1").includes("\\1"));
  assert(refusal("\\Kab").includes("\\K"));
  assert(refusal("(?<=a++)b").includes("lookbehind"));
  assert(refusal("(?<=(?=a)a++b)b").includes("lookbehind"));
  assert(refusal("(ab").includes(`"(" without ")"`));
  assert(refusal("ab)").includes(`unmatched ")"`));
  assert(refusal("[ab").includes("end of pattern"));
  assert(refusal("(".repeat(200) + ")".repeat(200)).includes("nested deeper"));
  assertEquals(matches("(".repeat(100) + "a" + ")".repeat(100), "a"), ["a"]);
  assert(refusal("(".repeat(101) + "a" + ")".repeat(101)).includes("nested deeper than 100"));
  // Groups and sets side by side are not nested.
  assertEquals(matches("(?:a)".repeat(300), "a".repeat(300)).length, 1);
  assertEquals(matches("[a[b]]".repeat(300), "ab".repeat(150)).length, 1);
  assertEquals(matches("a".repeat(20_000), "a".repeat(20_000)).length, 1);
  assertThrows(() => translateRegex("a".repeat(20_001), "x"), ForgeError, "20001 characters");
});

Deno.test("patterns that can take exponential time are rejected", () => {
  for (
    const pattern of [
      "(a+)+$",
      "(a*)*",
      "(a|a)*b",
      "(a|ab|b)*c",
      "(?:[a-c]|b)*d",
      "(?:[ab]|b)*d",
      "(?:[^a]|b)*d",
      "(?:[a-c&&[^a]]|b)*d",
      "(\\w+\\s?)*x",
      "(?:\\p{L}|[a-z])+1",
      "(?i:a|A)*b",
      "(a+){10}",
      "(?:a?){2}b",
      "(?:(?:a|b?)c?){2}",
      "(?:ab?b?)*c",
      "a{1,3}{2}",
      "a{1,3}+?",
      "a+?+",
      "(?:a+b?){1,2}",
      "(?:a(?=(b|ba?)*c))+",
      "(?:a?){30}a{30}",
      "(?:x*y?)*",
      "(?=(b|ba?)*c)a",
    ]
  ) {
    assert(refusal(pattern).includes("in more than one way"), pattern);
  }
  assert(refusal("a?".repeat(25) + "a{25}").includes("choices in a row"));
  assert(refusal("a?".repeat(13)).includes("it has 13 choices in a row; at most 12 are safe"));
  assert(refusal("(?:a?b?c?|d)" + "a?".repeat(9)).includes("13 choices"));
  assert(refusal("a*".repeat(13)).includes("13 choices"));
  assertEquals(matches("a?".repeat(12) + "b", "ab"), ["ab"]);
  // The choices within a repeat count as one; repeats with one count are no choice.
  assertEquals(matches("(?:ab?c?d?)*e".repeat(5), "aeabecede").length, 0);
  assertEquals(matches("(?:ab?c?d?)*e".repeat(5), "aeabeacdeee"), ["aeabeacdeee"]);
  assertEquals(matches("a{1}".repeat(13), "a".repeat(13)).length, 1);
});

Deno.test("repeats that can match in only one way are accepted", () => {
  assertEquals(matches("(?:a|b)+", "abcab"), ["ab", "ab"]);
  assertEquals(matches("(?:\\d{3})+", "12345678"), ["123456"]);
  assertEquals(matches("(?:\\p{L}\\p{M}*(?: \\p{L}\\p{M}*)*)+", "ab c1"), ["ab c"]);
  assertEquals(matches("(?:[a-c]+,)*d", "ab,c,d"), ["ab,c,d"]);
  assertEquals(matches("(?:a+b?)?c", "aabc c"), ["aabc", "c"]);
  assertEquals(matches("(?:(?:aa?)?b)+", "aabb aab"), ["aabb", "aab"]);
  assertEquals(matches("a{2,}|(?:bc){1,}", "a aaa bcbc"), ["aaa", "bcbc"]);
});

Deno.test("the pre-tokenizers of known models are accepted", () => {
  const others = [
    // cl100k, as newer and older versions of tiktoken write it
    "'(?i:[sdmt]|ll|ve|re)|[^\\r\\n\\p{L}\\p{N}]?+\\p{L}++|\\p{N}{1,3}+| ?[^\\s\\p{L}\\p{N}]++[\\r\\n]*+" +
    "|\\s++$|\\s*[\\r\\n]|\\s+(?!\\S)|\\s",
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*" +
    "|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
    "\\w+|[^\\w\\s]+",
    " ?[^(\\s|[.,!?…。，、।۔،])]+",
    "\\s?\\p{L}+",
    "[0-9][0-9][0-9]",
  ];
  for (const pattern of [...Object.values(PATTERNS).flat(), ...others]) {
    const regex = translateRegex(pattern, "test");
    regex.test("Hello  world's 1234\n"); // compiles
  }
});
