/** `--thinking`: on, off and a limit of tokens, and how a terminal shows thoughts. */
import { assert, assertEquals, assertStringIncludes } from "@std/assert";
import { load } from "../../src/mod.ts";
import { TempFolder } from "../support/temp_folder.ts";
import { writeScriptedLlama } from "../support/tiny_llama.ts";
import { forge } from "./forge.ts";
import { hasTerminals, Terminal } from "./terminal.ts";

const MARKS = ["<think>", "</think>"];
const SCRIPT = ["<think>", "a", "b", "c", "</think>", "ok"];
const TEMPLATE = "{{ messages[-1].content }}{{ '!' if enable_thinking is false }}{# </think> #}";

function thinker(folder: TempFolder, script: readonly string[] = SCRIPT, template = TEMPLATE) {
  writeScriptedLlama(folder.path, script, {
    chatTemplate: template,
    controls: MARKS,
    pieces: ["x", "!", ...MARKS.filter((mark) => !script.includes(mark))],
  });
}

async function run(folder: TempFolder, ...args: string[]) {
  const asked = ["run", "-m", folder.path, "-p", "x", "--temp", "0", "--json", ...args];
  const { code, stdout, stderr } = await forge(asked);
  assertEquals([code, stderr], [0, ""]);
  const { text, prompt_tokens, completion_tokens } = JSON.parse(stdout);
  return { text, prompt_tokens, completion_tokens };
}

Deno.test("--thinking N ends the thoughts after N tokens", async () => {
  using folder = new TempFolder();
  thinker(folder);
  const full = await run(folder);
  assertEquals(await run(folder, "--thinking", "3"), { ...full, text: "<think>abc</think>ok" });
  // The closing mark is appended; the script then goes on after it.
  assertEquals((await run(folder, "--thinking", "1")).text, "<think>a</think>ok");
  assertEquals((await run(folder, "--thinking", "100")).text, "<think>abc</think>ok");
  const speculated = await run(folder, "--thinking", "2", "--speculate", "4");
  assertEquals(speculated.text, "<think>ab</think>ok");
});

Deno.test("a limit of reasoning counts from the prompt where that ends inside, and spares others", async () => {
  using open = new TempFolder();
  thinker(open, SCRIPT.slice(1), "{{ messages[-1].content }}<think>{# </think> #}");
  assertEquals((await run(open, "--thinking", "2")).text, "ab</think>ok");
  using plain = new TempFolder();
  thinker(plain, ["one ", "two ", "three"]);
  assertEquals((await run(plain, "--thinking", "1")).text, "one two three");
});

Deno.test("--thinking on and off set the template's variable, or are refused", async () => {
  using folder = new TempFolder();
  thinker(folder);
  const on = await run(folder, "--thinking", "on");
  const off = await run(folder, "--thinking", "off");
  assertEquals(off.prompt_tokens - on.prompt_tokens, 1);
  const { code, stderr } = await forge(["run", "-p", "x", "--thinking", "on"]);
  assertEquals(code, 1);
  assertStringIncludes(stderr, "this model has no thoughts; valid is off");
});

Deno.test("the library ends reasoning by the ids of its marks", async () => {
  using folder = new TempFolder();
  thinker(folder);
  await using model = await load(folder.path);
  const [open, close] = MARKS.map((mark) => model.tokenizer.idOf(mark)!);
  const { text, tokenIds } = await model.complete("x", {
    temperature: 0,
    reasoningLimit: { most: 2, open, close: close! },
  });
  assertEquals(text, "abok");
  assertEquals(tokenIds.map((id) => model.tokenizer.tokenText(id)).slice(0, 5), [
    "<think>",
    "a",
    "b",
    "</think>",
    "ok",
  ]);
});

Deno.test({
  name: "a terminal shows thoughts dimmed, or by name without colours",
  ignore: !await hasTerminals(),
  async fn() {
    using folder = new TempFolder();
    thinker(folder);
    const args = ["run", "-m", folder.path, "-p", "x", "--temp", "0"];
    for (
      const [colours, expected] of [
        [true, "\x1b[2mabc\x1b[22m\r\n\r\nok"],
        [false, "Thoughts: abc\r\n\r\nAnswer: ok"],
      ] as const
    ) {
      const terminal = Terminal.forge(args, { colours });
      assertEquals(await terminal.close(), 0);
      // The shell's prompt begins on a new line.
      assertStringIncludes(terminal.shown, `${expected}\r\n`);
    }
  },
});

Deno.test("a pipe gets thoughts with their marks, whatever the kind of their tokens", async () => {
  using folder = new TempFolder();
  thinker(folder);
  const run = await forge(["run", "-m", folder.path, "-p", "x", "--temp", "0"]);
  assertEquals([run.code, run.stdout], [0, "<think>abc</think>ok"]);
  const chat = await forge(["chat", "-m", folder.path, "--temp", "0"], { stdin: "x\n" });
  assertEquals([chat.code, chat.stdout], [0, "<think>abc</think>ok\n"]);
  const line = { stdin: JSON.stringify({ prompt: "x" }) };
  const batch = await forge(["run", "-m", folder.path, "--batch", "-", "--temp", "0"], line);
  assertEquals(JSON.parse(batch.stdout).text, "<think>abc</think>ok");
});

Deno.test({
  name: "a terminal breaks answers between words and has colours, a pipe has neither",
  ignore: !await hasTerminals(),
  async fn() {
    const args = ["run", "-p", "Once upon a time", "-n", "60", "--seed", "1", "--verbose"];
    const piped = await forge(args);
    const terminal = Terminal.forge(args, { columns: 40, colours: false });
    assertEquals(await terminal.close(), 0);
    // The terminal shows stdout and stderr.
    const lines = terminal.shown.split("\r\n");
    assert(lines.every((line) => line.length <= 40), terminal.shown);
    const words = (text: string) => text.split(/\s+/).join(" ");
    assertStringIncludes(words(terminal.shown), words(piped.stdout));
    assert(!`${piped.stdout}${piped.stderr}${terminal.shown}`.includes("\x1b["));
    const coloured = Terminal.forge(args, { columns: 40, colours: true });
    assertEquals(await coloured.close(), 0);
    assertStringIncludes(coloured.shown, "\x1b[2mreused");
  },
});

Deno.test("--colour colours each token by its probability", async () => {
  const args = ["run", "-p", "Once upon a time", "-n", "12", "--seed", "1"];
  const plain = await forge(args);
  const { code, stdout } = await forge([...args, "--colour"], { env: { NO_COLOR: "" } });
  const pieces = stdout.split("\x1b");
  assertEquals([code, pieces.map((piece) => piece.replace(/^\[[\d;]*m/, "")).join("")], [
    0,
    plain.stdout,
  ]);
  assert(pieces.filter((piece) => /^\[38;5;\d+m./.test(piece)).length > 8, stdout);
  assertEquals(
    (await forge([...args, "--colour"], { env: { NO_COLOR: "1" } })).stdout,
    plain.stdout,
  );
  const { stderr } = await forge([...args, "--colour", "--json"]);
  assertStringIncludes(stderr, "--colour and --json exclude each other");
  for (const flag of ["--colour", "--profile", "--thinking=on"]) {
    const refused = await forge(["run", "--batch", "x.jsonl", flag]);
    assertEquals(refused.code, 2);
    assertStringIncludes(refused.stderr, `${flag.split("=")[0]} cannot be used with --batch`);
  }
});
