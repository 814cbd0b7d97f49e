/** Tests a batch on a terminal: its progress line and Ctrl-C. */
import { assert, assertEquals, assertMatch } from "@std/assert";
import { TempFolder } from "../support/temp_folder.ts";
import { writeEndlessLlama } from "../support/tiny_llama.ts";
import { denoArgs } from "./forge.ts";
import { hasTerminals, Terminal } from "./terminal.ts";

const LINES = 400;

/** Writes a model and a batch of long answers to a folder. */
function desk(): TempFolder {
  const folder = new TempFolder();
  writeEndlessLlama(folder.at("model"));
  const lines = Array.from({ length: LINES }, (_, id) => JSON.stringify({ id, prompt: "a" }));
  folder.write("in.jsonl", lines.join("\n"));
  return folder;
}

function batchArgs(folder: TempFolder, maxTokens: number): string[] {
  const args = ["--batch", folder.at("in.jsonl"), "-o", folder.at("out.jsonl"), "--parallel", "4"];
  // The reference is slow enough on any machine: the bar appears only after one second.
  return ["run", "-m", folder.at("model"), "--device", "reference"]
    .concat(args, "-n", `${maxTokens}`);
}

function ids(folder: TempFolder): number[] {
  const lines = Deno.readTextFileSync(folder.at("out.jsonl")).split("\n");
  assertEquals(lines.pop(), "", "the last line is not whole");
  return lines.map((line) => JSON.parse(line).id);
}

for (const columns of [100, 44]) {
  Deno.test({
    name: `batch: on a terminal of ${columns} columns one line shows the progress`,
    ignore: !await hasTerminals(),
    async fn() {
      using folder = desk();
      const terminal = Terminal.forge(batchArgs(folder, 60), { columns });
      assertEquals(await terminal.close(), 0);
      const frames = terminal.shown.split("\r\x1b[2K");
      // Dimmed, and broken between words.
      const last = frames.pop()!.split("\x1b[2m").join("").replace("\x1b[22m", "")
        .replace(/\r\n(?!$)/g, " ");
      assertMatch(
        last,
        /^400 requests answered, \d+ prompt tokens, \d+ tokens in .* per second\)\r\n$/,
      );
      assertEquals(frames.shift(), "");
      assert(frames.length > 1, terminal.shown);
      const bars = columns > 80 ? /^\[#*-*\] / : /^/;
      for (const frame of frames.slice(1)) {
        assert(frame.length < columns, frame);
        assertMatch(frame, bars);
        assertMatch(frame, /\d+ of 400 {2}\d+ tokens\/s, \d+:\d\d left$/);
      }
      assertEquals(new Set(ids(folder)).size, LINES);
    },
  });
}

Deno.test({
  name: "batch: answers on a terminal do not share a line with the progress",
  ignore: !await hasTerminals(),
  async fn() {
    using folder = desk();
    const full = batchArgs(folder, 60);
    const output = full.indexOf("-o");
    const terminal = Terminal.forge([
      ...full.slice(0, output),
      ...full.slice(output + 2),
      "--ordered",
    ]);
    assertEquals(await terminal.close(), 0);
    assert(terminal.shown.length > 0);
    const parts = terminal.shown.split("\r\x1b[2K");
    const lines = parts.filter((part) => part.startsWith("{")).join("").split("\r\n");
    assertEquals(lines.slice(0, LINES).map((line) => JSON.parse(line).id), [
      ...Array(LINES).keys(),
    ]);
  },
});

Deno.test({
  name: "batch: on a terminal, the lines of a pipe are not counted before they are answered",
  ignore: !await hasTerminals(),
  async fn() {
    using folder = desk();
    const pipe = folder.at("pipe");
    const args = ["run", "-m", folder.at("model"), "--batch", pipe, "-o", folder.at("out.jsonl")];
    const script = `mkfifo '${pipe}'; head -n 3 '${folder.at("in.jsonl")}' > '${pipe}' & exec "$@"`;
    const forge = [Deno.execPath(), ...denoArgs([...args, "-n", "2"])];
    const terminal = new Terminal(["sh", "-c", script, "sh", ...forge]);
    assertEquals(await terminal.close(), 0);
    assertMatch(terminal.shown, /3 requests answered, 6 prompt tokens, 6 tokens in /);
    assertEquals(ids(folder).sort(), [0, 1, 2]);
  },
});

Deno.test({
  name: "batch: Ctrl-C leaves whole lines, and --resume continues after them",
  ignore: !await hasTerminals(),
  async fn() {
    using folder = desk();
    // Long answers, so that the batch is far from its end after the first ones.
    const terminal = Terminal.forge(batchArgs(folder, 1000));
    await terminal.waitFor(/\b[1-9]\d* of 400/);
    await terminal.type("\x03");
    assertEquals(await terminal.close(), 130);
    const done = ids(folder);
    assert(done.length > 0 && done.length < LINES, `${done.length} lines`);
    const rest = Terminal.forge([...batchArgs(folder, 2), "--resume"]);
    assertEquals(await rest.close(), 0);
    assertMatch(rest.shown, new RegExp(`${done.length} done earlier`));
    const all = ids(folder);
    assertEquals([all.length, new Set(all).size], [LINES, LINES]);
    assertEquals(all.slice(0, done.length), done);
  },
});
