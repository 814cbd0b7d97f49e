/// <reference lib="dom" />
/** The page of the server, in a browser. */
import { assert, assertEquals, assertMatch, assertStringIncludes } from "@std/assert";
import axe from "axe-core";
import type { ElementHandle, Page } from "puppeteer-core";
import { load } from "../../src/mod.ts";
import { openCheckpoint } from "../../src/formats/checkpoint.ts";
import {
  createHandler,
  type Handler,
  type OfferedModels,
  offerModels,
  type ServeOptions,
} from "../../src/serve/mod.ts";
import { browserUnavailable, TestBrowser } from "../support/browser.ts";
import { TempFolder } from "../support/temp_folder.ts";
import { writeScriptedLlama } from "../support/tiny_llama.ts";
import { DEMO } from "./client.ts";

const ignore = browserUnavailable() !== undefined;

/** A folder that keeps screenshots of the page. */
const SCREENSHOTS = Deno.env.get("FORGE_SCREENSHOTS");

/** The page of a server of one model, open in a browser. */
class OpenPage implements AsyncDisposable {
  readonly page: Page;
  readonly problems: string[] = [];
  readonly #stack: AsyncDisposableStack;

  private constructor(page: Page, stack: AsyncDisposableStack) {
    this.page = page;
    this.#stack = stack;
  }

  static async open(model: string | OfferedModels, options: ServeOptions = {}): Promise<OpenPage> {
    const stack = new AsyncDisposableStack();
    const { browser } = stack.use(await TestBrowser.start());
    const served = typeof model === "string" ? await load(model, { threads: 1 }) : model;
    const handler: Handler = createHandler(stack.use(served), options);
    const server = Deno.serve({ hostname: "127.0.0.1", port: 0, onListen() {} }, handler);
    stack.defer(() => server.shutdown());
    const page = await browser.newPage();
    stack.defer(() => page.close());
    const open = new OpenPage(page, stack);
    const origin = `http://127.0.0.1:${server.addr.port}`;
    page.on("console", (message) => {
      // A refused key is a message of the browser.
      if (message.type() === "error" && !message.text().includes("401")) {
        open.problems.push(message.text());
      }
    });
    page.on("pageerror", (error) => open.problems.push(String(error)));
    page.on("request", (request) => {
      const url = request.url();
      if (!url.startsWith(origin) && !/^(data|blob):/.test(url)) open.problems.push(url);
    });
    await page.goto(origin);
    return open;
  }

  /** Types a message and sends it. */
  async send(text: string): Promise<void> {
    await this.page.type("#prompt", text);
    await this.page.keyboard.press("Enter");
  }

  /** Waits until the last answer has ended and returns its text. */
  async answer(count = 1): Promise<string> {
    await this.page.waitForFunction(
      (n) =>
        document.querySelectorAll("article.assistant").length === n &&
        document.querySelector("#stop")?.hasAttribute("hidden"),
      {},
      count,
    );
    return await this.page.$$eval("article.assistant .body", (all) => all.at(-1)!.textContent!);
  }

  /** Clicks the last button with a label. */
  async click(label: string): Promise<void> {
    await this.page.evaluate((text) => {
      const all = [...document.querySelectorAll("button")];
      all.findLast((button) => button.textContent === text)!.click();
    }, label);
  }

  /** Fails on errors of the page and on violations of axe's accessibility rules. */
  async check(): Promise<void> {
    assertEquals(this.problems, []);
    await this.page.evaluate(axe.source);
    const violations = await this.page.evaluate(async () => {
      const { violations } = await (globalThis as unknown as { axe: typeof axe }).axe.run();
      return violations.map(({ id, nodes }) => `${id}: ${nodes.map(({ html }) => html)}`);
    });
    assertEquals(violations, []);
  }

  async screenshot(name: string): Promise<void> {
    if (SCREENSHOTS === undefined) return;
    await Deno.mkdir(SCREENSHOTS, { recursive: true });
    await this.page.screenshot({ path: `${SCREENSHOTS}/${name}.png` });
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#stack.disposeAsync();
  }
}

/** Tests the page; the browser and the server keep resources of their own. */
function pageTest(name: string, fn: () => Promise<void>): void {
  Deno.test({ name: `page: ${name}`, ignore, sanitizeOps: false, sanitizeResources: false, fn });
}

pageTest("a message is answered as a stream, and stays after a reload", async () => {
  await using open = await OpenPage.open(DEMO);
  const { page } = open;
  await open.send("Tell me a story about a dog");
  const answer = await open.answer();
  assert(answer.length > 40, answer);
  const stats = await page.$eval("article.assistant .actions span", (span) => span.textContent);
  assertMatch(
    stats!,
    /^\d+ \+ \d+ tokens · prompt \d+\/s · answer [\d.]+\/s · [\d.]+ MiB of cache$/,
  );
  await open.check();
  await open.screenshot("answer");
  await page.reload();
  assertEquals(await open.answer(), answer);
  const titles = await page.$$eval("#conversations .title", (all) => all.map((e) => e.textContent));
  assertEquals(titles, ["Tell me a story about a dog"]);
  await open.click("New conversation");
  assertEquals(await page.$$("article"), []);
  assertEquals((await page.$$("#conversations li")).length, 2);
});

pageTest("one of several models is chosen, and the choice stays", async () => {
  using folder = new TempFolder();
  writeScriptedLlama(folder.path, ["I am ", "the other."], {
    chatTemplate: "{{ messages[-1].content }}",
  });
  const sources = [["demo", DEMO], ["other", folder.path]].map(([name, path]) => ({
    names: [name!] as [string],
    checkpoint: () => openCheckpoint(path!),
    load: () => load(path!, { threads: 1 }),
    leastMemory: () => 0,
  }));
  await using open = await OpenPage.open(offerModels(sources));
  const { page } = open;
  await page.waitForSelector("#models:not([hidden])");
  const options = await page.$$eval("#models option", (all) => all.map((e) => e.textContent));
  assertEquals(options, ["demo", "other"]);
  await page.select("#models", "other");
  await page.waitForFunction(() => document.title.startsWith("other"));
  await open.send("Who are you?");
  assertStringIncludes(await open.answer(), "I am the other.");
  await open.check();
  await page.reload();
  await page.waitForFunction(() => document.title.startsWith("other"));
  assertEquals(await page.$eval("#models", (e) => (e as HTMLSelectElement).value), "other");
});

pageTest("an answer is stopped, edited and asked for again", async () => {
  await using open = await OpenPage.open(DEMO);
  const { page } = open;
  await open.send("Once upon a time");
  await page.waitForFunction(() =>
    (document.querySelector("article.assistant .body")?.textContent ?? "") !== ""
  );
  const busy = () =>
    page.$eval("article.assistant", (article) => article.getAttribute("aria-busy"));
  assertEquals(await busy(), "true");
  await page.keyboard.press("Escape");
  await open.answer();
  assertEquals(await busy(), "false");
  await open.click("Retry");
  const again = await open.answer();
  assert(again !== "");
  await open.click("Edit");
  await page.type("article.user textarea", " there was a cat");
  await page.click("article.user form button");
  await open.answer();
  const asked = await page.$$eval("article.user .body", (all) => all.map((e) => e.textContent));
  assertEquals(asked, ["Once upon a time there was a cat"]);
  assertEquals(open.problems, []);
});

pageTest("thoughts are folded, and a call of a tool gets its result", async () => {
  using folder = new TempFolder();
  writeScriptedLlama(folder.path, [
    ...[
      "<think>",
      "Hm, Rome.",
      "</think>",
      "I'll look.",
      "\n<tool_call>\n",
      '{"name": "weather", "argu',
    ],
    ...['ments": {"city": "Rome"}}', "\n</tool_call>"],
  ], {
    contextLength: 2048,
    chatTemplate: "{{ tools | tojson if tools else '' }}{% for m in messages %}" +
      "[{{ m.role }}:{{ m.content }}{{ m.tool_calls | tojson if m.tool_calls }}]{% endfor %}" +
      '{# <tool_call> {"name": "arguments"} </tool_call> </think> #}',
  });
  await using open = await OpenPage.open(folder.path);
  const { page } = open;
  await page.click("#open-settings");
  await page.$eval("[name=tools]", (node) => {
    (node as HTMLTextAreaElement).value = JSON.stringify([
      { type: "function", function: { name: "weather", parameters: { type: "object" } } },
    ]);
  });
  await page.type("[name=temperature]", "0");
  await page.click("#apply");
  await open.send("The weather?");
  assertEquals(await open.answer(), "I'll look.");
  const thoughts = await page.$eval("article details", (node) => ({
    isOpen: (node as HTMLDetailsElement).open,
    text: node.textContent,
  }));
  assertEquals(thoughts, { isOpen: false, text: "ThoughtsHm, Rome." });
  const call = await page.$eval("article figure", (node) => node.textContent);
  assertMatch(call!, /^Call of weather\{"city": ?"Rome"\}$/);
  await open.check();
  await open.screenshot("tools");
  await page.type("article figure input", "sunny");
  await page.keyboard.press("Enter");
  await open.answer(2);
  const roles = await page.$$eval("article", (all) => all.map(({ className }) => className));
  assertEquals(roles, ["user", "assistant", "tool", "assistant"]);
  assertEquals(await page.$eval("article.tool .body", (node) => node.textContent), "sunny");
  assertEquals(open.problems, []);
});

pageTest("conversations are exported, imported, deleted, and begun from the keyboard", async () => {
  await using open = await OpenPage.open(DEMO);
  const { page } = open;
  await open.send("One");
  const answer = await open.answer();
  await page.evaluate(() => {
    URL.createObjectURL = (blob) => {
      void (blob as Blob).text().then((text) => document.body.dataset.exported = text);
      return "data:,";
    };
  });
  await page.click("#export");
  await page.waitForFunction(() => document.body.dataset.exported !== undefined);
  const exported = await page.evaluate(() => document.body.dataset.exported!);
  assertEquals(JSON.parse(exported), [
    { role: "user", content: "One" },
    { role: "assistant", content: JSON.parse(exported)[1].content },
  ]);
  assertEquals(JSON.parse(exported)[1].content.trim(), answer.trim());
  // Shift+Enter starts a new line, Alt+N a conversation.
  await page.keyboard.down("Alt");
  await page.keyboard.press("n");
  await page.keyboard.up("Alt");
  assertEquals((await page.$$("article")).length, 0);
  await page.focus("#prompt");
  await page.keyboard.type("a");
  await page.keyboard.down("Shift");
  await page.keyboard.press("Enter");
  await page.keyboard.up("Shift");
  await page.keyboard.type("b");
  assertEquals(await page.$eval("#prompt", (node) => (node as HTMLTextAreaElement).value), "a\nb");

  using folder = new TempFolder();
  const messages = [{ role: "system", content: "Be kind." }, { role: "user", content: "Kept?" }];
  const input = (await page.$("#file"))! as ElementHandle<HTMLInputElement>;
  for (
    const [name, text] of [["chat.json", JSON.stringify(messages)], ["bad.json", "{"]] as const
  ) {
    Deno.writeTextFileSync(folder.at(name), text);
    await input.uploadFile(folder.at(name));
    await page.waitForFunction(
      (bad) =>
        bad ? document.querySelector("#status.error") : document.querySelector("article.user"),
      {},
      name === "bad.json",
    );
  }
  assertMatch((await page.$eval("#status", (node) => node.textContent))!, /^bad\.json: /);
  assertEquals(await page.$eval("article.user .body", (node) => node.textContent), "Kept?");
  const titles = () => page.$$eval("#conversations .title", (all) => all.map((e) => e.textContent));
  assertEquals(await titles(), ["Kept?", "One"]);
  await page.click("#conversations li:nth-child(2) button:not(.title)");
  assertEquals(await titles(), ["Kept?"]);
  const before = await page.evaluate(() => getComputedStyle(document.body).backgroundColor);
  await page.click("#theme");
  assert(await page.evaluate(() => getComputedStyle(document.body).backgroundColor) !== before);
  await open.check();
});

pageTest("options apply: a schema, the system prompt, probabilities of tokens", async () => {
  await using open = await OpenPage.open(DEMO);
  const { page } = open;
  await page.click("#open-settings");
  await page.type("[name=schema]", "{");
  await page.click("#apply");
  const error = await page.$eval("#settings-error", (node) => node.textContent);
  assertStringIncludes(error!, "The JSON schema is not valid JSON");
  await page.$eval("[name=schema]", (node) => {
    (node as HTMLTextAreaElement).value = JSON.stringify({
      type: "object",
      properties: { name: { type: "string", maxLength: 12 } },
      required: ["name"],
      additionalProperties: false,
    });
  });
  await page.click("[name=probabilities]");
  await open.check();
  await open.screenshot("options");
  await page.click("#apply");
  await open.send("Who is it?");
  const answer = JSON.parse(await open.answer());
  assertEquals(Object.keys(answer), ["name"]);
  await open.click("Probabilities");
  const tokens = await page.$$eval("article.assistant [class^=token-]", (all) => (
    all.map((node) => ({ text: node.textContent!, title: (node as HTMLElement).title }))
  ));
  assertEquals(JSON.parse(tokens.map(({ text }) => text).join("")), answer);
  assertMatch(tokens[0]!.title, /^[\d.]+% {2}this token\n[\d.]+% {2}"/);
  await open.check();
  await open.screenshot("probabilities");
});

pageTest("it fits a telephone, in dark colours and without encryption", async () => {
  await using open = await OpenPage.open(DEMO);
  const { page } = open;
  // Browsers withhold these from pages that come without encryption from another machine.
  await page.evaluateOnNewDocument(() => {
    Object.defineProperty(Crypto.prototype, "randomUUID", { value: undefined });
    Object.defineProperty(Navigator.prototype, "clipboard", { value: undefined });
  });
  await page.reload();
  await page.emulateMediaFeatures([{ name: "prefers-color-scheme", value: "dark" }]);
  await page.setViewport({ width: 360, height: 640 });
  await open.send("A story about a very long word: " + "a".repeat(80));
  await open.answer();
  await open.click("Copy");
  const width = await page.evaluate(() => document.documentElement.scrollWidth);
  assertEquals(width, 360);
  await open.check();
  await open.screenshot("telephone");
  assertEquals(await page.$eval("#sidebar", (node) => getComputedStyle(node).visibility), "hidden");
  await page.click("#menu");
  assertEquals(
    await page.$eval("#sidebar", (node) => getComputedStyle(node).visibility),
    "visible",
  );
  await open.check();
});

pageTest("a text brings neither HTML nor scripts", async () => {
  const script = [
    "# Title\n\n",
    "<img src=x onerror=document.body.id='pwned'>\n\n",
    "<script>document.body.id='pwned'</script>\n\n",
    "[click](javascript:document.body.id='pwned') ![pixel](http://192.0.2.1/x.png)\n\n",
    "**bold** and `<b>code</b>`\n\n",
    "```html\n<i>block</i>\n```\n",
  ];
  using folder = new TempFolder();
  writeScriptedLlama(folder.path, script, {
    contextLength: 512,
    chatTemplate: "{{ messages[-1].content }}",
  });
  await using open = await OpenPage.open(folder.path);
  const { page } = open;
  await open.send("Hi");
  const text = await open.answer();
  assertStringIncludes(text, "<img src=x onerror=document.body.id='pwned'>");
  assertStringIncludes(text, "[click](javascript:");
  const found = await page.$$eval("article.assistant .body *", (all) => (
    all.map(({ localName }) => localName)
  ));
  assert(["strong", "code", "figure", "h3"].every((name) => found.includes(name)), `${found}`);
  assert(!found.some((name) => ["img", "script", "i", "b"].includes(name)), `${found}`);
  assertEquals(await page.evaluate(() => document.body.id), "");
  await open.check();
});

pageTest("a server with a key asks for it", async () => {
  await using open = await OpenPage.open(DEMO, { apiKey: "secret" });
  const { page } = open;
  await page.waitForSelector("#key[open]");
  await open.check();
  await page.type("[name=key]", "secret");
  await page.keyboard.press("Enter");
  await page.waitForFunction(() => document.querySelector("#model")?.textContent === "demo");
});

Deno.test("page: its files are served with a strict policy, and no others", async () => {
  await using model = await load(DEMO, { threads: 1 });
  const handler = createHandler(model);
  const ask = (path: string, method = "GET") =>
    handler(new Request(`http://localhost${path}`, { method }));
  const page = await ask("/");
  const policy = page.headers.get("content-security-policy")!;
  assertMatch(policy, /^default-src 'none'; script-src 'self'; /);
  assert(!policy.includes("unsafe"));
  for (const path of (await page.text()).matchAll(/(?:src|href)="(\/[^"]*)"/g)) {
    assertEquals((await ask(path[1]!)).status, 200, path[1]);
  }
  assertEquals((await ask("/", "HEAD")).status, 200);
  assertEquals((await ask("/page/../handler.ts")).status, 404);
  assertEquals((await ask("/page/%2e%2e%2fhandler.ts")).status, 404);
  const props = await (await ask("/props")).json();
  assertEquals(
    [props.default_generation_settings.n_ctx, props.total_slots, props.chat_template],
    [model.contextLength, 32, model.checkpoint.chatTemplate ?? null],
  );
});
