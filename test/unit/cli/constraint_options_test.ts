/** Constraints from flags: inline texts and files, and flags that exclude each other. */
import { assertEquals, assertRejects } from "@std/assert";
import { constraintOptions } from "../../../src/cli/options/constraint_options.ts";
import type { ConstraintFlags } from "../../../src/cli/options/flags.ts";
import { ForgeError } from "../../../src/errors.ts";
import { TempFolder } from "../../support/temp_folder.ts";

const NONE = {
  jsonSchema: undefined,
  jsonObject: false,
  regex: undefined,
  grammar: undefined,
};

const read = (flags: Partial<ConstraintFlags>) => constraintOptions({ ...NONE, ...flags });

Deno.test("constraint flags: schemas and grammars are texts or files", async () => {
  using folder = new TempFolder();
  const schema = folder.write("schema.json", { type: "integer" });
  const grammar = folder.write("grammar.ebnf", 'root ::= "a"\n');
  assertEquals(await read({}), NONE);
  assertEquals(await read({ jsonObject: true }), { ...NONE, jsonObject: true });
  assertEquals(await read({ regex: "" }), { ...NONE, regex: "" });
  for (
    const [text, value] of [
      [schema, { type: "integer" }],
      [' {"type": "null"} ', { type: "null" }],
      ["true", true],
      [" false ", false],
    ] as const
  ) assertEquals(await read({ jsonSchema: text }), { ...NONE, jsonSchema: value });
  for (const [text, value] of [[grammar, 'root ::= "a"\n'], ["root ::= [a]", "root ::= [a]"]]) {
    assertEquals(await read({ grammar: text }), { ...NONE, grammar: value });
  }
});

Deno.test("constraint flags: two of them and schemas that are none are rejected", async () => {
  using folder = new TempFolder();
  const [list, broken] = [folder.write("list.json", []), folder.write("broken.json", "{\n")];
  const flags = { jsonSchema: "{}", jsonObject: true, regex: "a", grammar: "root ::= [a]" };
  const names = ["--json-schema", "--json-object", "--regex", "--grammar"];
  const refused: [Partial<ConstraintFlags>, string][] = [
    [flags, `${names.join(" and ")} exclude each other; give only one`],
    [{ jsonSchema: list }, `"${list}" holds an array; a schema is an object, true or false`],
    [{ jsonSchema: broken }, `"${broken}" is not valid JSON`],
    [{ jsonSchema: "{" }, "--json-schema is not valid JSON"],
    ...Object.entries(flags).flatMap(([one, value], i) =>
      Object.entries(flags).slice(i + 1).map((
        [other, second],
        j,
      ): [Partial<ConstraintFlags>, string] => [
        { [one]: value, [other]: second },
        `${names[i]} and ${names[i + 1 + j]} exclude each other`,
      ])
    ),
  ];
  for (const [given, message] of refused) {
    const error = await assertRejects(() => read(given), ForgeError, message);
    assertEquals(error.code, "usage");
  }
  await assertRejects(() => read({ grammar: "no such file" }), ForgeError, "no such file");
});
