/** Requests to a hub: what its refusals mean, and which failures are worth another try. */
import { ForgeError } from "../errors.ts";

/** How often something is tried that never gets further. */
const ATTEMPTS = 5;
const FIRST_DELAY_MS = 500;
/** The delay after a try that got further. */
const SHORT_DELAY_MS = 50;
/** The longest that a server's own wish is waited for. */
const MAX_DELAY_MS = 60_000;

/** How a request is made. */
export interface RequestOptions {
  readonly headers: Headers | Readonly<Record<string, string>>;
  readonly signal: AbortSignal | undefined;
}

/** A failure that may pass: of the connection, or of a server that has too much to do. */
export class Interruption extends Error {
  /** The server's answer; undefined where there was none, or it broke off. */
  readonly status: number | undefined;
  /** How long the server asks to be left alone. */
  readonly delayMs: number | undefined;

  constructor(message: string, status?: number, delayMs?: number) {
    super(message);
    this.status = status;
    this.delayMs = delayMs;
  }

  /** The failure of a connection, which `error` reports. */
  static from(error: unknown): Interruption {
    const interruption = new Interruption(reasonOf(error));
    interruption.cause = error;
    return interruption;
  }
}

/**
 * Asks a server.
 *
 * @throws {ForgeError} `not_found` when it refuses, saying what that means.
 * @throws {Interruption} when it cannot be reached or has too much to do.
 */
export async function request(url: string, options: RequestOptions): Promise<Response> {
  let response: Response;
  try {
    response = await fetch(url, { headers: options.headers, signal: options.signal ?? null });
  } catch (error) {
    // Deno's own refusal says which permission is missing.
    if (error instanceof Deno.errors.NotCapable) throw error;
    throw Interruption.from(error);
  }
  if (response.ok) return response;
  await response.body?.cancel();
  const { status } = response;
  if (status === 429 || status === 408 || status >= 500) {
    const problem = status === 429 ? "there are too many requests" : "it cannot serve now";
    throw new Interruption(`it answered ${status}: ${problem}`, status, delayOf(response));
  }
  if (status === 416) throw new Interruption("it has no such range of bytes", status);
  const meaning = status === 401 || status === 403
    ? "there is no such public model, or it needs a token with access: set HF_TOKEN"
    : status === 404
    ? "there is no such model, file or revision"
    : "the request was refused";
  throw new ForgeError("not_found", `${url} answered ${status}: ${meaning}`);
}

/**
 * Does something until it succeeds. After an {@linkcode Interruption} it is tried again, later and
 * later, and given up when it gets no further five times in a row.
 *
 * @param reached how far the work has come, as a number that grows
 * @throws {ForgeError} `not_found` when it is given up, `cancelled` when the signal is raised; as `work`
 */
export async function persist<T>(
  url: string,
  signal: AbortSignal | undefined,
  work: () => Promise<T>,
  reached: () => Promise<number> = () => Promise.resolve(0),
): Promise<T> {
  let furthest = await reached();
  for (let failures = 1;; failures++) {
    try {
      return await work();
    } catch (error) {
      if (signal?.aborted) throw new ForgeError("cancelled", "the download was stopped");
      if (!(error instanceof Interruption)) throw error;
      const now = await reached();
      if (now > furthest) failures = 0;
      furthest = Math.max(furthest, now);
      if (failures === ATTEMPTS) {
        const kept = now > 0
          ? "; what has arrived is kept, and the next try goes on from there"
          : "";
        throw new ForgeError(
          "not_found",
          `${url} cannot be downloaded: ${error.message}${kept}`,
          { cause: error },
        );
      }
      const grown = failures === 0 ? SHORT_DELAY_MS : FIRST_DELAY_MS * 2 ** (failures - 1);
      const wait = error.delayMs ?? grown;
      await delay(Math.min(wait, MAX_DELAY_MS), signal);
    }
  }
}

/**
 * Reads an answer as text.
 *
 * @returns undefined where it is longer than `maxBytes`
 * @throws {Interruption} when the connection breaks off
 */
export async function readBounded(
  response: Response,
  maxBytes: number,
): Promise<string | undefined> {
  const decoder = new TextDecoder();
  const parts: string[] = [];
  let bytes = 0;
  try {
    for await (const chunk of response.body ?? []) {
      bytes += chunk.length;
      if (bytes > maxBytes) return undefined;
      parts.push(decoder.decode(chunk, { stream: true }));
    }
  } catch (error) {
    throw Interruption.from(error);
  }
  return parts.join("") + decoder.decode();
}

/** What went wrong with a connection, without addresses that are ours or known. */
function reasonOf(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  // "fetch failed" says nothing; its cause says what failed.
  const { message } = error.cause instanceof Error ? error.cause : error;
  return message.split("\n", 1)[0]!
    .replace(/^error sending request .*?: client error \((\w+)\): /, "");
}

/** `Retry-After` of an answer, where it is a number of seconds. */
function delayOf(response: Response): number | undefined {
  const seconds = response.headers.get("retry-after");
  return seconds !== null && /^\d{1,6}$/.test(seconds) ? Number(seconds) * 1000 : undefined;
}

/** Waits, but no longer than until the signal is raised. */
export function delay(milliseconds: number, signal: AbortSignal | undefined): Promise<void> {
  return new Promise((resolve) => {
    const done = () => {
      clearTimeout(timer);
      signal?.removeEventListener("abort", done);
      resolve();
    };
    const timer = setTimeout(done, milliseconds);
    signal?.addEventListener("abort", done);
  });
}
