/**
 * Models for programs on Node and Bun. forge itself runs on Deno, whose foreign functions Node does
 * not have. `connect` starts `forge serve` on a free port of this machine and talks to it over
 * HTTP, so a program needs nothing but this package.
 *
 * ```js
 * import { connect } from "forge-llm/client";
 *
 * const forge = await connect({ model: "model.gguf" });
 * console.log(await forge.chat([{ role: "user", content: "Why is the sky blue?" }]));
 * await forge.close();
 * ```
 *
 * @module
 */
import { randomBytes } from "node:crypto";
import process from "node:process";
import { startForge, startProblem } from "./launcher.ts";

/** Options of {@linkcode connect}. */
export interface ConnectOptions {
  /** A file, a folder or a name on the hub. @default the bundled demo model */
  readonly model?: string;
  /** Further options of `forge serve`, such as `["--device", "cpu"]`. */
  readonly args?: readonly string[];
}

/** A message of a conversation. */
export interface Message {
  readonly role: string;
  readonly content: string;
}

/** A running server. */
export interface Connection {
  /** Address and key for any client of OpenAI's API. */
  readonly baseURL: string;
  readonly apiKey: string;
  /** Answers a conversation; `options` are further keys of OpenAI's request. */
  chat(messages: readonly Message[], options?: Readonly<Record<string, unknown>>): Promise<string>;
  /** Ends the server. It also ends with this process. */
  close(): Promise<void>;
}

/**
 * Starts a server for a model and waits until it answers.
 *
 * @throws {Error} with the server's message if the model cannot be loaded
 */
export async function connect(options?: ConnectOptions): Promise<Connection> {
  const { model, args = [] } = options ?? {};
  const apiKey = randomBytes(24).toString("base64url");
  const child = startForge(
    ["serve", ...(model === undefined ? [] : ["-m", model]), "--port", "0", ...args],
    {
      // However this process ends, the system closes the server's input, which stops it.
      stdio: ["pipe", "ignore", "pipe"],
      env: { ...process.env, FORGE_API_KEY: apiKey, FORGE_STOP_WITH_STDIN: "1" },
    },
  );
  const ended = new Promise<void>((resolve) => child.once("exit", () => resolve()));
  const url = await new Promise<string>((resolve, reject) => {
    let text = "";
    child.stderr?.setEncoding("utf8").on("data", (part: string) => {
      text = (text + part).slice(-10_000);
      const address = /listening on (http:\S+) \(/.exec(text)?.[1];
      if (address !== undefined) resolve(address);
    });
    child.once("error", (error) => reject(new Error(startProblem(error))));
    child.once("close", () => reject(new Error(text.trim() || "forge serve ended")));
  });
  const baseURL = `${url}/v1`;
  return {
    baseURL,
    apiKey,
    async chat(messages, options = {}) {
      const response = await fetch(`${baseURL}/chat/completions`, {
        method: "POST",
        headers: { "content-type": "application/json", authorization: `Bearer ${apiKey}` },
        body: JSON.stringify({ ...options, messages }),
      });
      const body = await response.json();
      if (!response.ok) throw new Error(body.error.message);
      return body.choices[0].message.content;
    },
    close() {
      child.kill();
      return ended;
    },
  };
}
