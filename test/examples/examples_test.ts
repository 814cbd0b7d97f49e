/**
 * Tests that the examples run unchanged with the documented permissions, and checks their output.
 */
import { assert, assertEquals, assertMatch } from "@std/assert";
import { join } from "@std/path";
import { TempFolder } from "../support/temp_folder.ts";

const folder = import.meta.dirname ?? ".";

/** Expected output of each example. */
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

Deno.test("examples: every file is listed here and is short", () => {
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

const ROOT = join(folder, "..", "..");
const README = Deno.readTextFileSync(join(ROOT, "src", "README.md"));

Deno.test("examples: the permissions of the README suffice", async () => {
  const flags = /^deno run (--.*) program\.ts$/m.exec(README)?.[1] ?? "";
  assertMatch(flags, /^--allow-read --allow-/);
  const { code, stderr } = await new Deno.Command(Deno.execPath(), {
    args: ["run", "--quiet", "--no-prompt", ...flags.split(" "), join(folder, "stream.ts")],
    env: { NO_COLOR: "1" },
    stdin: "null",
  }).output();
  assertEquals([code, new TextDecoder().decode(stderr)], [0, ""]);
});

Deno.test("examples: the README's programs type-check with default options", async () => {
  using project = new TempFolder();
  const link = JSON.parse(/```json\n(.*?)\n```/s.exec(README)?.[1] ?? "");
  project.write("deno.json", { ...link, links: [ROOT] });
  const programs = Array.from(README.matchAll(/```ts\n(.*?)```/gs), ([, code], i) => {
    project.write(`example_${i}.ts`, code);
    return `example_${i}.ts`;
  });
  assert(programs.length >= 2);
  const { code, stderr } = await new Deno.Command(Deno.execPath(), {
    args: ["check", "--quiet", ...programs],
    cwd: project.path,
    env: { NO_COLOR: "1" },
  }).output();
  assertEquals([code, new TextDecoder().decode(stderr)], [0, ""]);
});

Deno.test("examples: deno doc prints readable lines", async () => {
  const { code, stdout } = await new Deno.Command(Deno.execPath(), {
    args: ["doc", "src/mod.ts"],
    cwd: ROOT,
    env: { NO_COLOR: "1" },
    stderr: "null",
  }).output();
  assertEquals(code, 0);
  const lines = new TextDecoder().decode(stdout).split("\n");
  const [longest = ""] = lines.toSorted((a, b) => b.length - a.length);
  assert(longest.length < 600, `${longest.length}: ${longest.slice(0, 100)}`);
});
