/** Tests `forge serve` as a process: its output, its address and its end. */
import { assert, assertEquals, assertMatch, assertStringIncludes } from "@std/assert";
import { basename } from "node:path";
import { bundledModel } from "../../src/cli/model/model_path.ts";
import { TempFolder } from "../support/temp_folder.ts";
import { writeEndlessLlama } from "../support/tiny_llama.ts";
import { until, within } from "../support/wait.ts";
import { forge, startForge } from "./forge.ts";

/** A server on a free port. */
class Server implements AsyncDisposable {
  readonly #child: Deno.ChildProcess;
  readonly #errors: ReadableStreamDefaultReader<string>;
  /** Output to stderr so far. */
  shown = "";
  url = "";

  private constructor(args: readonly string[], env: Readonly<Record<string, string>>) {
    this.#child = startForge(["serve", "--port", "0", ...args], {
      env: { NO_COLOR: "1", ...env },
      stdout: "piped",
      stderr: "piped",
    });
    this.#errors = this.#child.stderr.pipeThrough(new TextDecoderStream()).getReader();
  }

  /** Starts a server and waits until it listens. */
  static async start(
    args: readonly string[] = [],
    env: Readonly<Record<string, string>> = {},
  ): Promise<Server> {
    const server = new Server(args, env);
    await server.waitFor("listening on");
    const [, url] = /listening on (\S+)/.exec(server.shown) ?? [];
    assert(url !== undefined, server.shown);
    server.url = url;
    return server;
  }

  async waitFor(text: string): Promise<void> {
    while (!this.shown.includes(text)) assert(await this.#read(), `it has ended: ${this.shown}`);
  }

  async #read(): Promise<boolean> {
    const next = this.#errors.read();
    const { value = "", done } = await within(next, () => `further output than ${this.shown}`);
    this.shown += value;
    return !done;
  }

  kill(signal: Deno.Signal): void {
    this.#child.kill(signal);
  }

  /** Waits until the server exits. @returns the exit code */
  async end(): Promise<number> {
    const [{ code }, stdout] = await Promise.all([
      this.#child.status,
      new Response(this.#child.stdout).text(),
    ]);
    while (await this.#read());
    assertEquals(stdout, "");
    return code;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    try {
      this.kill("SIGKILL");
    } catch {
      // The server has already exited.
    }
    await this.#child.status;
    await this.#child.stdout.cancel().catch(() => {});
    await this.#errors.cancel().catch(() => {});
  }
}

Deno.test("serve: prints its address on one line, answers over HTTP and ends on SIGTERM", async () => {
  await using server = await Server.start(["--temp", "0", "-n", "7", "--alias", "teller"]);
  assertMatch(
    server.shown,
    /^forge: listening on http:\/\/127\.0\.0\.1:\d+ \(\S+demo, context 1024, 32 at a time\)\n$/,
  );
  const [whole, refused, unknown] = await Promise.all([
    fetch(`${server.url}/v1/completions`, {
      method: "POST",
      body: JSON.stringify({ model: "teller", prompt: "Once upon a time" }),
    }).then((response) => response.json()),
    fetch(`${server.url}/v1/models`, { headers: { origin: "http://evil.example" } }).then(
      (response) => response.json(),
    ),
    fetch(`${server.url}/nowhere`).then((response) => response.json()),
  ]);
  const run = await forge(["run", "--raw", "-p", "Once upon a time", "--temp", "0", "-n", "7"]);
  assertEquals(whole.choices[0].text, run.stdout);
  assertEquals([whole.model, whole.usage.completion_tokens], ["teller", 7]);
  assertEquals(refused.error.code, "origin_not_allowed");
  assertStringIncludes(unknown.error.message, "/nowhere");

  const port = new URL(server.url).port;
  const second = await forge(["serve", "--port", port]);
  assertEquals([second.code, second.stdout], [2, ""]);
  assertStringIncludes(
    second.stderr,
    `cannot listen on "127.0.0.1", port ${port}: another program`,
  );

  const shown = server.shown;
  server.kill("SIGTERM");
  assertEquals([await server.end(), server.shown], [0, shown]);
});

Deno.test("serve: replicas answer as one model does", async () => {
  const flags = ["--temp", "0", "-n", "5", "-t", "2"];
  using folder = new TempFolder();
  const model = { model: bundledModel(), device: "cpu", "data-parallel": 2 };
  folder.write("forge/config.json", { models: { two: model } });
  await using server = await Server.start([...flags, "-m", "two"], {
    XDG_CONFIG_HOME: folder.path,
  });
  assertStringIncludes(server.shown, "context 1024, 64 at a time)");
  const prompts = ["Once upon a time", "The dog", "A bird", "One day"];
  const answers = await Promise.all(prompts.map(async (prompt) => {
    const body = JSON.stringify({ prompt });
    const response = await fetch(`${server.url}/v1/completions`, { method: "POST", body });
    return (await response.json()).choices[0].text;
  }));
  const alone = await forge(["run", "--raw", "-p", prompts[1]!, "--device", "cpu", ...flags]);
  assertEquals(answers[1], alone.stdout);
  assertEquals(new Set(answers).size, prompts.length);
  assertEquals((await (await fetch(`${server.url}/props`)).json()).total_slots, 64);
  const metrics = await (await fetch(`${server.url}/metrics`)).text();
  assertStringIncludes(metrics, 'forge_replicas{state="working"} 2\n');
});

Deno.test("serve: Ctrl-C lets answers finish, a second Ctrl-C cancels them", async () => {
  using folder = new TempFolder();
  writeEndlessLlama(folder.path);
  await using server = await Server.start([folder.path, "--verbose"], { FORGE_API_KEY: "k" });
  assertMatch(server.shown, /^forge: loaded "\S+" \(context \d+\) in \d+\.\d s$/m);
  const ask = (body: object, signal: AbortSignal | null = null) =>
    fetch(`${server.url}/v1/completions`, {
      method: "POST",
      signal,
      headers: { authorization: "Bearer k" },
      body: JSON.stringify({ prompt: "a", temperature: 0, ...body }),
    });
  assertEquals(
    (await (await fetch(`${server.url}/v1/models`)).json()).error.type,
    "authentication_error",
  );
  const models = await fetch(`${server.url}/v1/models`, { headers: { authorization: "Bearer k" } });
  assertEquals((await models.json()).data[0].id, basename(folder.path));
  // A client that closes its connection cancels its answer.
  const answers = async () => (await (await fetch(`${server.url}/health`)).json()).answers;
  const controller = new AbortController();
  const left = ask({}, controller.signal).catch((error) => error.name);
  await until(async () => await answers() > 0);
  controller.abort();
  assertEquals(await left, "AbortError");
  await until(async () => await answers() === 0);

  const whole = await ask({ max_tokens: 1500, stream: true });
  const endless = await ask({ stream: true });
  const reader = endless.body!.getReader();
  await reader.read();
  server.kill("SIGINT");
  await server.waitFor("again to stop now");
  assert((await whole.text()).endsWith("data: [DONE]\n\n"));
  assert(!(await reader.read()).done);
  server.kill("SIGINT");
  assertEquals(await server.end(), 130);
  await reader.cancel().catch(() => {});
  assertMatch(server.shown, /\nforge: GET \/v1\/models 401 \d+ ms\n/);
  assertMatch(server.shown, /\nforge: POST \/v1\/completions 200 \d+ ms\n/);
});

Deno.test("serve: invalid addresses and options are rejected", async () => {
  for (
    const [args, code, message] of [
      [["--port", "70000"], 2, "valid are whole numbers from 0 to 65535"],
      [["--host", "0.0.0.0", "--port", "0"], 2, "deno task install"],
      [["--cors", "example.com"], 2, "valid is * or an origin"],
      [["--api-key", "a b"], 2, "visible ASCII"],
      [["-m", "no/such/model"], 1, "no/such/model"],
      [["--served-model-name", "x"], 2, "--alias"],
    ] as const
  ) {
    const { stdout, stderr, ...rest } = await forge(["serve", ...args]);
    assertEquals([rest.code, stdout, stderr.trim().split("\n").length], [code, "", 1], stderr);
    assertStringIncludes(stderr, message);
  }
});

Deno.test("serve: several models, of flags and of a folder", async () => {
  using folder = new TempFolder();
  const control = "two\x1b[2J"; // would clear the terminal
  for (const name of ["one", control]) {
    Deno.mkdirSync(`${folder.path}/${name}`);
    writeEndlessLlama(`${folder.path}/${name}`);
  }
  // Parts of other models, and other files.
  for (const name of ["notes.txt", "mmproj-a.gguf", "a-00002-of-00002.gguf", "a.safetensors"]) {
    Deno.writeTextFileSync(`${folder.path}/${name}`, "not a model");
  }
  const [first, second] = ["one", control].map((name) => `${folder.path}/${name}`) as [
    string,
    string,
  ];
  for (const args of [["-m", first, "-m", second], ["--models-dir", folder.path]]) {
    await using server = await Server.start([...args, "--keep-alive", "10m", "-n", "2"]);
    assertStringIncludes(server.shown, "(models one, two\\u001b[2J, 32 at a time)");
    const get = async (path: string) => await (await fetch(server.url + path)).json();
    assertEquals((await get("/api/ps")).models.length, args[0] === "-m" ? 1 : 0);
    const body = JSON.stringify({ model: control, prompt: "a" });
    const answer = await fetch(`${server.url}/v1/completions`, { method: "POST", body });
    assertEquals((await answer.json()).model, control);
    server.kill("SIGTERM");
    assertEquals(await server.end(), 0);
  }
  for (
    const [args, message] of [
      [["-m", first, "-m", second, "--alias", "x"], "--alias names a single model"],
      [["-m", first, "-m", first], 'two models have the name "one"'],
      [["-m", first, "-m", second, "--lora", "x"], "--lora changes a single model"],
      [["-m", first, "--keep-alive", "soon"], '--keep-alive is "soon"; valid are seconds'],
      [["--models-dir", `${folder.path}/none`], "cannot read"],
      [["--models-dir", first], "has no models; valid are"],
    ] as const
  ) {
    const { code, stderr } = await forge(["serve", "--port", "0", ...args]);
    assert(code > 0 && stderr.includes(message), stderr);
  }
});
