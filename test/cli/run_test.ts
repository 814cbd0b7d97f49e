import { assert, assertEquals, assertMatch, assertStringIncludes } from "@std/assert";
import { float32Tensor } from "../../src/formats/tensor_data.ts";
import { sharedAvailable, sharedPath } from "../support/shared.ts";
import { TempFolder } from "../support/temp_folder.ts";
import { writeRandomLlama, writeScriptedLlama } from "../support/tiny_llama.ts";
import { forge } from "./forge.ts";
import { hasTerminals, Terminal } from "./terminal.ts";

const noStories = !sharedAvailable("models", "stories260K");
const stories = sharedPath("models", "stories260K");

function expectedStory(): { text: string; greedy_ids: number[] } {
  return JSON.parse(Deno.readTextFileSync(`${stories}/expected.json`));
}

const GREEDY = ["-p", "", "--raw", "--temp", "0", "-n", "256"];

Deno.test({
  name: "run: a GGUF file gives exactly the story of llama.cpp",
  ignore: noStories,
  async fn() {
    const model = `${stories}/stories260K-f32.gguf`;
    const { code, stdout, stderr } = await forge(["run", "-m", model, ...GREEDY]);
    assertEquals({ code, stdout, stderr }, { code: 0, stdout: expectedStory().text, stderr: "" });
  },
});

Deno.test({
  name: "run: the same model as a folder gives the same ids, as JSON",
  ignore: noStories,
  async fn() {
    const { code, stdout } = await forge(["run", "-m", stories, ...GREEDY, "--json"]);
    const lines = stdout.split("\n");
    assertEquals([code, lines.length, lines[1]], [0, 2, ""]);
    const answer = JSON.parse(lines[0]!);
    assertEquals(answer.token_ids, expectedStory().greedy_ids);
    assertEquals(answer.text, expectedStory().text);
    assertEquals(answer.finish_reason, "length");
    assertEquals([answer.prompt_tokens, answer.completion_tokens], [1, 256]);
  },
});

Deno.test({
  name: "run: a Q8_0 file with rows in F16 gives a story",
  ignore: noStories,
  async fn() {
    const model = `${stories}/stories260K-q8_0.gguf`;
    const { code, stdout } = await forge(["run", "-m", model, ...GREEDY]);
    assertEquals(code, 0);
    assertMatch(stdout, /^Once upon a time, there was a little girl named \w+\. /);
    const words = stdout.match(/[a-z]+/gi) ?? [];
    assert(words.length > 100 && new Set(words).size > 40, stdout);
  },
});

Deno.test("run: the bundled model answers without other options", async () => {
  const { code, stdout, stderr } = await forge(["run", "-p", "Hello!", "-n", "30", "-s", "1"]);
  assertEquals([code, stderr], [0, ""]);
  assertMatch(stdout, /[A-Za-z]{3,}/);
  // The least values of options that divide a model.
  const one = ["--tensor-parallel", "1", "--pipeline-parallel", "1"];
  const same = await forge(["run", "-p", "Hello!", "-n", "30", "-s", "1", "-t", "1", ...one]);
  assertEquals(same, { code, stdout, stderr });
});

Deno.test("run: -p, -f, - and a pipe give the same prompt", async () => {
  using folder = new TempFolder();
  writeRandomLlama(folder.path);
  const file = folder.write("prompt.txt", "Some words.\n");
  const base = ["run", "-m", folder.path, "--temp", "0", "-n", "12", "--json"];
  const ids = async (args: string[], stdin?: string) => {
    const outcome = await forge([...base, ...args], stdin === undefined ? {} : { stdin });
    assertEquals([outcome.code, outcome.stderr], [0, ""]);
    return JSON.parse(outcome.stdout).token_ids;
  };
  const expected = await ids(["-p", "Some words."]);
  assertEquals(expected.length, 12);
  assertEquals(await ids(["-f", file]), expected);
  assertEquals(await ids(["-f", "-"], "Some words."), expected);
  assertEquals(await ids(["-"], "Some words.\n"), expected);
  assertEquals(await ids([], "Some words."), expected);
});

Deno.test("run: the same seed gives the same text, another seed a different one", async () => {
  using folder = new TempFolder();
  writeRandomLlama(folder.path);
  const generate = async (seed: string) => {
    const args = ["run", "-m", folder.path, "-p", "a", "-n", "20", "--temp", "2", "-s", seed];
    return (await forge([...args, "--top-k", "0", "--top-p", "1", "--min-p", "0"])).stdout;
  };
  const first = await generate("7");
  assertEquals(await generate("7"), first);
  assert(await generate("8") !== first);
});

Deno.test("run: stop strings end the text and are not part of it", async () => {
  using folder = new TempFolder();
  writeScriptedLlama(folder.path, ["one ", "two ", "three ", "four"]);
  const args = ["run", "-m", folder.path, "-p", "x", "--temp", "0"];
  assertEquals((await forge(args)).stdout, "one two three four");
  assertEquals((await forge([...args, "--stop", "two four"])).stdout, "one two three four");
  assertEquals((await forge([...args, "--stop", "wo thr"])).stdout, "one t");
});

Deno.test("run: --json has the fields of the library's completion, and logprobs on request", async () => {
  using folder = new TempFolder();
  writeScriptedLlama(folder.path, ["one ", "two"]);
  const args = ["run", "-m", folder.path, "-p", "x", "--temp", "0", "--json", "--logprobs", "2"];
  const answer = JSON.parse((await forge([...args, "-s", "5"])).stdout);
  assertEquals(Object.keys(answer).sort(), [
    "cached_prompt_tokens",
    "completion_tokens",
    "finish_reason",
    "logprobs",
    "prompt_tokens",
    "seed",
    "text",
    "timings",
    "token_ids",
  ]);
  assertEquals([answer.text, answer.finish_reason, answer.seed], ["one two", "stop", 5]);
  assertEquals(answer.logprobs.length, answer.token_ids.length);
  for (const [i, { token, logprob, top }] of answer.logprobs.entries()) {
    assertEquals([token, top.length, top[0].token], [answer.token_ids[i], 2, token]);
    assert(logprob <= 0 && top[0].logprob >= top[1].logprob);
  }
});

Deno.test("run: --verbose prints settings to stderr, samplers in the order of the chain", async () => {
  using folder = new TempFolder();
  writeRandomLlama(folder.path, {
    change: (tensors) => [...tensors, float32Tensor("odd\x1b[31m", [1], [0])],
  });
  const { stdout, stderr } = await forge(
    ["run", "-m", folder.path, "-p", "x", "-n", "4", "-s", "3", "--verbose"],
  );
  assert(stdout.length > 0);
  assertStringIncludes(stderr, 'not used: "odd\\u001b[31m"');
  assertMatch(stderr, /temperature .* top_k .* top_p .* min_p .* seed 3/s);
  assertStringIncludes(stderr, "kernels");
});

Deno.test("run: a prompt cache is written, then used, and rejected for another model", async () => {
  using folder = new TempFolder();
  writeRandomLlama(folder.path);
  const cache = folder.at("prompt.kv");
  const args = ["run", "-m", folder.path, "-p", "once upon a time", "-n", "6", "-s", "3"];
  const plain = await forge(args);
  const first = await forge([...args, "--prompt-cache", cache, "--verbose"]);
  const second = await forge([...args, "--prompt-cache", cache, "--verbose"]);
  assertEquals([first.stdout, second.stdout], [plain.stdout, plain.stdout]);
  assertMatch(first.stderr, /reused +0 of 17 prompt tokens/);
  assertMatch(second.stderr, /reused +16 of 17 prompt tokens/);
  writeRandomLlama(folder.path, { contextLength: 256 });
  const long = ["run", "-m", folder.path, "-p", "once upon a time ".repeat(8), "-n", "3"];
  const kept = [...long, "-s", "3", "--json", "--kv-dir", folder.at("prompts")];
  const answers = [await forge(kept), await forge(kept)];
  const [one, two] = answers.map(({ stdout }) => JSON.parse(stdout));
  assertEquals([one.text, one.cached_prompt_tokens], [two.text, 0]);
  assert(two.cached_prompt_tokens > 0);
  writeRandomLlama(folder.path, {}, 2);
  const { code, stdout, stderr } = await forge([...args, "--prompt-cache", cache]);
  assertEquals([code, stdout], [1, ""]);
  assertStringIncludes(stderr, "made with another model");
});

Deno.test("run: the chat template is applied, except to a raw prompt", async () => {
  using folder = new TempFolder();
  writeRandomLlama(folder.path, {
    chatTemplate: "{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}",
  });
  const count = async (...args: string[]) => {
    const all = ["run", "-m", folder.path, "-p", "hi", "-n", "1", "--json", ...args];
    return JSON.parse((await forge(all)).stdout).prompt_tokens;
  };
  // The tiny vocabulary has a token for each character; a raw prompt also gets BOS.
  assertEquals(await count("--raw"), 1 + "hi".length);
  assertEquals(await count(), "[user]hi".length);
  assertEquals(await count("--system", "s"), "[system]s[user]hi".length);
});

Deno.test("run: model and prompt may be arguments, and a bare word is ambiguous", async () => {
  using folder = new TempFolder();
  const model = folder.at("model");
  writeScriptedLlama(model, ["one ", "two"]);
  for (const args of [[model, "say it"], ["-m", model, "say"], [model, "-p", "say"], [model]]) {
    const { code, stdout, stderr } = await forge(["run", ...args, "--temp", "0"], {
      stdin: args.length === 1 ? "say" : "",
    });
    assertEquals([code, stdout, stderr], [0, "one two", ""], args.join(" "));
  }
  const { code, stderr } = await forge(["run", "llama3"]);
  assertEquals(code, 2);
  assertMatch(stderr, /^forge: error: is "llama3" a prompt or a model\?.*\n$/);
});

Deno.test("run: --completions gives a list, and --logit-bias bans a token", async () => {
  const args = ["run", "-p", "Hello", "-n", "4", "--seed", "1", "--json"];
  const several = await forge([...args, "--completions", "3"]);
  const { completions } = JSON.parse(several.stdout);
  assertEquals(completions.length, 3);
  const alone = JSON.parse((await forge(args)).stdout);
  assertEquals(completions[0].token_ids, alone.token_ids);
  const [first] = alone.token_ids;
  const banned = await forge([...args, "--logit-bias", `${first}=-inf`]);
  assert(!JSON.parse(banned.stdout).token_ids.includes(first), banned.stdout);
  assertEquals((await forge(["run", "-p", "Hello", "--completions", "2"])).code, 2);
});

Deno.test("run: options that exclude or need each other are named", async () => {
  using folder = new TempFolder();
  const text = folder.write("text.txt", "x"), batch = folder.write("in.jsonl", '{"prompt":"x"}\n');
  const noPrompt = "cannot be used with --batch, whose lines have the prompts";
  for (
    const [args, message] of [
      [["-p", "x", "--logprobs", "2"], "--logprobs needs --json"],
      [["-p", "x", "--completions", "2"], "--completions needs --json"],
      [["-p", "x", "--json", "--colour"], "--colour and --json exclude each other"],
      [["-p", "x", "-f", text], "give the prompt once: with -p, -f or an argument"],
      [["-"], "no prompt: stdin is empty"],
      [["--batch", batch, "-p", "x"], `--prompt ${noPrompt}`],
      [["--batch", batch, "-f", text], `--file ${noPrompt}`],
      [["--batch", batch, "--prompt-cache", text], `--prompt-cache ${noPrompt}`],
      [["--batch", batch, "-"], `- ${noPrompt}`],
      [["--batch", batch, "--colour"], "--colour cannot be used with --batch"],
      [["--batch", batch, "--profile"], "--profile cannot be used with --batch"],
      [["--batch", batch, "--thinking", "on"], "--thinking cannot be used with --batch"],
      [["-p", "x", "-o", text], "--output needs --batch FILE"],
      [["-p", "x", "--resume"], "--resume needs --batch FILE"],
      [["-p", "x", "--data-parallel", "2"], "--data-parallel needs --batch FILE"],
      [["-p", "x", "--parallel", "2"], "--parallel needs --batch FILE"],
      [["-p", "x", "--shard", "1/2"], "--shard needs --batch FILE"],
    ] as const
  ) {
    const { code, stdout, stderr } = await forge(["run", ...args], { stdin: "" });
    assertEquals([code, stdout], [2, ""], stderr);
    assertMatch(stderr, new RegExp(`^forge: error: ${RegExp.escape(message)}.*\n$`));
  }
});

Deno.test({
  name: "run: an answer ends with a new line on a terminal, and --verbose follows it",
  ignore: !await hasTerminals(),
  async fn() {
    using folder = new TempFolder();
    writeScriptedLlama(folder.at("plain"), ["one ", "two"]);
    writeScriptedLlama(folder.at("line"), ["one", "\n"]);
    const shown = async (model: string, ...args: string[]) => {
      const base = ["run", "-m", folder.at(model), "-p", "x", "--temp", "0"];
      const terminal = Terminal.forge([...base, ...args]);
      assertEquals(await terminal.close(), 0);
      return terminal.shown;
    };
    assertEquals([await shown("plain"), await shown("line")], ["one two\r\n", "one\r\n"]);
    assertMatch(
      await shown("plain", "--verbose"),
      /^.*model [^]*\d+ tokens[^]*\none two\r\n[^]*reused +0 of 2 prompt tokens\r\n[^]*ended +stop/,
    );
  },
});

Deno.test("run: a prompt cache that cannot be written is rejected before generating", async () => {
  using folder = new TempFolder();
  for (const path of [folder.at("missing/kv"), folder.path, "/dev/null"]) {
    const { code, stdout, stderr } = await forge([
      "run",
      "-p",
      "x",
      "-n",
      "1",
      "--prompt-cache",
      path,
    ]);
    assertEquals([code > 0, stdout], [true, ""], path);
    assertStringIncludes(stderr, path);
  }
  assertEquals([...Deno.readDirSync(folder.path)], []);
});

Deno.test("run: system files act as stdin or are rejected without advice on Deno's flags", async () => {
  const read = await forge(["run", "-f", "/dev/stdin", "-n", "1", "--json"], { stdin: "hello" });
  assertEquals([read.code, JSON.parse(read.stdout).completion_tokens], [0, 1]);
  const full = await forge(["run", "--batch", "-", "-o", "/dev/full"], { stdin: "{}" });
  assertEquals(full.code, 1);
  assertEquals(
    full.stderr,
    'forge: error: cannot write "/dev/full": Deno does not allow programs to open it\n',
  );
});

Deno.test("run: a chat template from a file replaces the model's own", async () => {
  using folder = new TempFolder();
  const path = folder.write("template.jinja", "{{ messages[0].content }} and");
  const args = ["run", "-p", "Once", "-n", "1", "--json"];
  const tokens = async (args: readonly string[]) =>
    JSON.parse((await forge(args)).stdout).prompt_tokens;
  assertEquals(
    await tokens([...args, "--chat-template", path]),
    await tokens(["run", "--raw", "-p", "Once and", "-n", "1", "--json"]) - 1,
    "a template writes no BOS by itself",
  );
  const missing = await forge([...args, "--chat-template", "/nowhere"]);
  assertEquals([missing.code, missing.stdout], [1, ""]);
  assertStringIncludes(missing.stderr, "/nowhere");
});
