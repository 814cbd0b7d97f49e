/** Requests to a hub: meaning of status codes, and retries. */
import { ForgeError } from "../errors.ts";

/** Number of consecutive attempts without progress. */
const ATTEMPTS = 5;
const FIRST_DELAY_MS = 500;
/** Delay after an attempt that made progress. */
const SHORT_DELAY_MS = 50;
/** Upper bound on a delay that a server requests. */
const MAX_DELAY_MS = 60_000;

/** Headers and cancellation of a request. */
interface RequestOptions {
  readonly headers: Headers | Readonly<Record<string, string>>;
  readonly signal: AbortSignal | undefined;
}

/** A failure worth a retry: of the connection, or of an overloaded server. */
export class Interruption extends Error {
  /** HTTP status; `undefined` without a complete response. */
  readonly status: number | undefined;
  /** Delay that the server requests. */
  readonly delayMs: number | undefined;

  constructor(message: string, status?: number, delayMs?: number) {
    super(message);
    this.status = status;
    this.delayMs = delayMs;
  }

  /** Converts the error of a connection. */
  static from(error: unknown): Interruption {
    const interruption = new Interruption(reasonOf(error));
    interruption.cause = error;
    return interruption;
  }
}

/**
 * Sends a request.
 *
 * @throws {ForgeError} `not_found` if the server rejects the request, with the meaning of its
 * status
 * @throws {Interruption} if the server cannot be reached or is overloaded
 */
export async function request(url: string, options: RequestOptions): Promise<Response> {
  let response: Response;
  try {
    response = await fetch(url, { headers: options.headers, signal: options.signal ?? null });
  } catch (error) {
    // Deno's own message names the missing permission.
    if (error instanceof Deno.errors.NotCapable) throw error;
    throw Interruption.from(error);
  }
  if (response.ok) return response;
  await response.body?.cancel();
  const { status } = response;
  if (status === 429 || status === 408 || status >= 500) {
    const problem = status === 429 ? "too many requests" : "the server is not available now";
    throw new Interruption(`it answered ${status}: ${problem}`, status, delayOf(response));
  }
  if (status === 416) throw new Interruption("the file has no such range of bytes", status);
  const meaning = status === 401 || status === 403
    ? "no such public model, or it requires a token with access: set HF_TOKEN or MODELSCOPE_API_TOKEN"
    : status === 404
    ? "no such model, file or revision"
    : "the server rejected the request";
  throw new ForgeError("not_found", `${url} answered ${status}: ${meaning}`);
}

/**
 * Runs `work` until it succeeds. Retries after an {@linkcode Interruption} with growing delays, and
 * gives up after five attempts in a row without progress.
 *
 * @param reached returns the progress as a growing number
 * @throws {ForgeError} `not_found` after the last attempt, `cancelled` if the signal is raised; as
 * `work`
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
          ? "; received data is kept, and the next attempt continues from there"
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
 * Reads a response as text.
 *
 * @returns `undefined` if it is longer than `maxBytes`
 * @throws {Interruption} if the connection breaks
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

/** Describes a failed connection, without local addresses. */
function reasonOf(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  // "fetch failed" says nothing; its cause names the failure.
  const { message } = error.cause instanceof Error ? error.cause : error;
  return message.split("\n", 1)[0]!
    .replace(/^error sending request .*?: client error \((\w+)\): /, "");
}

/** Returns the delay that `Retry-After` of a response asks for, in seconds or until a date. */
function delayOf(response: Response): number | undefined {
  const text = response.headers.get("retry-after") ?? "";
  if (/^\d{1,6}$/.test(text)) return Number(text) * 1000;
  const time = Date.parse(text) - Date.now();
  return Number.isNaN(time) ? undefined : Math.max(0, time);
}

/** Waits until the time is over or the signal is raised. */
export function delay(milliseconds: number, signal: AbortSignal | undefined): Promise<void> {
  return new Promise((resolve) => {
    if (signal?.aborted) return resolve();
    const done = () => {
      clearTimeout(timer);
      signal?.removeEventListener("abort", done);
      resolve();
    };
    const timer = setTimeout(done, milliseconds);
    signal?.addEventListener("abort", done);
  });
}
