/** Tests the parts of a chat: messages from lines, pasted text, the conversation and its files. */
import { assertEquals, assertRejects, assertStringIncludes, assertThrows } from "@std/assert";
import { Conversation } from "../../../src/cli/chat/conversation.ts";
import { loadMessages, saveMessages } from "../../../src/cli/chat/file.ts";
import { MessageBuilder } from "../../../src/cli/chat/message.ts";
import { LINE_BREAK, PasteFilter } from "../../../src/cli/chat/paste.ts";
import { ForgeError } from "../../../src/errors.ts";
import { TempFolder } from "../../support/temp_folder.ts";

function messagesOf(...lines: string[]): (string | undefined)[] {
  const builder = new MessageBuilder();
  const whole = lines.map((line) => builder.push(line)).filter((message) => message !== undefined);
  return [...whole, builder.finish()];
}

Deno.test("chat: a message is one line or several joined lines", () => {
  assertEquals(messagesOf("one", "", "two"), ["one", "", "two", undefined]);
  assertEquals(messagesOf("a\\", "b\\", "c"), ["a\nb\nc", undefined]);
  assertEquals(messagesOf("C:\\\\"), ["C:\\\\", undefined]);
  assertEquals(messagesOf('"""', "a", "", 'b"""'), ["a\n\nb", undefined]);
  assertEquals(messagesOf('"""a', "b\\", '"""', "c"), ["a\nb\\", "c", undefined]);
  assertEquals(messagesOf('"""a"""'), ["a", undefined]);
  assertEquals(messagesOf('"""', '"""'), ["", undefined]);
  assertEquals(messagesOf('say """', "x"), ['say """', "x", undefined]);
  assertEquals(messagesOf('"""a', "b"), ["a\nb"]);
  assertEquals(messagesOf("a\\"), ["a"]);
});

Deno.test("chat: pasted text is one line, however it is split", () => {
  const typed = "x\x1b[A\x1b[2~";
  const input = `${typed}\x1b[200~one\r\ntwo\rthree\n\x03\tzwölf\x1b\x1b[201~!\r`;
  const expected = `${typed}one${LINE_BREAK}two${LINE_BREAK}three${LINE_BREAK}    zwölf!\r`;
  const filter = new PasteFilter(() => {});
  assertEquals(filter.translate(input), expected);
  assertEquals(filter.expand(expected), `${typed}one\ntwo\nthree\n    zwölf!\r`);
  // Splits anywhere except inside the initial ESC [, because ESC alone is a key.
  const start = input.indexOf("\x1b[200~");
  for (let cut = 1; cut < input.length; cut++) {
    if (cut === start + 1 || cut === start + 2 || input[cut] === "\n") continue;
    const split = new PasteFilter(() => {});
    assertEquals(
      split.translate(input.slice(0, cut)) + split.translate(input.slice(cut)),
      expected,
    );
  }
});

Deno.test("chat: a long paste is a placeholder in the line and whole in the message", () => {
  const filter = new PasteFilter(() => {});
  const code = "if (x) {\n\ty();\n}\n".repeat(100);
  const word = "x".repeat(1000);
  const lines = [code.replaceAll("\n", "\r"), word].map((text) =>
    filter.translate(`see \x1b[200~${text}\x1b[201~ !`)
  );
  assertEquals(lines.map((line) => line.replace("\ufe0e", "")), [
    "see [paste 1: 301 lines] !",
    "see [paste 2: 1000 characters] !",
  ]);
  assertEquals(filter.expand(lines.join("|")), `see ${code} !|see ${word} !`);
  const typed = "[paste 1: 301 lines] [paste 9: 2 lines]\ufe0e";
  assertEquals(filter.expand(typed), typed);
});

Deno.test("chat: a paste of up to 400 characters and eight lines is edited as text", () => {
  const text = (length: number, lines: number) => "\n".repeat(lines - 1).padStart(length, "x");
  for (
    const [length, lines, label] of [
      [400, 8, ""],
      [401, 1, "[paste 1: 401 characters]"],
      [401, 2, "[paste 1: 2 lines]"],
      [30, 9, "[paste 1: 9 lines]"],
    ] as const
  ) {
    const filter = new PasteFilter(() => {});
    const pasted = text(length, lines);
    const line = filter.translate(`\x1b[200~${pasted}\x1b[201~`);
    assertEquals(line, label === "" ? pasted.replaceAll("\n", LINE_BREAK) : `${label}\ufe0e`);
    assertEquals(filter.expand(line), pasted);
  }
});

Deno.test("chat: turns are added, answered and removed", () => {
  const chat = new Conversation("be kind");
  assertThrows(() => chat.undo(), ForgeError, "the conversation is empty");
  for (const i of [1, 2, 3]) {
    chat.ask(`q${i}`);
    chat.answer(`a${i}`);
  }
  chat.ask("q4");
  chat.dropUnanswered();
  const contents = () => chat.messages.map(({ content }) => content).join(" ");
  assertEquals(contents(), "be kind q1 a1 q2 a2 q3 a3");
  assertEquals([chat.undo(), contents()], ["q3", "be kind q1 a1 q2 a2"]);
  chat.forgetOldest();
  assertEquals([chat.length, contents()], [1, "be kind q2 a2"]);
  chat.reset();
  chat.system = undefined;
  assertEquals([chat.length, contents()], [0, ""]);
});

Deno.test("chat: a conversation is restored from its file, and an invalid file is rejected", async () => {
  using folder = new TempFolder();
  const path = folder.at("chat.json");
  const messages = [
    { role: "system", content: "s" },
    { role: "user", content: "q\n" },
    { role: "assistant", content: "ä" },
  ];
  await saveMessages(path, messages);
  assertEquals(await loadMessages(path), messages);
  await saveMessages(path, messages.slice(1));
  const chat = new Conversation("old");
  chat.replace(await loadMessages(path));
  assertEquals([chat.system, chat.length], [undefined, 1]);
  chat.replace(messages);
  assertEquals([chat.system, chat.messages], ["s", messages]);
  chat.replace(messages.slice(1));

  assertEquals(await loadMessages(folder.write("object.json", { messages })), messages);

  const notes = folder.write("notes.json", { notes: "mine" });
  await assertRejects(() => saveMessages(notes, messages), ForgeError, "not a conversation");
  const other = folder.write("notes.txt", "my notes");
  await assertRejects(() => saveMessages(other, messages), ForgeError, "not a conversation");
  assertEquals(Deno.readTextFileSync(other), "my notes");
  const bad: [unknown, string][] = [
    ["", "is not valid JSON: "],
    [{}, "is not a conversation: messages is missing"],
    [[], "at least one"],
    [[{ role: "user" }], "messages[0].content"],
  ];
  for (const [content, part] of bad) {
    const error = await assertRejects(
      () => loadMessages(folder.write("bad.json", content)),
      ForgeError,
    );
    assertStringIncludes(error.message, part);
  }
  await assertRejects(() => loadMessages(folder.at("none.json")), ForgeError, "no such file");
  const user = { role: "user", content: "x" };
  assertThrows(() => chat.replace([user, user]), ForgeError, 'messages[1] has role "user"');
  assertThrows(() => chat.replace([messages[0]!, user, user]), ForgeError, "messages[2] has role");
  assertThrows(() => chat.replace([user]), ForgeError, "the last message");
  const turn = messages.slice(1);
  assertThrows(() => chat.replace([...turn, user]), ForgeError, "the last message");
  const turns = [...turn, ...turn];
  chat.replace(turns);
  chat.forgetOldest();
  assertEquals(turns.length, 4, "the given list stays as it is");
  assertThrows(() => chat.replace([messages[0]!, messages[2]!]), ForgeError, 'expected "user"');
  assertEquals(chat.length, 1);
});
