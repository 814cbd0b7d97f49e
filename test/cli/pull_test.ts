/** Models of a hub by their names: `forge pull`, and commands that download what they need. */
import { assertEquals, assertMatch, assertStringIncludes } from "@std/assert";
import { TempFolder } from "../support/temp_folder.ts";
import { writeRandomLlama } from "../support/tiny_llama.ts";
import { FakeHub } from "../unit/hub/fake_hub.ts";
import { forge } from "./forge.ts";

/** A tiny model, a hub that has it as org/tiny, and an empty store. */
class Desk implements AsyncDisposable {
  readonly #folder = new TempFolder();
  readonly files: Readonly<Record<string, Uint8Array<ArrayBuffer>>>;
  readonly hub: FakeHub;
  readonly model = this.#folder.at("model");

  constructor() {
    writeRandomLlama(this.model);
    this.files = Object.fromEntries(
      Array.from(Deno.readDirSync(this.model), ({ name }) => [
        name,
        Deno.readFileSync(`${this.model}/${name}`),
      ]),
    );
    this.hub = new FakeHub(this.files);
  }

  get store(): string {
    return this.#folder.at("store");
  }

  run(...args: string[]) {
    const env = {
      FORGE_CACHE: this.store,
      HF_HOME: this.#folder.at("hf"),
      HF_ENDPOINT: this.hub.endpoint,
    };
    return forge(args, { env });
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.hub[Symbol.asyncDispose]();
    this.#folder[Symbol.dispose]();
  }
}

Deno.test("pull: downloads a model once, prints its path, and other commands use it", async () => {
  await using desk = new Desk();
  const { code, stdout, stderr } = await desk.run("pull", "org/tiny");
  assertEquals([code, stderr], [0, "forge: downloading org/tiny\n"]);
  const path = stdout.trimEnd();
  for (const { name } of Deno.readDirSync(desk.model)) {
    assertEquals(Deno.readFileSync(`${path}/${name}`), Deno.readFileSync(`${desk.model}/${name}`));
  }
  const requests = desk.hub.requests.length;
  assertEquals(await desk.run("pull", "org/tiny"), { code, stdout, stderr: "" });
  const story = ["--raw", "-p", "x", "-n", "4", "--temp", "0"];
  const answer = await desk.run("run", "-m", "org/tiny", ...story);
  assertEquals(answer, await desk.run("run", "-m", desk.model, ...story));
  assertEquals(desk.hub.requests.length, requests);
  assertMatch((await desk.run("list")).stdout, /^org\/tiny +\d+ kB {2}\S+\n$/);
});

Deno.test("pull: a command downloads the model that it names", async () => {
  await using desk = new Desk();
  const { code, stdout, stderr } = await desk.run("inspect", "org/tiny", "--json");
  assertEquals([code, stderr], [0, "forge: downloading org/tiny\n"]);
  assertEquals(JSON.parse(stdout).architecture, "llama");
});

Deno.test("pull: a download that fails is listed as incomplete, and completed later", async () => {
  await using desk = new Desk();
  const { hub, files } = desk;
  // The repository loses its weights after they are listed.
  const { "model.safetensors": _, ...others } = files;
  hub.onDownload = () => hub.replaceFiles(others);
  const failed = await desk.run("pull", "org/tiny");
  assertEquals([failed.code, failed.stdout], [1, ""]);
  assertEquals(failed.stderr.trimEnd().split("\n").length, 2, failed.stderr);
  const [listed = {}] = JSON.parse((await desk.run("list", "--json")).stdout);
  assertEquals([listed.name, listed.complete], ["org/tiny", false]);
  assertMatch(
    (await desk.run("list")).stdout,
    /^org\/tiny +\S+ k?B {2}of \S+ kB, incomplete; forge pull org\/tiny downloads the rest\n$/,
  );
  hub.onDownload = () => {};
  hub.replaceFiles(files);
  assertEquals((await desk.run("pull", "org/tiny")).code, 0);
  const [complete] = JSON.parse((await desk.run("list", "--json")).stdout);
  assertEquals([complete.complete, complete.bytes], [true, complete.total_bytes]);
});

Deno.test("pull: a second process waits for the first, and downloads nothing", async () => {
  await using desk = new Desk();
  desk.hub.delayMs = 1500;
  const outcomes = await Promise.all([desk.run("pull", "org/tiny"), desk.run("pull", "org/tiny")]);
  const [first, second] = outcomes.toSorted((a, b) => a.stderr.length - b.stderr.length);
  assertEquals([first!.code, second!.code, second!.stdout], [0, 0, first!.stdout]);
  assertEquals(first!.stderr, "forge: downloading org/tiny\n");
  const waiting = "forge: waiting for another process that is downloading org/tiny\n";
  assertEquals(second!.stderr, waiting);
});

Deno.test("pull: a name that is missing, wrong or unknown is an error of one line", async () => {
  await using desk = new Desk();
  desk.hub.listing = () => new Response(null, { status: 404 });
  for (
    const [args, code, message] of [
      [["pull"], 2, "REF is missing: org/name"],
      [["pull", "tiny"], 2, "org/name"],
      [["pull", "org/none"], 1, "org/none"],
      [["run", "-m", "org/none", "-p", "x"], 1, "org/none"],
    ] as const
  ) {
    const outcome = await desk.run(...args);
    assertEquals([outcome.code, outcome.stdout], [code, ""], outcome.stderr);
    assertEquals(outcome.stderr.trimEnd().split("\n").length, 1, outcome.stderr);
    assertStringIncludes(outcome.stderr, message);
  }
});
