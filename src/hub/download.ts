import { dirname } from "@std/path";
import { createHash } from "node:crypto";
import { ForgeError } from "../errors.ts";
import { reasonOf } from "../formats/file.ts";
import { Interruption, persist, request as ask } from "./http.ts";

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
  /** After how long without a byte the connection counts as broken, in milliseconds. @default 60000 */
  readonly stallMs?: number | undefined;
}

/** Where what has arrived of a file is kept until it is whole. */
export function partPath(path: string): string {
  return `${path}.part`;
}

/**
 * Downloads a file. What arrives goes to its {@linkcode partPath}, from which an interrupted download
 * goes on; the file takes its name only when it is whole and its checksum is right.
 *
 * @throws {ForgeError} `not_found` when the server refuses; `bad_model` when size or checksum are
 * wrong; `device` when it cannot be written; `cancelled` when the signal is raised, keeping what has
 * arrived.
 */
export async function download(request: Download): Promise<void> {
  const part = partPath(request.path);
  await locally(part, () => Deno.mkdir(dirname(part), { recursive: true }));
  await persist(
    request.url,
    request.signal,
    () => fetchRest(request, part),
    () => sizeOf(part),
  );
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
  const stalled = new AbortController();
  const signals = [stalled.signal, ...(request.signal === undefined ? [] : [request.signal])];
  const { stallMs = 60_000 } = request;
  const stall = () => stalled.abort(new Error(`nothing came for ${stallMs / 1000} s`));
  let timer = setTimeout(stall, stallMs);
  try {
    const response = await ask(request.url, { headers, signal: AbortSignal.any(signals) });
    // A server that ignores the range sends the whole file again.
    const appends = response.status === 206 && startOf(response, have) === have;
    const mode = appends ? { append: true } : { write: true, truncate: true };
    using file = await locally(part, () => Deno.open(part, { create: true, ...mode }));
    let bytes = appends ? have : 0;
    for await (const chunk of response.body!) {
      clearTimeout(timer);
      timer = setTimeout(stall, stallMs);
      bytes += chunk.length;
      if (bytes > (request.bytes ?? Infinity)) throw await tooLong(request, part);
      for (let written = 0; written < chunk.length;) {
        written += await locally(part, () => file.write(chunk.subarray(written)));
      }
      request.onProgress?.(bytes);
    }
    if (request.bytes !== undefined && bytes < request.bytes) {
      throw new Error(`the connection ended after ${bytes} of ${request.bytes} bytes`);
    }
  } catch (error) {
    if (error instanceof ForgeError || error instanceof Interruption) throw error;
    if (error instanceof Deno.errors.NotCapable) throw error;
    throw Interruption.from(error);
  } finally {
    clearTimeout(timer);
  }
}

/** Where the part of the file that was sent begins. */
function startOf(response: Response, asked: number): number {
  const range = response.headers.get("content-range");
  const [, start] = /^bytes (\d+)-/.exec(range ?? "") ?? [];
  if (start === undefined || Number(start) === asked) return asked;
  if (Number(start) === 0) return 0;
  throw new Error(`it sent the bytes from ${start} on, not from ${asked}`);
}

/** The end of a download that would not end; nothing of it can be used. */
async function tooLong(request: Download, part: string): Promise<ForgeError> {
  await Deno.remove(part);
  return new ForgeError(
    "bad_model",
    `${request.url} arrived damaged: it is longer than its ${request.bytes} bytes; try again`,
  );
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
