/** Tests a chat through a pipe and on a terminal. */
import { assert, assertEquals, assertMatch, assertStringIncludes } from "@std/assert";
import { isFile } from "../../src/formats/file.ts";
import { TempFolder } from "../support/temp_folder.ts";
import { writeEndlessLlama, writeRandomLlama, writeScriptedLlama } from "../support/tiny_llama.ts";
import { until, within } from "../support/wait.ts";
import { forge, startForge } from "./forge.ts";
import { hasTerminals, Terminal } from "./terminal.ts";

const TEMPLATE = "{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}[assistant]";

/** Writes a model that answers every message with "one two". */
function scripted(): TempFolder {
  const folder = new TempFolder();
  writeScriptedLlama(folder.at("model"), ["one ", "two"], {
    chatTemplate: TEMPLATE,
    pieces: ["\n"],
  });
  return folder;
}

function chat(folder: TempFolder, lines: readonly string[], ...args: string[]) {
  const stdin = lines.map((line) => `${line}\n`).join("");
  return forge(["chat", "-m", folder.at("model"), "--temp", "0", ...args], { stdin });
}

Deno.test("chat: piped, stdout has the answers and nothing else", async () => {
  using folder = scripted();
  const file = folder.at("chat.json");
  const { code, stdout, stderr } = await chat(folder, [
    "first",
    "taken back",
    "/undo",
    "of two \\",
    "lines",
    "/system be brief",
    "//slash",
    "/retry",
    `/save ${file}`,
    "/reset",
    `/load ${file}`,
    "",
    "last",
    "/exit",
    "never",
  ]);
  assertEquals([code, stderr], [0, ""]);
  assertEquals(stdout, "one two\n".repeat(6));
  const saved = JSON.parse(Deno.readTextFileSync(file));
  assertEquals(saved.map(({ role, content }: Record<string, string>) => `${role}: ${content}`), [
    "system: be brief",
    "user: first",
    "assistant: one two",
    "user: of two \nlines",
    "assistant: one two",
    "user: /slash",
    "assistant: one two",
  ]);
});

Deno.test("chat: a turn computes only its new tokens", async () => {
  using folder = scripted();
  const { stderr } = await chat(folder, ["first", "second"], "--system", "x", "--verbose");
  const reused = [...stderr.matchAll(/reused +(\d+) of (\d+) prompt tokens/g)].map(([, a, b]) => [
    Number(a),
    Number(b),
  ]);
  // The tiny vocabulary has a token for each character, and one for each word of the script.
  const first = "[system]x[user]first[assistant]".length;
  const all = first + "one two[user]second[assistant]".length;
  assertEquals(reused.map(([, total]) => total), [first, all]);
  assertEquals(reused[0]![0], 0);
  assert(reused[1]![0]! >= first - 1, stderr);
});

Deno.test("chat: answers conform to constraints", async () => {
  using folder = scripted();
  const { code, stdout } = await chat(folder, ["a", "b"], "--regex", "[0-9]{4}");
  assertEquals(code, 0);
  assertMatch(stdout, /^\d{4}\n\d{4}\n$/);
});

Deno.test("chat: piped, a failure ends the chat with its reason", async () => {
  using folder = scripted();
  const failing: [string[], string][] = [
    [["/retri", "x"], "did you mean /retry"],
    [["/bye", "x"], "did you mean /exit"],
    [["/undo", "x"], "the conversation is empty"],
    [["/load", "x"], "/load FILE"],
    [["/load none.json", "x"], "no such file"],
    [["x".repeat(239), "x"], "the conversation has 256 tokens; the context holds 256; /drop"],
  ];
  for (const [lines, part] of failing) {
    const { code, stdout, stderr } = await chat(folder, lines);
    assert(code !== 0 && stdout === "", part);
    assertMatch(stderr, /^forge: error: [^\n]*\n$/);
    assertStringIncludes(stderr, part);
  }
  writeScriptedLlama(folder.at("model"), ["one"]);
  const { code, stderr } = await chat(folder, ["x"]);
  assertEquals(code, 1);
  assertStringIncludes(stderr, "no chat template");
});

Deno.test("chat: /drop frees context", async () => {
  using folder = scripted();
  const long = "x".repeat(70);
  const { code, stdout, stderr } = await chat(folder, [long, long, "/drop", long, "/drop", long]);
  assertEquals([code, stderr], [0, ""]);
  assertEquals(stdout, "one two\n".repeat(4));
});

Deno.test("chat: an answer without text is an answer", async () => {
  using folder = new TempFolder();
  writeScriptedLlama(folder.at("model"), [], { chatTemplate: TEMPLATE });
  const { code, stdout } = await chat(folder, ["first", `/save ${folder.at("chat.json")}`]);
  assertEquals([code, stdout], [0, "\n"]);
  assertEquals(JSON.parse(Deno.readTextFileSync(folder.at("chat.json"))), [
    { role: "user", content: "first" },
    { role: "assistant", content: "" },
  ]);
});

Deno.test("chat: /drop ends at a system message that takes more than half of the context", async () => {
  using folder = scripted();
  const system = ["--system", "s".repeat(180)];
  const { code, stdout, stderr } = await chat(folder, ["a", "/drop", "/drop", "b"], ...system);
  assertEquals([code, stdout, stderr], [0, "one two\n".repeat(2), ""]);
});

Deno.test("chat: each /retry adds 1 to a fixed seed", async () => {
  using folder = new TempFolder();
  writeRandomLlama(folder.at("model"), { chatTemplate: TEMPLATE });
  const answers = async (seed: number, ...lines: string[]) => {
    const args = ["chat", "-m", folder.at("model"), "-n", "8", "--temp", "5", "--seed", `${seed}`];
    const sampling = ["--regex", "[a-z]{8}", "--top-k", "0", "--top-p", "1", "--min-p", "0"];
    const stdin = lines.map((line) => `${line}\n`).join("");
    return (await forge([...args, ...sampling], { stdin })).stdout.trimEnd().split("\n");
  };
  const [first, second, third] = await answers(5, "a", "/retry", "/retry");
  assertEquals([first, second, third].map((answer) => answer?.length), [8, 8, 8]);
  assertEquals(await answers(6, "a"), [second]);
  assertEquals(await answers(7, "a"), [third]);
  assert(first !== second && second !== third);
});

Deno.test({
  name: "chat: a terminal breaks answers between words, and says when the context is full",
  ignore: !await hasTerminals(),
  async fn() {
    using folder = scripted();
    const start = (model: string, columns: number) => {
      const args = ["chat", "-m", folder.at(model), "--temp", "0", "-c", "200"];
      return Terminal.forge(args, { columns });
    };
    const narrow = start("model", 6);
    await narrow.waitFor("> ");
    await narrow.type("a\r");
    await narrow.waitFor("one\r\ntwo\r\n");
    await narrow.type("\x04");
    assertEquals(await narrow.close(), 0);
    writeEndlessLlama(folder.at("endless"), { chatTemplate: TEMPLATE });
    const full = start("endless", 200);
    await full.waitFor("> ");
    await full.type("a\r");
    await full.waitFor(
      "(the answer ended because the context of 200 tokens is full; /drop makes room)",
    );
    await full.type("\x04");
    assertEquals(await full.close(), 0);
  },
});

Deno.test({
  name: "chat: Ctrl-C ends a piped chat, with what is answered so far",
  ignore: Deno.build.os === "windows",
  async fn() {
    using folder = new TempFolder();
    writeEndlessLlama(folder.at("model"), { chatTemplate: TEMPLATE, contextLength: 4096 });
    const child = startForge(["chat", "-m", folder.at("model"), "--temp", "0"], {
      stdin: "piped",
      stdout: "piped",
      stderr: "piped",
    });
    const writer = child.stdin.getWriter();
    await writer.write(new TextEncoder().encode("talk\nnever asked\n"));
    const reader = child.stdout.getReader();
    await within(reader.read(), () => "answer");
    child.kill("SIGINT");
    while (!(await within(reader.read(), () => "end of the chat")).done);
    await writer.close().catch(() => {});
    const [{ code }, errors] = await Promise.all([
      child.status,
      new Response(child.stderr).text(),
    ]);
    assertEquals([code, errors], [130, ""]);
  },
});

Deno.test("chat: /help lists the commands within 100 columns", async () => {
  using folder = scripted();
  const { code, stdout, stderr } = await chat(folder, ["/help"]);
  assertEquals([code, stdout], [0, ""]);
  const lines = stderr.trimEnd().split("\n");
  assertMatch(stderr, /^ {2}\/help +show this help$/m);
  for (const line of lines) assert(/^ {2}(\/\w+ |\S)/.test(line) && line.length <= 100, line);
  assert(lines.some((line) => line.length > 90), "notes fill the lines");
});

/** Starts a chat in the browser, whose program is searched on the given path. */
function startInBrowser(path: string, ...args: string[]): Deno.ChildProcess {
  return startForge(["chat", "--web", "--temp", "0", ...args], {
    env: { NO_COLOR: "1", PATH: path },
    stdout: "piped",
    stderr: "piped",
  });
}

Deno.test({
  name: "chat: --web serves the page on a free port and opens it",
  ignore: Deno.build.os !== "linux",
  async fn() {
    using folder = scripted();
    const opened = folder.at("opened");
    folder.write(
      "bin/xdg-open",
      `#!/bin/sh\necho "$1" > '${opened}.part'\nmv '${opened}.part' '${opened}'\n`,
    );
    Deno.chmodSync(folder.at("bin", "xdg-open"), 0o755);
    const path = `${folder.at("bin")}:${Deno.env.get("PATH")}`;
    const child = startInBrowser(path, folder.at("model"));
    await until(() => isFile(opened));
    const url = Deno.readTextFileSync(opened).trim();
    const page = await fetch(url);
    assertStringIncludes(await page.text(), "<html");
    const body = JSON.stringify({ prompt: "x" });
    const answer = await fetch(`${url}/v1/completions`, { method: "POST", body });
    assertEquals((await answer.json()).choices[0].text, "one two");
    child.kill("SIGINT");
    const { code, stdout, stderr } = await child.output();
    assertEquals([code, stdout.length], [130, 0]);
    const shown = new TextDecoder().decode(stderr);
    assertMatch(shown, /^forge: listening on http:\/\/127\.0\.0\.1:\d+ \(\S+model, context /);
    assertStringIncludes(shown, url);
    assert(Number(new URL(url).port) > 1023, url);
  },
});

Deno.test({
  name: "chat: --web needs no program that opens the page",
  ignore: Deno.build.os === "windows",
  async fn() {
    using folder = scripted();
    for (const args of [["-m", folder.at("model")], []]) {
      const child = startInBrowser(folder.at("none"), ...args);
      const errors = child.stderr.pipeThrough(new TextDecoderStream()).getReader();
      const { value } = await within(errors.read(), () => "address");
      const model = args[1] ?? "demo";
      assertMatch(value ?? "", new RegExp(`listening on \\S+ \\(\\S*${model}, context `));
      child.kill("SIGTERM");
      await Promise.all([errors.cancel(), child.stdout.cancel()]);
      assertEquals((await child.status).code, 0);
    }
  },
});

Deno.test("chat: --web refuses what the page has its own fields for", async () => {
  for (const args of [["--system", "be brief"], ["--json-object"], ["--regex", "a+"]]) {
    const { code, stdout, stderr } = await forge(["chat", "--web", ...args]);
    assertEquals([code, stdout], [2, ""]);
    assertStringIncludes(stderr, `${args[0]} cannot be used with --web; set it under Options`);
  }
});

Deno.test({
  name: "chat: a terminal has prompts, history and pasting, and Ctrl-C stops only the answer",
  ignore: !await hasTerminals(),
  async fn() {
    using folder = scripted();
    const start = (model: string) =>
      Terminal.forge(["chat", "-m", folder.at(model), "--temp", "0"]);
    const terminal = start("model");
    await terminal.waitFor("> ");
    const [pasteMarksOn, pasteMarksOff] = ["\x1b[?2004h", "\x1b[?2004l"];
    assertStringIncludes(terminal.shown, pasteMarksOn);
    for (
      const keys of ["hello\r", "\x1b[A\r", "\x1b[200~many\rlines\x1b[201~\r", "go on \\\rhere\r"]
    ) {
      await terminal.type(keys);
      await terminal.waitFor("one two\r\n");
      await terminal.waitFor("> ");
    }
    await terminal.type(`/save ${folder.at("chat.json")}\r`);
    await terminal.waitFor("saved 8 messages");
    const saved = JSON.parse(Deno.readTextFileSync(folder.at("chat.json")));
    const questions = saved.filter(({ role }: { role: string }) => role === "user");
    assertEquals(questions.map(({ content }: { content: string }) => content), [
      "hello",
      "hello",
      "many\nlines",
      "go on \nhere",
    ]);
    await terminal.type("/drop\r");
    await terminal.waitFor("(removed 1 answer; 3 left)");
    await terminal.type("/nope\r");
    await terminal.waitFor("unknown command");
    // It also drops the lines of a message that goes on.
    await terminal.type("begun \\\r");
    await terminal.type("\x03");
    await terminal.type("half a line\x03");
    await terminal.waitFor("> ");
    await terminal.type("\x03");
    await terminal.waitFor("Ctrl-C again");
    // A line between them makes the next one the first again.
    await terminal.type("\r");
    await terminal.waitFor("> ");
    await terminal.type("\x03");
    await terminal.waitFor("Ctrl-C again");
    await terminal.type("\x03");
    assertEquals(await terminal.close(), 0);
    assertStringIncludes(terminal.shown, pasteMarksOff);

    writeEndlessLlama(folder.at("endless"), { chatTemplate: TEMPLATE });
    const endless = start("endless");
    await endless.waitFor("> ");
    await endless.type("talk\r");
    await endless.waitFor("talk\r\r\n");
    await endless.waitForMore(20);
    // Input typed during an answer appears after it.
    await endless.type("/undo\r\x03");
    await endless.waitFor(/> \S*\/undo\r\n/);
    await endless.waitFor("(removed the last answer; 0 answers left)");
    await endless.type("\x04");
    assertEquals(await endless.close(), 0);
  },
});

Deno.test({
  name: "chat: a terminal's history has each message once, and help fits its columns",
  ignore: !await hasTerminals(),
  async fn() {
    using folder = scripted();
    const args = ["chat", "-m", folder.at("model"), "--temp", "0"];
    const terminal = Terminal.forge(args, { columns: 60, colours: false });
    await terminal.waitFor("> ");
    // Before the oldest message, the line is empty.
    for (const keys of ["a\r", "b\r", "a\r", "\x1b[A\x1b[A\x1b[Ac\r"]) {
      await terminal.type(keys);
      await terminal.waitFor(/one two\r\n[^]*> /);
    }
    // Ctrl-C clears the whole line, wherever the cursor is; of an empty line it ends the chat.
    await terminal.type("line\x1b[D\x1b[D\x03");
    await terminal.waitFor("> \x1b[3G");
    await terminal.type("\x03");
    await terminal.waitFor(/Ctrl-C again[^]*> /);
    await terminal.type("begun \\\r");
    await terminal.waitFor("… ");
    await terminal.type("ended\r");
    await terminal.waitFor(/one two\r\n[^]*> /);
    for (const [argument, state] of [[" be brief", "set"], ["", "removed"]]) {
      await terminal.type(`/system${argument}\r`);
      await terminal.waitFor(new RegExp(`\\(the system message is ${state}\\)[^]*> `));
    }
    // A question that cannot be answered is not kept.
    await terminal.type(`${"x".repeat(300)}\r`);
    await terminal.waitFor(/the context holds 256; \/drop removes the[^]*> /);
    await terminal.type("/help\r");
    await terminal.waitFor(/ends the chat\.\r\n[^]*> /);
    const lines = terminal.shown.split("\r\n").filter((line) => line.startsWith("  "));
    const longest = Math.max(...lines.map((line) => line.length));
    assert(longest <= 60 && longest > 50, terminal.shown);
    await terminal.type(`/save ${folder.at("chat.json")}\r`);
    await terminal.waitFor("saved 10 messages");
    const [question] = JSON.parse(Deno.readTextFileSync(folder.at("chat.json"))).slice(-4);
    assertEquals(question, { role: "user", content: "c" });
    await terminal.type("\x04");
    assertEquals(await terminal.close(), 0);
  },
});

Deno.test("chat: /save rejects a conversation without an answer, and ~ is the home folder", async () => {
  using folder = new TempFolder();
  // Keeps Deno's own cache in its place.
  const DENO_DIR = Deno.env.get("DENO_DIR") ?? `${Deno.env.get("HOME")}/.cache/deno`;
  const env = { HOME: folder.path, DENO_DIR };
  const chat = (stdin: string) => forge(["chat", "-n", "2", "--temp", "0"], { stdin, env });
  const empty = await chat("hi\n/undo\n/save ~/a.json\n");
  assertEquals(empty.code, 2);
  assertStringIncludes(empty.stderr, "nothing to save");
  assertEquals((await chat("hi\n/save ~/a.json\n/load ~/a.json\n")).code, 0);
  assertEquals([...Deno.readDirSync(folder.path)].map(({ name }) => name), ["a.json"]);
  // Empty lines are part of a message of several lines.
  assertEquals((await chat('"""\na\n\nb"""\n/save ~/b.json\n')).code, 0);
  const [question] = JSON.parse(Deno.readTextFileSync(folder.at("b.json")));
  assertEquals(question, { role: "user", content: "a\n\nb" });
  const broken = await forge(["chat"], { stdin: Uint8Array.of(0x61, 0xff, 0x0a), env });
  assertEquals([broken.code, broken.stdout], [1, ""]);
  assertStringIncludes(broken.stderr, "line 1 is not valid UTF-8");
});
