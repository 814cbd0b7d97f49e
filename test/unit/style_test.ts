/**
 * Comments, pages and test names avoid the phrases that make sentences hard to read, and comments
 * and pages are wrapped at one width.
 */
import { assert, assertEquals } from "@std/assert";
import { join } from "@std/path";
import { filesBelow, ROOT } from "../support/checkout.ts";

/** Files and folders that are checked; generated results in `bench/results` are not. */
const CHECKED = [
  ...["build.ts", "main.ts", "ARCHITECTURE.md", "README.md", "STATUS.md"],
  ...["src", "ffi", "csrc", "kernels", "test", "bench", "models/demo"],
];

/** Comment markers by file extension; pages have no marker. */
const MARKERS: Readonly<Record<string, RegExp>> = {
  ts: /^\s*(?:\/\*\*?|\*(?!\/)|\/\/)|\s\/\/\s/,
  sh: /^\s*#/,
  py: /^\s*#/,
  md: /^/,
  ...Object.fromEntries(
    ["cpp", "h", "cu", "cuh", "metal", "mm"].map((name) => [name, /^\s*(?:\/\*|\*|\/\/)|\s\/\/\s/]),
  ),
};

/**
 * Comments that begin with a riddle: the first line of a comment, or the line after a bare opening.
 */
const RIDDLE =
  /(?:^|\n)(?!\s*(?:\/\/|\*))[^\n]*\n\s*(?:\/\*\*?\s+(?:\*\s+)?|\/\/\s+)(?:What|Whether|Who|Where|How) [a-z`][^\n]*/g;

/** Phrases with their replacements, and the uses that are right. */
const PHRASES = [
  {
    phrase: /\bthat there (?:is|are|was|were) (?:not|none|no)\b/i,
    right:
      /\b(?:assume|check|confirm|ensure|find|know|mean|report|say|said|see|show|tell)\w*\s+that there\b/i,
  },
  { phrase: /\banew\b/i, right: undefined },
  {
    phrase: /(?<![\w-])behind\b/i,
    right:
      /\b(?:fall|fell|leav|left|stay|idea|reason|proxy|firewall)\w*\b[^.]*\bbehind\b|\bbehind an? (?:reverse )?(?:proxy|firewall)\b/i,
  },
] as const;

interface Line {
  readonly place: string;
  readonly text: string;
}

/** Returns a file's text, of a page without its code blocks, whose lines stay as empty ones. */
function proseOf(path: string, text: string): string {
  if (!path.endsWith(".md")) return text;
  return text.replaceAll(/^```[^]*?^```/gm, (block) => block.replaceAll(/[^\n]/g, ""));
}

/** Returns the lines of comments, prose and test names of a file. */
function proseLines(path: string, text: string): Line[] {
  const marker = MARKERS[path.split(".").at(-1) ?? ""];
  if (marker === undefined) return [];
  return proseOf(path, text).split("\n").flatMap((line, i) => {
    const place = `${path}:${i + 1}`;
    const at = line.search(marker);
    if (at >= 0) return [{ place, text: line.slice(at).replaceAll(/`[^`]*`/g, "") }];
    const [, name] = /(?:Deno\.test\(|\bname: |\.step\()["'`](.*)["'`]/.exec(line) ?? [];
    return path.startsWith("test/") && name !== undefined ? [{ place, text: name }] : [];
  });
}

/** Comments and paragraphs, which are wrapped. Indented lists, tables and code are not. */
const WRAPPED = { code: /^\s*(?:\/\/+|\*|\/\*\*) \S/, md: /^(?!\s*(?:\||#|!\[|`[^`]*`\.?$))/ };
/** Columns of a line. */
const WIDTH = 100;

/** Returns the lines of prose, and of C++ all lines, that are wider than {@linkcode WIDTH}. */
function wideLines(path: string, text: string): string[] {
  if (!/\.(md|ts|cpp|h|cu|cuh|metal|mm)$/.test(path)) return [];
  const wrapped = path.endsWith(".md") ? WRAPPED.md : path.endsWith(".ts") ? WRAPPED.code : /^/;
  return proseOf(path, text).split("\n").flatMap((line, i) =>
    line.length > WIDTH && wrapped.test(line) && !line.includes("https://")
      ? [`${path}:${i + 1} is ${line.length} columns wide`]
      : []
  );
}

/** Returns the lines of a file that break a rule of style, as `path:line: text`. */
function faults(path: string, text: string): string[] {
  const phrases = proseLines(path, text).filter(({ text }) =>
    PHRASES.some(({ phrase, right }) => phrase.test(text) && right?.test(text) !== true)
  ).map(({ place, text }) => `${place}: ${text.trim()}`);
  const riddles = path.endsWith(".md") ? [] : Array.from(
    `\n\n${text}`.matchAll(RIDDLE),
    ([found]) => `${path}: ${found.trim().split("\n").at(-1)?.trim()}`,
  );
  return [...phrases, ...riddles, ...wideLines(path, text)];
}

/** All files with prose below a path. */
function filesOf(path: string): string[] {
  if (Deno.statSync(join(ROOT, path)).isFile) return [path];
  return Object.keys(MARKERS).flatMap((extension) => filesBelow(path, `.${extension}`));
}

Deno.test("style: riddles and phrases are found, right uses are not", () => {
  const bad = [
    ["a.ts", "/** Whether it is open. */\nlet a;"],
    ["a.ts", "let a;\n\n/**\n * How many rows there are.\n */\nlet b;"],
    ["a.cpp", "int a;\n// Where all is allowed there is nothing.\nint b;"],
    ["a.ts", "let a; /" + "/ made an" + "ew"],
    ["a.md", "For a type that there " + "is not.\n"],
    ["a.h", `// ${"wide ".repeat(20)}`],
    ["a.md", "wide ".repeat(21)],
    ["a.cuh", `int wide = ${"1 + ".repeat(25)}1;`],
    ["test/a_test.ts", 'Deno.test("tokens be' + 'hind the prompt", () => {});'],
  ] as const;
  for (const [path, text] of bad) assertEquals(faults(path, text).length, 1, text);
  const good = [
    ["a.ts", "/** Returns what is left. */\nlet a;\n// Rows of\n// What's left.\nlet b;"],
    ["a.ts", 'const behind = "behind";\nconst anew = /behind/;'],
    ["a.md", "A reader that falls be" + "hind; run it be" + "hind a proxy.\n```\nbehind\n```\n"],
  ] as const;
  for (const [path, text] of good) assertEquals(faults(path, text), [], text);
});

Deno.test("style: no file has riddles or avoided phrases", () => {
  const files = CHECKED.flatMap(filesOf)
    .filter((path) => !path.startsWith("bench/results/"));
  assert(files.length > 100);
  const found = files.flatMap((path) => faults(path, Deno.readTextFileSync(join(ROOT, path))));
  assertEquals(found, []);
});
