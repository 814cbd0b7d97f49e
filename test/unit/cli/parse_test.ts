/** The grammar of the command line; values of options have tests of their own. */
import { assertEquals, assertStringIncludes, assertThrows } from "@std/assert";
import { pathToFileURL } from "node:url";
import { COMMANDS } from "../../../src/cli/commands.ts";
import { OPTIONS } from "../../../src/cli/options/options.ts";
import { parseCommandLine } from "../../../src/cli/parse.ts";
import { headCommit } from "../../../src/cli/version.ts";
import { ForgeError } from "../../../src/errors.ts";
import { TempFolder } from "../../support/temp_folder.ts";

function parsed(...args: string[]) {
  const invocation = parseCommandLine(args);
  if (invocation.kind !== "command") throw new Error(`${args.join(" ")} is ${invocation.kind}`);
  const { command, options, operands } = invocation;
  return { name: command.name, options, operands };
}

function text(...args: string[]): string {
  const invocation = parseCommandLine(args);
  if (invocation.kind === "command") throw new Error(`${args.join(" ")} is a command`);
  return invocation.text;
}

Deno.test("values follow a flag, an equals sign or a short flag", () => {
  for (const args of [["--max-tokens", "5"], ["--max-tokens=5"], ["-n", "5"], ["-n5"]]) {
    assertEquals(parsed("run", ...args).options.maxTokens, 5, args.join(" "));
  }
  assertEquals(parsed("run", "-p", "--json").options, parsed("run", "--prompt=--json").options);
  assertEquals(parsed("run", "--prompt=a=b\nc").options.prompt, "a=b\nc");
  assertEquals(parsed("run", "--prompt=").options.prompt, "");
  assertEquals(parsed("run", "--stop", "a", "--stop", "b").options.stop, ["a", "b"]);
});

Deno.test("flags are off unless given, and --no- turns off what is on", () => {
  assertEquals(parsed("run").options.json, false);
  assertEquals(parsed("run", "--json", "--json").options.json, true);
  assertEquals(parsed("tokenize").options.special, true);
  assertEquals(parsed("tokenize", "--no-special").options.special, false);
  assertEquals(parsed("run").options.prompt, undefined);
});

Deno.test("an optional value follows an equals sign only", () => {
  const { options, operands } = parsed("run", "--profile", "model.gguf");
  assertEquals([options.profile, operands], ["", ["model.gguf"]]);
  assertEquals(parsed("run", "--profile=trace.json").options.profile, "trace.json");
  assertEquals(parsed("run").options.profile, undefined);
});

Deno.test("operands stand anywhere: a dash, negative numbers, and all after --", () => {
  assertEquals(parsed("run", "m.gguf", "--json", "-").operands, ["m.gguf", "-"]);
  assertEquals(parsed("run", "m.gguf", "-5").operands, ["m.gguf", "-5"]);
  assertEquals(parsed("run", "--", "--json", "--help").operands, ["--json", "--help"]);
  assertEquals(parsed("run", "--", "-ngl", "-np").operands, ["-ngl", "-np"]);
});

Deno.test("help and version win over mistakes before them", () => {
  const help = text("run", "--help");
  assertStringIncludes(help, "Usage: forge run");
  // Long flags are aligned, whether they have a short one or not.
  assertStringIncludes(help, "\n  -p, --prompt ");
  assertStringIncludes(help, "\n      --system ");
  for (const args of [["-h", "run"], ["help", "run"], ["run", "--no-such", "-h"]]) {
    assertEquals(text(...args), help);
  }
  assertStringIncludes(text("--help"), "Usage: forge COMMAND");
  assertEquals(text(), text("help"));
  assertEquals(text("run", "--version"), text("--version"));
  assertEquals(parsed("run", "-p", "--help").options.prompt, "--help");
});

Deno.test("the help of a command names each of its flags, operands and examples", () => {
  for (const command of COMMANDS) {
    const help = text(command.name, "--help").replace(/\s+/g, " ");
    const flags = command.options.map((key) => OPTIONS[key].flags);
    const operands = command.operands?.map(({ name }) => name) ?? [];
    for (const part of [...flags, ...operands, ...command.examples]) {
      assertStringIncludes(help, part.replace(/\s+/g, " "));
    }
  }
});

/** Long flags of each command, without their hyphens; names in capitals stand for several. */
const FLAGS_OF: Readonly<Record<string, string>> = {
  LOADING: "model device threads quantize kv-type attention products numa",
  CACHES: "ctx kv-memory memory",
  ENGINE: "LOADING CACHES kv-dir kv-dir-size speculate lora draft-model draft-tree chat-template",
  DEVICES: "devices tensor-parallel pipeline-parallel",
  PROCESSES: "distributed master join-timeout",
  SAMPLING: "temp top-k top-p min-p repeat-penalty presence-penalty frequency-penalty " +
    "repeat-last-n dry-multiplier dry-base dry-allowed-length dry-penalty-last-n " +
    "dry-sequence-breaker top-n-sigma typical-p xtc-probability xtc-threshold dynatemp-range " +
    "dynatemp-exponent mirostat mirostat-tau mirostat-eta logit-bias max-tokens stop seed",
  CONSTRAINT: "json-schema json-object regex grammar",
  ANSWER: "ENGINE DEVICES PROCESSES SAMPLING verbose",
  ENCODER: "LOADING CACHES DEVICES data-parallel lora output verbose",
  run: "ANSWER CONSTRAINT prompt file system raw prompt-cache batch output parallel ordered " +
    "resume overwrite shard data-parallel thinking completions json logprobs colour profile",
  chat: "ANSWER CONSTRAINT system web thinking",
  serve: "ANSWER host port parallel max-queue alias api-key cors models-dir max-models " +
    "keep-alive data-parallel",
  embed: "ENCODER file lines pooling dimensions normalize",
  rerank: "ENCODER lines instruction top",
  inspect: "model quantize tensors template data-parallel DEVICES json verbose",
  tokenize: "file no-special model ids json verbose",
  perplexity: "LOADING CACHES file lora imatrix json plot verbose",
  quantize: "type imatrix overwrite threads json verbose",
  pull: "verbose",
  list: "json verbose",
  rm: "verbose",
  bench:
    "LOADING synthetic n-prompt n-gen pg n-depth batch-size parallel repetitions output plot " +
    "compare verbose",
  doctor: "json verbose",
  completions: "verbose",
};

Deno.test("each command takes its flags, and one word more than its operands is too many", () => {
  const expand = (text: string): string[] =>
    text.split(" ").flatMap((name) => /^[A-Z]/.test(name) ? expand(FLAGS_OF[name]!) : [name]);
  const operands = { run: 2, tokenize: 2, embed: 2, rerank: 2, quantize: 2, perplexity: 0 };
  const none = { list: 0, bench: 0, doctor: 0 };
  for (const command of COMMANDS) {
    const flags = command.options.map((key) => OPTIONS[key].flags.split(", ").at(-1)!.slice(2));
    assertEquals(flags.toSorted(), expand(FLAGS_OF[command.name]!).sort(), command.name);
    const count = { ...operands, ...none }[command.name] ?? 1;
    const words = Array<string>(count).fill("word");
    assertEquals(parsed(command.name, ...words).operands, words);
    assertThrows(() => parsed(command.name, ...words, "more"), ForgeError, 'argument "more"');
  }
  const commands = Object.keys(FLAGS_OF).filter((name) => !/^[A-Z]/.test(name));
  assertEquals(COMMANDS.map(({ name }) => name).sort(), commands.sort());
});

Deno.test("mistakes are named with what is valid", () => {
  const mistakes: readonly (readonly [string, string])[] = [
    ["rnu", 'unknown command "rnu"; did you mean run?'],
    ["help rnu", 'unknown command "rnu"; did you mean run?'],
    ["--versoin", 'unknown option "--versoin"; did you mean --version?'],
    ["--verbose run", 'unknown option "--verbose"; see forge --help'],
    ["run --tmep 1", 'unknown option "--tmep"; did you mean --temp?'],
    ["run --num-predict=3", 'unknown option "--num-predict=3"; did you mean --max-tokens?'],
    ["run --json=1", 'unknown option "--json=1"; did you mean --json?'],
    ["run -z", 'unknown option "-z"; see forge run --help'],
    ["run -ngl 99", 'unknown option "-ngl"; did you mean --device?'],
    ["run -- -ngl -x -np", 'unexpected argument "-np"'],
    ["run a -ngl", 'unknown option "-ngl"; did you mean --device?'],
    ["run -n", "--max-tokens needs a value: --max-tokens N"],
    ["run -n 1 -n 2", '--max-tokens is given twice, the second time as "2"; give it once'],
    ["run a b c", 'unexpected argument "c"; see forge run --help'],
    ["pull", "REF is missing: "],
  ];
  for (const [line, message] of mistakes) {
    const error = assertThrows(() => parseCommandLine(line.split(" ")), ForgeError);
    assertEquals(error.code, "usage");
    assertStringIncludes(error.message, message);
  }
});

/** Flags of other programs, by the flag of forge that does the same. */
const OTHER_FLAGS: Readonly<Record<string, string>> = {
  "--temp": "temperature",
  "--repeat-penalty": "repetition-penalty",
  "--typical-p": "typical",
  "--top-n-sigma": "top-nsigma",
  "--dynatemp-exponent": "dynatemp-exp",
  "--mirostat-tau": "mirostat-ent",
  "--mirostat-eta": "mirostat-lr",
  "--max-tokens": "n-predict max-new-tokens max-completion-tokens predict num-predict",
  "--ctx": "num-ctx ctx-size context-length max-model-len",
  "--stop": "reverse-prompt",
  "--system": "system-prompt",
  "--kv-type": "cache-type-k kv-cache-dtype",
  "--parallel": "np max-num-seqs",
  "--batch": "input-file",
  "--output": "output-file",
  "--grammar": "grammar-file",
  "--json-schema": "json-schema-file",
  "--raw": "no-chat-template",
  "--completions": "num-completions",
  "--alias": "served-model-name",
  "--cors": "allowed-origins",
  "--speculate": "speculative-config draft-max num-speculative-tokens",
  "--draft-model": "model-draft speculative-model",
  "--lora": "lora-scaled lora-modules",
  "--draft-tree": "speculative-eagle-topk",
};

/** Commands of other programs, by the command of forge that does the same. */
const OTHER_COMMANDS: Readonly<Record<string, string>> = {
  inspect: "show info",
  list: "ls ps",
  rm: "remove delete",
  pull: "download get",
  run: "generate complete",
  "run --batch": "batch",
  "--version": "version",
  serve: "server",
};

Deno.test("names of other programs are advised to be those of forge", () => {
  const advice = (...args: string[]) =>
    assertThrows(() => parseCommandLine(args), ForgeError).message;
  for (const [flag, names] of Object.entries(OTHER_FLAGS)) {
    const command = /^--(alias|cors)$/.test(flag) ? "serve" : "run";
    for (const name of names.split(" ")) {
      assertStringIncludes(advice(command, `--${name}=1`), `did you mean ${flag}?`);
    }
  }
  for (const [command, names] of Object.entries(OTHER_COMMANDS)) {
    for (const name of names.split(" ")) {
      assertStringIncludes(advice(name), `did you mean ${command}?`);
    }
  }
  const short = { ngl: "device", np: "parallel", tb: "threads", ctk: "kv-type", ctv: "kv-type" };
  for (const [name, flag] of Object.entries(short)) {
    assertStringIncludes(advice("serve", `-${name}`, "1"), `did you mean --${flag}?`);
  }
});

Deno.test("the version has the commit of a clone, wherever Git keeps it", () => {
  using folder = new TempFolder();
  const url = pathToFileURL(`${folder.path}/`);
  assertEquals(headCommit(url), undefined);
  const commits = ["0123456789", "abcdef0123", "9876543210"].map((start) => start.padEnd(40, "0"));
  folder.write("HEAD", `${commits[0]}\n`);
  assertEquals(headCommit(url), "0123456789");
  folder.write("HEAD", "ref: refs/heads/main\n");
  assertEquals(headCommit(url), undefined);
  const packed = [["refs/heads/other-main", commits[0]], ["refs/heads/main", commits[1]]];
  folder.write(
    "packed-refs",
    `# pack-refs with: peeled\n${packed.map(([name, id]) => `${id} ${name}\n`).join("")}`,
  );
  assertEquals(headCommit(url), "abcdef0123");
  Deno.mkdirSync(folder.at("refs", "heads"), { recursive: true });
  Deno.writeTextFileSync(folder.at("refs", "heads", "main"), `${commits[2]}\n`);
  assertEquals(headCommit(url), "9876543210");
});
