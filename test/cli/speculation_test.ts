import { assert, assertEquals, assertMatch, assertStringIncludes } from "@std/assert";
import { TempFolder } from "../support/temp_folder.ts";
import { writeRandomLlama } from "../support/tiny_llama.ts";
import { forge } from "./forge.ts";
import { ROOT } from "../support/checkout.ts";

const PROMPT =
  "Once upon a time there was a fox named Socks. Socks had a friend named Tara. Give me the facts as JSON.";
const ASK = ["run", "-p", PROMPT, "--json-object", "--temp", "0", "--device", "cpu"];

Deno.test("speculate: the text is the same, and the timings count draft tokens", async () => {
  const plain = await forge([...ASK, "--json", "--speculate", "off"]);
  assertEquals([plain.code, plain.stderr], [0, ""]);
  const expected = JSON.parse(plain.stdout);
  assertEquals([expected.timings.drafted, expected.timings.accepted], [0, 0]);
  const drafting = await forge([...ASK, "--json", "--speculate", "4"]);
  const actual = JSON.parse(drafting.stdout);
  assertEquals(actual.token_ids, expected.token_ids);
  const { drafted, accepted } = actual.timings;
  assert(accepted > 0 && accepted <= drafted, `${accepted} of ${drafted}`);

  const answer = await forge([...ASK, "--verbose", "--speculate", "4"]);
  assertEquals(answer.stdout, expected.text);
  assertStringIncludes(
    answer.stderr,
    `${drafted} tokens, ${accepted} accepted (${(100 * accepted / drafted).toFixed(0)}%)`,
  );
  const silent = await forge([...ASK, "--verbose", "--speculate", "OFF"]);
  assertEquals([silent.stdout, silent.stderr.includes("drafted")], [expected.text, false]);
});

Deno.test("speculate: an invalid number of draft tokens is rejected", async () => {
  for (const value of ["0", "33", "2.5", "yes", ""]) {
    const { code, stderr } = await forge([...ASK, "--speculate", value]);
    assertEquals(code, 2);
    assertMatch(
      stderr,
      /--speculate is ".*"; valid are auto, on, off and whole numbers from 1 to 32/,
    );
  }
});

Deno.test("speculate: trees by the demo model's layer do not change the text", async () => {
  const answer = async (...flags: readonly string[]) => {
    const { code, stdout, stderr } = await forge([...ASK, "--json", ...flags]);
    assertEquals([code, stderr], [0, ""]);
    return JSON.parse(stdout);
  };
  const plain = await answer("--speculate", "off");
  const chain = await answer("--speculate", "3", "--draft-tree", "1");
  const tree = await answer("--speculate", "3", "--draft-tree", "3");
  assertEquals([chain.token_ids, tree.token_ids], [plain.token_ids, plain.token_ids]);
  assert(tree.timings.drafted > chain.timings.drafted, `${tree.timings.drafted} drafted`);
  const { code, stderr } = await forge([...ASK, "--draft-tree", "9"]);
  assertEquals(code, 2);
  assertMatch(stderr, /--draft-tree is "9"; valid are auto and whole numbers from 1 to 8/);
});

Deno.test("speculate: a draft model does not change the text", async () => {
  const demo = `${ROOT}/models/demo`;
  const plain = JSON.parse((await forge([...ASK, "--json", "--speculate", "off"])).stdout);
  const args = [...ASK, "--json", "--speculate", "3", "--draft-model", demo];
  const { code, stdout, stderr } = await forge(args);
  assertEquals([code, stderr], [0, ""]);
  const drafted = JSON.parse(stdout);
  assertEquals(drafted.token_ids, plain.token_ids);
  assert(drafted.timings.accepted > 15, `${drafted.timings.accepted} accepted`);

  using folder = new TempFolder();
  writeRandomLlama(folder.path);
  const other = await forge([...ASK, "--draft-model", folder.path]);
  assertEquals(other.code, 2);
  assertMatch(other.stderr, /has another vocabulary than the model: 97 tokens, not 2048/);
  const none = await forge([...ASK, "--draft-model", "./nothing.gguf"]);
  assertStringIncludes(none.stderr, 'no such file or folder: "./nothing.gguf"');
});
