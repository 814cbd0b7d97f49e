/** Chromium without a window, for tests of web pages. */
import puppeteer, { type Browser } from "puppeteer-core";
import { TempFolder } from "./temp_folder.ts";

const PROGRAMS = ["chromium", "chromium-browser", "google-chrome"];

/** Returns why there is no browser here, or undefined. */
export function browserUnavailable(): string | undefined {
  if (findBrowser() !== undefined) return undefined;
  const reason = `no browser found (${PROGRAMS.join(", ")})`;
  console.error(`skipping: ${reason}`);
  return reason;
}

function findBrowser(): string | undefined {
  return PROGRAMS.find((program) => {
    try {
      return new Deno.Command(program, { args: ["--version"] }).outputSync().success;
    } catch (error) {
      if (error instanceof Deno.errors.NotFound) return false;
      throw error;
    }
  });
}

/** A running browser; closed at the end of the scope: `await using`. */
export class TestBrowser implements AsyncDisposable {
  readonly browser: Browser;
  readonly #process: Deno.ChildProcess;
  readonly #folder: TempFolder;
  readonly #messages: Promise<void>;

  private constructor(
    browser: Browser,
    process: Deno.ChildProcess,
    folder: TempFolder,
    messages: Promise<void>,
  ) {
    this.browser = browser;
    this.#process = process;
    this.#folder = folder;
    this.#messages = messages;
  }

  static async start(): Promise<TestBrowser> {
    const folder = new TempFolder();
    const process = new Deno.Command(findBrowser()!, {
      args: [
        "--headless=new",
        // Root, which containers run as, has no sandbox.
        "--no-sandbox",
        "--disable-gpu",
        "--remote-debugging-port=0",
        `--user-data-dir=${folder.path}`,
        "about:blank",
      ],
      stdout: "null",
      stderr: "piped",
    }).spawn();
    const { promise, resolve, reject } = Promise.withResolvers<string>();
    const messages = (async () => {
      let text = "";
      for await (const part of process.stderr.pipeThrough(new TextDecoderStream())) {
        text += part;
        const [, address] = /DevTools listening on (ws:\S+)/.exec(text) ?? [];
        if (address !== undefined) resolve(address);
      }
      reject(new Error(`the browser ended: ${text}`));
    })();
    const browser = await puppeteer.connect({ browserWSEndpoint: await promise });
    return new TestBrowser(browser, process, folder, messages);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.browser.close();
    await this.#process.status;
    await this.#messages;
    this.#folder[Symbol.dispose]();
  }
}
