import { assert, assertEquals, assertMatch, assertStringIncludes } from "@std/assert";
import { TempFolder } from "../support/temp_folder.ts";
import { forge } from "./forge.ts";

const PROMPT = ["run", "-p", "Once upon a time", "--seed", "5"];

Deno.test("run: the answer conforms to a schema, a regex, a grammar", async () => {
  using folder = new TempFolder();
  const schema = `${folder.path}/schema.json`, grammar = `${folder.path}/words.ebnf`;
  const object = { type: "object", properties: { age: { type: "integer" } }, required: ["age"] };
  Deno.writeTextFileSync(schema, JSON.stringify(object));
  Deno.writeTextFileSync(grammar, 'root ::= word (" " word){1,3} "!"\nword ::= [a-z]{1,6}\n');

  const fromFile = await forge([...PROMPT, "--json-schema", schema, "--verbose"]);
  assertEquals(Object.keys(JSON.parse(fromFile.stdout)), ["age"]);
  assertMatch(fromFile.stderr, /^constraint {2}compiled in [\d.]+ ms, \d+ masks? of [\d.]+ ms/m);
  assertMatch(fromFile.stderr, /^sampling .*json_schema → /m);

  const inline = await forge([...PROMPT, "--json-schema", JSON.stringify(object), "--json"]);
  const { text, finish_reason } = JSON.parse(inline.stdout);
  assertEquals([Object.keys(JSON.parse(text)), finish_reason], [["age"], "constraint_complete"]);

  const choice = await forge([...PROMPT, "--grammar", 'root ::= "yes" | "no"']);
  assertMatch(choice.stdout, /^(yes|no)$/);
  const words = await forge([...PROMPT, "--grammar", grammar]);
  assertMatch(words.stdout, /^[a-z]{1,6}(?: [a-z]{1,6}){1,3}!$/);
});

Deno.test("run: a constraint that cannot be enforced is rejected before any token", async () => {
  const cases: [args: string[], code: number, words: string][] = [
    [["--json-schema", '{"properties":{"a":{"not":{}}}}'], 1, '"not" at "#/properties/a"'],
    [["--json-schema", "{"], 2, "--json-schema is not valid JSON"],
    [["--json-schema", "no/such/file"], 1, "no such file"],
    [["--regex", "a(?=b)"], 1, "lookahead"],
    [["--regex", "("], 2, "Unterminated group"],
    [["--regex", "a", "--json-object"], 2, "exclude each other"],
  ];
  for (const [args, code, words] of cases) {
    const outcome = await forge([...PROMPT, ...args]);
    assertEquals([outcome.code, outcome.stdout], [code, ""], outcome.stderr);
    assertStringIncludes(outcome.stderr, words);
    assert(outcome.stderr.trimEnd().split("\n").length === 1, outcome.stderr);
  }
});
