/** The config file: short names of models, and defaults for their options. */
import { assertEquals, assertMatch, assertStringIncludes } from "@std/assert";
import { join } from "node:path";
import { bundledModel } from "../../src/cli/model/model_path.ts";
import { TempFolder } from "../support/temp_folder.ts";
import { forge } from "./forge.ts";

/** Runs forge with a config file. */
async function withConfig(config: unknown, args: readonly string[], stdin?: string) {
  using folder = new TempFolder();
  Deno.mkdirSync(join(folder.path, "forge"));
  const text = typeof config === "string" ? config : JSON.stringify(config);
  Deno.writeTextFileSync(join(folder.path, "forge", "config.json"), text);
  const env = { XDG_CONFIG_HOME: folder.path };
  return await forge(args, { env, ...(stdin === undefined ? {} : { stdin }) });
}

const TELLER = { model: bundledModel(), temp: 0, "max-tokens": 5, stop: ["zzz", "yyy"], ctx: 64 };
const models = { teller: TELLER };

Deno.test("config: a short name stands for a model and its options, and flags win", async () => {
  const direct = await forge(["run", "--raw", "-p", "Once", "--temp", "0", "-n", "5"]);
  const named = await withConfig({ models }, ["run", "teller", "--raw", "-p", "Once"]);
  assertEquals([named.stdout, named.stderr], [direct.stdout, ""]);
  const operand = await withConfig({ models }, ["run", "teller", "Once", "--json", "-n", "3"]);
  assertEquals(JSON.parse(operand.stdout).completion_tokens, 3);
  const batch = await withConfig(
    { models },
    ["run", "-m", "teller", "--batch", "-"],
    '{"prompt":"a"}\n',
  );
  assertEquals(JSON.parse(batch.stdout).completion_tokens, 5);
  const verbose = ["chat", "-m", "teller", "--verbose", "--ctx", "128"];
  const chat = await withConfig({ models }, verbose, "Hello\n");
  assertStringIncludes(chat.stderr, "128");
  const tokens = await withConfig({ models }, ["tokenize", "-m", "teller", "--ids", "Once"]);
  assertEquals(tokens.code, 0);
});

Deno.test("config: devices of replicas are a key, and other devices on the command line replace it", async () => {
  for (const devices of [["cpu", "reference"], "cpu,reference"]) {
    const config = { models: { several: { model: bundledModel(), devices } } };
    const args = ["embed", "several", "Once", "--dimensions", "2"];
    const { code, stderr } = await withConfig(config, args);
    assertEquals(code, 2);
    assertStringIncludes(stderr, 'devices are "cpu", "reference"; valid are');
    assertEquals((await withConfig(config, [...args, "--device", "cpu"])).stderr, "");
  }
});

Deno.test("config: paths of adapters are relative to the file", async () => {
  const config = { models: { a: { ...TELLER, lora: ["tune=./no-such", "~/neither"] } } };
  const { code, stderr } = await withConfig(config, ["run", "a"], "Once");
  assertEquals(code, 1);
  assertMatch(stderr, /no such file or folder.*\/forge\/no-such"/);
});

Deno.test("config: an error names the file, the key and the valid values", async () => {
  for (
    const [config, message] of [
      ["{", 'config.json" is not valid JSON'],
      [{ model: {} }, 'unknown key model; valid is "models"'],
      [{ models: 1 }, "models is 1; valid is an object"],
      [{ models: { a: { ctx: 1 } } }, "models.a.model is missing; valid is a path or hub name"],
      [{ models: { a: { model: "" } } }, 'models.a.model is ""; valid is a path or hub name'],
      [{ models: { a: { model: 5 } } }, "models.a.model is 5; valid is a path or hub name"],
      [
        { models: { a: { ...TELLER, ctx: "big" } } },
        'models.a.ctx is "big"; valid are whole numbers from 1',
      ],
      [{ models: { a: { ...TELLER, temp: [1, 2] } } }, "models.a.temp is given twice"],
      [{ models: { a: { ...TELLER, colour: true } } }, "unknown key models.a.colour; valid is"],
    ] as const
  ) {
    const { code, stdout, stderr } = await withConfig(config, ["tokenize", "-m", "a", "x"]);
    assertEquals([code, stdout], [2, ""], stderr);
    assertStringIncludes(stderr, message);
    assertStringIncludes(stderr, "config.json");
    assertEquals(stderr.trimEnd().split("\n").length, 1);
  }
});

Deno.test("config: a file that is a folder or a pipe is an error, and no wait", async () => {
  using folder = new TempFolder();
  const path = join(folder.path, "forge", "config.json");
  Deno.mkdirSync(path, { recursive: true });
  const read = async () =>
    await forge(["tokenize", "-m", "a", "x"], { env: { XDG_CONFIG_HOME: folder.path } });
  const message = `forge: error: "${path}" is not a regular file\n`;
  assertEquals((await read()).stderr, message);
  Deno.removeSync(path);
  if (Deno.build.os === "windows") return;
  new Deno.Command("mkfifo", { args: [path] }).outputSync();
  assertEquals((await read()).stderr, message);
});
