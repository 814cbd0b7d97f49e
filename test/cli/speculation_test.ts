import { assert, assertEquals, assertMatch, assertStringIncludes } from "@std/assert";
import { forge } from "./forge.ts";

const PROMPT =
  "Once upon a time there was a fox named Socks. Socks had a friend named Tara. Give me the facts as JSON.";
const ASK = ["run", "-p", PROMPT, "--json-object", "--temp", "0", "--device", "cpu"];

Deno.test("speculate: the text is the same, and the timings tell what was guessed", async () => {
  const plain = await forge([...ASK, "--json", "--speculate", "off"]);
  assertEquals([plain.code, plain.stderr], [0, ""]);
  const expected = JSON.parse(plain.stdout);
  assertEquals([expected.timings.drafted, expected.timings.accepted], [0, 0]);
  const guessed = await forge([...ASK, "--json", "--speculate", "4"]);
  const actual = JSON.parse(guessed.stdout);
  assertEquals(actual.token_ids, expected.token_ids);
  const { drafted, accepted } = actual.timings;
  assert(accepted > 0 && accepted <= drafted, `${accepted} of ${drafted}`);

  const told = await forge([...ASK, "--verbose", "--speculate", "4"]);
  assertEquals(told.stdout, expected.text);
  assertStringIncludes(
    told.stderr,
    `${drafted} tokens, ${accepted} accepted (${(100 * accepted / drafted).toFixed(0)}%)`,
  );
  const silent = await forge([...ASK, "--verbose", "--speculate", "OFF"]);
  assertEquals([silent.stdout, silent.stderr.includes("drafted")], [expected.text, false]);
});

Deno.test("speculate: what is no number of guesses is refused", async () => {
  for (const value of ["0", "33", "2.5", "yes", ""]) {
    const { code, stderr } = await forge([...ASK, "--speculate", value]);
    assertEquals(code, 2);
    assertMatch(
      stderr,
      /--speculate is ".*"; valid are auto, on, off and whole numbers from 1 to 32/,
    );
  }
});
