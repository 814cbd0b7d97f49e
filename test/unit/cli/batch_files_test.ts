/** Files of a batch: the lines that a run reads, and the answers that it continues after. */
import { assert, assertEquals, assertRejects, assertThrows } from "@std/assert";
import { BatchReader, countLines } from "../../../src/cli/batch/input.ts";
import { Done, openBatchOutput } from "../../../src/cli/batch/output.ts";
import { ForgeError } from "../../../src/errors.ts";
import { TempFolder } from "../../support/temp_folder.ts";

const NO_FILE = { isFile: false, dev: 0, ino: null };

Deno.test("batch files: the lines of each shard are counted", async () => {
  using folder = new TempFolder();
  for (const text of ["", "\n", "a", "\na\n", "a\nb\n\nc", "a\n".repeat(7), "\n".repeat(8) + "x"]) {
    const path = folder.write("in.jsonl", text);
    const lines = text.split("\n").length - (/(^|\n)$/.test(text) ? 1 : 0);
    for (const count of [1, 2, 3, 10]) {
      for (let index = 1; index <= count; index++) {
        const numbers = Array.from({ length: lines }, (_, i) => i + 1);
        const expected = numbers.filter((number) => number % count === index % count).length;
        assertEquals(await countLines(path, { index, count }), expected, JSON.stringify(text));
      }
    }
  }
});

Deno.test("batch files: requests that are done are skipped, and numbers lead to lines", async () => {
  const done = new Done();
  for (const id of ["a", 3]) done.ids.add(id);
  done.errorLines.add(6);
  const lines = [
    '{"id":"a","prompt":"x"}',
    '{"id":"b","prompt":"x"}',
    '{"prompt":"x"}',
    "",
    '{"id":"b","prompt":"y"}',
    "broken",
    '{"prompt":"z"}',
    "broken",
  ];
  const chunks = async function* () {
    yield await Promise.resolve(new TextEncoder().encode(lines.join("\n")));
  };
  const reader = new BatchReader({ seed: 1 }, { index: 1, count: 1 }, done);
  const found = [];
  for await (const request of reader.requests(chunks())) {
    found.push("error" in request ? [request.id, request.error.message] : { ...request });
  }
  assertEquals(found.slice(0, 3), [
    { id: "b", prompt: "x", seed: 1 },
    ["b", 'an earlier line has the id "b"'],
    { id: 7, prompt: "z", seed: 1 },
  ]);
  assertEquals(found.slice(3).map((request) => Array.isArray(request) && request[0]), [8]);
  assertEquals(reader.skipped, 3);
  assertEquals([3, 1, 0, 2].map((index) => reader.takeLine(index)), [8, 5, 2, 7]);
  assertThrows(() => reader.takeLine(0), ForgeError, "no request 0");
});

Deno.test("batch files: an output continues after its whole answers", async () => {
  using folder = new TempFolder();
  const path = folder.at("out.jsonl");
  const options = { input: NO_FILE, resume: true, overwrite: false, keepErrors: false };
  const answer = '{"id":"a","text":""}\n', several = '{"id":2,"completions":[]}\n';
  const failed = '{"id":"c","error":{"code":"device"},"line":7}\n';
  for (
    const [content, keepErrors, kept] of [
      ["", false, ""],
      [answer, false, answer],
      [`${answer}\n${several}{"id`, false, `${answer}\n${several}`],
      [failed + answer + failed + several + answer.slice(0, -1), false, answer + several],
      [failed + answer + failed.slice(0, -1), true, failed + answer],
    ] as const
  ) {
    folder.write("out.jsonl", content);
    using output = await openBatchOutput(path, { ...options, keepErrors });
    assertEquals(Deno.readTextFileSync(path), kept);
    const { ids, errorLines } = output.done;
    assertEquals(
      [ids.has("a"), ids.has(2), ids.has("c"), errorLines.has(7)],
      [kept.includes('"a"'), kept.includes(":2"), false, kept.includes(":7")],
    );
    await output.write({ id: "new" });
    assertEquals(Deno.readTextFileSync(path), `${kept}{"id":"new"}\n`);
  }
  {
    // Answers with log-probabilities may be longer than any line of the input.
    const long = `{"id":"long","text":"${"x".repeat(2 ** 25)}"}\n`;
    folder.write("out.jsonl", `${long}{"id":`);
    using output = await openBatchOutput(path, options);
    assert(output.done.ids.has("long"));
    assertEquals(Deno.statSync(path).size, long.length);
  }
  for (const line of ["[1]", '{"text":"x"}', '{"id":1}', '{"id":null,"text":""}', "{"]) {
    for (const more of [`"line":1`, `"error":{}`, `"error":1,"line":1`, `"error":{},"line":"1"`]) {
      const content = `${answer}${line.replace(/}$/, `,${more}}`)}\n`;
      folder.write("out.jsonl", content);
      const error = await assertRejects(() => openBatchOutput(path, options), ForgeError, "line 2");
      assert(error.message.startsWith("--resume cannot continue: "), error.message);
      assertEquals(Deno.readTextFileSync(path), content);
    }
  }
  if (Deno.build.os !== "windows") {
    // A device is neither read nor cut.
    using device = await openBatchOutput("/dev/null", { ...options, resume: false });
    await device.write({ id: "new" });
  }
  assertEquals((await openBatchOutput("-", { ...options, resume: false })).name, "stdout");
  for (const name of ["-", "/dev/stdout", "/dev/fd/1", "/proc/self/fd/1", undefined]) {
    await assertRejects(
      () => openBatchOutput(name, options),
      ForgeError,
      "--resume needs the file",
    );
  }
});
