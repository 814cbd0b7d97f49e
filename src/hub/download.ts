import { dirname } from "@std/path";
import { createHash } from "node:crypto";
import { ForgeError } from "../errors.ts";
import { reasonOf } from "../formats/file.ts";

/** One file to download. */
export interface Download {
  readonly url: string;
  readonly path: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly bytes: number | undefined;
  readonly sha256: string | undefined;
  /** Called as bytes arrive, with the number the file has so far. */
  readonly onProgress?: ((bytes: number) => void) | undefined;
  readonly signal?: AbortSignal | undefined;
}

const ATTEMPTS = 5;
const FIRST_DELAY_MS = 500;

/**
 * Downloads a file. What arrives goes to `path + ".part"`, from which an interrupted download goes
 * on; the file takes its name only when it is whole and its checksum is right.
 *
 * @throws {ForgeError} `not_found` when the server refuses; `bad_model` when size or checksum are
 * wrong; `device` when it cannot be written; `cancelled` when the signal is raised, keeping what has
 * arrived.
 */
export async function download(request: Download): Promise<void> {
  const part = `${request.path}.part`;
  await locally(part, () => Deno.mkdir(dirname(part), { recursive: true }));
  for (let attempt = 1;; attempt++) {
    try {
      await fetchRest(request, part);
      break;
    } catch (error) {
      if (request.signal?.aborted) throw new ForgeError("cancelled", "the download was stopped");
      if (error instanceof ForgeError || attempt === ATTEMPTS) throw describe(request.url, error);
      await delay(FIRST_DELAY_MS * 2 ** (attempt - 1), request.signal);
    }
  }
  await verify(request, part);
  await Deno.rename(part, request.path);
}

/** Appends to the partial file what it still lacks. */
async function fetchRest(request: Download, part: string): Promise<void> {
  let have = await sizeOf(part);
  if (request.bytes !== undefined && have === request.bytes) return;
  if (request.bytes !== undefined && have > request.bytes) {
    await locally(part, () => Deno.remove(part));
    have = 0;
  }
  const headers = new Headers(request.headers);
  if (have > 0) headers.set("range", `bytes=${have}-`);
  const response = await fetch(request.url, { headers, signal: request.signal ?? null });
  // A server that ignores the range sends the whole file again.
  const appends = response.status === 206;
  if (!response.ok || response.body === null) {
    await response.body?.cancel();
    if (response.status >= 500 || response.status === 429) {
      throw new Error(`the server answered ${response.status}`);
    }
    throw refusal(request.url, response.status);
  }
  const mode = appends ? { append: true } : { write: true, truncate: true };
  using file = await locally(part, () => Deno.open(part, { create: true, ...mode }));
  let bytes = appends ? have : 0;
  for await (const chunk of response.body) {
    for (let written = 0; written < chunk.length;) {
      written += await locally(part, () => file.write(chunk.subarray(written)));
    }
    bytes += chunk.length;
    request.onProgress?.(bytes);
  }
  if (request.bytes !== undefined && bytes < request.bytes) {
    throw new Error(`the connection ended after ${bytes} of ${request.bytes} bytes`);
  }
}

/**
 * Does something with a file of the store.
 *
 * @throws {ForgeError} `device` where this machine refuses, as with a full disk: that is not tried again.
 */
async function locally<T>(path: string, act: () => Promise<T>): Promise<T> {
  try {
    return await act();
  } catch (error) {
    // Deno's own refusal says which permission is missing.
    if (!(error instanceof Error) || error instanceof Deno.errors.NotCapable) throw error;
    throw new ForgeError(
      "device",
      `cannot write ${path}: ${reasonOf(error)}; FORGE_CACHE names another folder`,
      { cause: error },
    );
  }
}

/** Checks size and checksum; a file that fails is removed, since it cannot be continued. */
async function verify(request: Download, part: string): Promise<void> {
  const size = await sizeOf(part);
  let problem: string | undefined;
  if (request.bytes !== undefined && size !== request.bytes) {
    problem = `it has ${size} bytes instead of ${request.bytes}`;
  } else if (request.sha256 !== undefined) {
    const actual = await sha256(part);
    if (actual !== request.sha256) problem = `its SHA-256 is ${actual}, not ${request.sha256}`;
  }
  if (problem === undefined) return;
  await Deno.remove(part);
  throw new ForgeError("bad_model", `${request.url} arrived damaged: ${problem}; try again`);
}

async function sha256(path: string): Promise<string> {
  const hash = createHash("sha256");
  using file = await Deno.open(path);
  for await (const chunk of file.readable) hash.update(chunk);
  return hash.digest("hex");
}

async function sizeOf(path: string): Promise<number> {
  try {
    return (await Deno.stat(path)).size;
  } catch (error) {
    if (error instanceof Deno.errors.NotFound) return 0;
    throw error;
  }
}

/** What a refused request means to the user. */
export function refusal(url: string, status: number): ForgeError {
  const meaning = status === 401 || status === 403
    ? "it needs a token with access: set HF_TOKEN"
    : status === 404
    ? "there is no such model, file or revision"
    : "the request was refused";
  return new ForgeError("not_found", `${url} answered ${status}: ${meaning}`);
}

function describe(url: string, error: unknown): ForgeError {
  if (error instanceof ForgeError) return error;
  const reason = error instanceof Error ? error.message : String(error);
  return new ForgeError("not_found", `${url} cannot be downloaded: ${reason}`, { cause: error });
}

function delay(milliseconds: number, signal: AbortSignal | undefined): Promise<void> {
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
