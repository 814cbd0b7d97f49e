/** Tests of sampling options on the command line that need the host. */
import { assert, assertEquals, assertStringIncludes } from "@std/assert";
import { TempFolder } from "../support/temp_folder.ts";
import { forge } from "./forge.ts";

const PROMPT = "Once upon a time there was a fox named Socks.";
const SAMPLERS = [
  ...["--dry-multiplier", "0.8", "--dry-sequence-breaker", "none", "--top-n-sigma", "1.5"],
  ...["--typical-p", "0.9", "--xtc-probability", "0.4", "--xtc-threshold", "0.05"],
  ...["--dynatemp-range", "0.4", "--repeat-penalty", "1.1", "-n", "40"],
];

Deno.test("sampling: a seed gives the same answer alone, in a batch and with draft tokens", async () => {
  const run = ["run", "-p", PROMPT, "-s", "5", ...SAMPLERS, "--json", "--logprobs", "2"];
  const alone = await forge(run);
  assertEquals([alone.code, alone.stderr], [0, ""]);
  const expected = JSON.parse(alone.stdout);
  assertEquals(expected.token_ids.length, expected.logprobs.length);
  assert(expected.logprobs.every(({ logprob }: { logprob: number }) => logprob <= 0));
  const drafting = JSON.parse((await forge([...run, "--speculate", "3"])).stdout);
  assertEquals(drafting.token_ids, expected.token_ids);
  assert(drafting.timings.drafted > 0);

  using folder = new TempFolder();
  const lines = [5, 6, 7, 5].map((seed) =>
    JSON.stringify({
      prompt: PROMPT,
      seed,
      logprobs: 2,
      // A neighbour that another sampler serves.
      ...(seed === 6 ? { mirostat: 2, xtc_probability: 0 } : {}),
    })
  );
  Deno.writeTextFileSync(`${folder.path}/in.jsonl`, lines.join("\n"));
  const batch = await forge([
    ...["run", "--batch", `${folder.path}/in.jsonl`, "--ordered", ...SAMPLERS],
  ]);
  const answers = batch.stdout.trim().split("\n").map((line) => JSON.parse(line));
  assertEquals(answers[0].token_ids, expected.token_ids);
  assertEquals(answers[3].logprobs, expected.logprobs);
  assertEquals(new Set(answers.map(({ text }) => text)).size, 3);
});

Deno.test("sampling: constraints hold, and --verbose prints the chain of the host", async () => {
  const { code, stdout, stderr } = await forge([
    ...["run", "-p", PROMPT, "--json-object", "--verbose", "-s", "1"],
    ...["--mirostat", "2", "--mirostat-tau", "3", "--mirostat-eta", "0.2"],
  ]);
  assertEquals([code, typeof JSON.parse(stdout)], [0, "object"]);
  assertStringIncludes(
    stderr,
    "→ mirostat 2 with mirostat_tau 3, mirostat_eta 0.2 → draw with seed 1 on the host",
  );
});

Deno.test("sampling: invalid values and other programs' flags are refused in one line", async () => {
  const cases = [
    [["--mirostat", "1"], '--mirostat is "1"; valid are 0 and 2'],
    [["--xtc-probability", "2"], '--xtc-probability is "2"; valid are numbers from 0 to 1'],
    [["--dry-allowed-length", "1.5"], "whole numbers from 0 to"],
    [["--typical", "0.5"], "--typical-p"],
    [["--mirostat-lr", "0.5"], "--mirostat-eta"],
  ] as const;
  for (const [args, message] of cases) {
    const { code, stderr } = await forge(["run", "-p", "a", ...args]);
    assertEquals([code, stderr.trim().includes("\n")], [2, false]);
    assertStringIncludes(stderr, message);
  }
});
