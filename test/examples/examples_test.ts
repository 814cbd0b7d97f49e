/** The examples run as they are, with the permissions that forge asks for, and say what they should. */
import { assert, assertEquals, assertMatch } from "@std/assert";
import { join } from "@std/path";

const folder = import.meta.dirname ?? ".";

/** What each example prints. */
const EXAMPLES: Readonly<Record<string, RegExp>> = {
  "stream.ts": /^\S.{40,}\n\[stop\]\n$/s,
  "chat.ts": /^> Tell.*\n\[0 of \d+ .*\n> Who is .*\n\[[1-9]\d+ of \d+ prompt tokens reused\]\n$/s,
  "batch.ts": /^(?:(?:cow|dog|cat|duck|horse|sheep): \S.*\n){6}$/,
  "json_schema.ts": /^.{1,12} the (?:fox|bear|owl) is (?:[1-9]|1\d|20) years old\n$/,
  "completions.ts":
    /^(?:-\d+\.\d{3} {2}.*\n {2}began with ".*"; likeliest were ".*" and ".*"\n){3}$/,
  "embed.ts": /^0\.\d{3} {2}The dog ran to the park.*\n(?:-?0\.\d{3} {2}\S.*\n){2}$/,
  "cancel.ts": /^.{40,}\n\[cancelled\]\n$/s,
  "serve.ts": /^\S.{20,}\n\[(?:length|stop) after \d+ tokens\]\n$/s,
  "errors.ts":
    /^not_found: .*\nusage: .*\nunsupported: .*unevaluatedProperties.*\nbad_input: .*\n$/,
};

Deno.test("examples: each one is listed here and short", () => {
  const files = [...Deno.readDirSync(folder)].map(({ name }) => name);
  const examples = files.filter((name) => name !== "examples_test.ts").sort();
  assertEquals(examples, Object.keys(EXAMPLES).sort());
  for (const name of examples) {
    const lines = Deno.readTextFileSync(join(folder, name)).trimEnd().split("\n").length;
    assert(lines <= 30, `${name} has ${lines} lines`);
  }
});

for (const [name, expected] of Object.entries(EXAMPLES)) {
  Deno.test(`examples: ${name}`, async () => {
    const { code, stdout, stderr } = await new Deno.Command(Deno.execPath(), {
      args: ["run", "--quiet", "--no-prompt", "-P=forge", join(folder, name)],
      cwd: join(folder, "..", ".."),
      env: { NO_COLOR: "1" },
      stdin: "null",
    }).output();
    const decoder = new TextDecoder();
    assertEquals([code, decoder.decode(stderr)], [0, ""]);
    assertMatch(decoder.decode(stdout), expected);
  });
}
