import { dirname } from "node:path";
import { createHash } from "node:crypto";
import { ForgeError } from "../errors.ts";
import { reasonOf } from "../formats/file.ts";
import { Interruption, persist, request as ask } from "./http.ts";

/** A checksum of a file's bytes, or its Git blob id. */
export interface Checksum {
  readonly kind: "SHA-256" | "Git blob";
  /** In hexadecimal. */
  readonly value: string;
}

/** One file to download. */
interface Download {
  readonly url: string;
  readonly path: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly bytes: number | undefined;
  readonly checksum: Checksum | undefined;
  /** Called as bytes arrive, with the number the file has so far. */
  readonly onProgress?: ((bytes: number) => void) | undefined;
  readonly signal?: AbortSignal | undefined;
  /**
   * Time without a byte after which the connection counts as broken, in milliseconds. @default
   * 60000
   */
  readonly stallMs?: number | undefined;
}

const NO_SUCH_RANGE = 416;

/** Path of an incomplete file. */
export function partPath(path: string): string {
  return `${path}.part`;
}

/** Path of the ETag of an incomplete file. */
function etagPath(part: string): string {
  return `${part}.etag`;
}

/** Files that an interrupted download leaves. */
export function partFiles(path: string): string[] {
  return [partPath(path), etagPath(partPath(path))];
}

/**
 * Downloads a file. Data is written to its {@linkcode partPath}. An interrupted download continues
 * from there if the server still has the same file, which the ETag or, without one, the checksum of
 * the complete file shows. The file gets its name only once it is complete and its checksum is
 * right.
 *
 * @throws {ForgeError} `not_found` if the server refuses; `bad_model` for a wrong size or checksum;
 * `device` if the file cannot be written; `cancelled` if the signal is raised, keeping received
 * data
 */
export async function download(request: Download): Promise<void> {
  const part = partPath(request.path);
  await locally(part, () => Deno.mkdir(dirname(part), { recursive: true }));
  const fetchAll = () =>
    persist(request.url, request.signal, () => fetchRest(request, part), () => sizeOf(part));
  const continued = await sizeOf(part) > 0;
  await fetchAll();
  let problem = await problemOf(request, part);
  if (problem !== undefined && continued) {
    // The part may be of another file.
    await discard(request.path);
    await fetchAll();
    problem = await problemOf(request, part);
  }
  if (problem !== undefined) {
    await discard(request.path);
    throw new ForgeError("bad_model", `${request.url} arrived damaged: ${problem}; try again`);
  }
  await Deno.rename(part, request.path);
  await remove(etagPath(part));
}

/** Appends the missing bytes to the partial file. */
async function fetchRest(request: Download, part: string): Promise<void> {
  let have = await sizeOf(part);
  const etag = await readEtag(part);
  const { bytes: whole = Infinity, checksum } = request;
  if (have > 0 && have === whole && checksum !== undefined) return;
  // A part that cannot be verified is fetched again.
  if (have >= whole || (etag === undefined && checksum === undefined)) {
    await locally(part, () => discard(request.path));
    have = 0;
  }
  const headers = new Headers(request.headers);
  if (have > 0) {
    headers.set("range", `bytes=${have}-`);
    if (etag !== undefined) headers.set("if-range", etag);
  }
  const stalled = new AbortController();
  const signals = [stalled.signal, ...(request.signal === undefined ? [] : [request.signal])];
  const { stallMs = 60_000 } = request;
  const stall = () => stalled.abort(new Error(`no data for ${stallMs / 1000} s`));
  let timer = setTimeout(stall, stallMs);
  try {
    const response = await ask(request.url, { headers, signal: AbortSignal.any(signals) });
    // A server that ignores the range sends the whole file again.
    const appends = response.status === 206 && startOf(response, have) === have;
    const mode = appends ? { append: true } : { write: true, truncate: true };
    using file = await locally(part, () => Deno.open(part, { create: true, ...mode }));
    if (!appends) await locally(part, () => writeEtag(part, response));
    let bytes = appends ? have : 0;
    for await (const chunk of response.body ?? []) {
      clearTimeout(timer);
      timer = setTimeout(stall, stallMs);
      bytes += chunk.length;
      if (bytes > (request.bytes ?? Infinity)) throw await tooLong(request);
      for (let written = 0; written < chunk.length;) {
        written += await locally(part, () => file.write(chunk.subarray(written)));
      }
      request.onProgress?.(bytes);
    }
    if (request.bytes !== undefined && bytes < request.bytes) {
      throw new Error(`the connection ended after ${bytes} of ${request.bytes} bytes`);
    }
  } catch (error) {
    if (error instanceof Interruption && error.status === NO_SUCH_RANGE) {
      // All of it had arrived, or the file is shorter now.
      await discard(request.path);
    }
    if (error instanceof ForgeError || error instanceof Interruption) throw error;
    if (error instanceof Deno.errors.NotCapable) throw error;
    throw Interruption.from(error);
  } finally {
    clearTimeout(timer);
  }
}

/** Returns the offset at which the response body starts. */
function startOf(response: Response, asked: number): number {
  const range = response.headers.get("content-range");
  const [, start] = /^bytes (\d+)-/.exec(range ?? "") ?? [];
  if (start === undefined || Number(start) === asked) return asked;
  if (Number(start) === 0) return 0;
  throw new Error(`it sent the bytes from ${start} on, not from ${asked}`);
}

/** Discards a download that is longer than expected. */
async function tooLong(request: Download): Promise<ForgeError> {
  await discard(request.path);
  return new ForgeError(
    "bad_model",
    `${request.url} arrived damaged: it is longer than its ${request.bytes} bytes; try again`,
  );
}

/**
 * Runs a file operation of the store.
 *
 * @throws {ForgeError} `device` if the system refuses, for example on a full disk; not retried
 */
async function locally<T>(path: string, act: () => Promise<T>): Promise<T> {
  try {
    return await act();
  } catch (error) {
    // Deno's own message names the missing permission.
    if (!(error instanceof Error) || error instanceof Deno.errors.NotCapable) throw error;
    throw new ForgeError(
      "device",
      `cannot write ${path}: ${reasonOf(error)}; FORGE_CACHE names another folder`,
      { cause: error },
    );
  }
}

/** Describes how a file differs from the requested one in size or checksum. */
async function problemOf(request: Download, part: string): Promise<string | undefined> {
  const size = await sizeOf(part);
  if (request.bytes !== undefined && size !== request.bytes) {
    return `it has ${size} bytes instead of ${request.bytes}`;
  }
  if (request.checksum === undefined) return undefined;
  const { kind, value } = request.checksum;
  const actual = await checksumOf(part, kind);
  return actual === value ? undefined : `its ${kind} is ${actual}, not ${value}`;
}

/** Returns the checksum of a file on disk in hexadecimal. */
export async function checksumOf(path: string, kind: Checksum["kind"]): Promise<string> {
  const hash = createHash(kind === "SHA-256" ? "sha256" : "sha1");
  if (kind === "Git blob") hash.update(`blob ${await sizeOf(path)}\0`);
  using file = await Deno.open(path);
  for await (const chunk of file.readable) hash.update(chunk);
  return hash.digest("hex");
}

/** Returns the strong ETag that a partial file was downloaded with. */
async function readEtag(part: string): Promise<string | undefined> {
  try {
    return await Deno.readTextFile(etagPath(part));
  } catch (error) {
    if (error instanceof Deno.errors.NotFound) return undefined;
    throw error;
  }
}

/** Stores the ETag of a response. A weak one does not identify bytes. */
async function writeEtag(part: string, response: Response): Promise<void> {
  const etag = response.headers.get("etag");
  if (etag !== null && /^"[!-~]{1,200}"$/.test(etag)) {
    await Deno.writeTextFile(etagPath(part), etag);
  } else {
    await remove(etagPath(part));
  }
}

/** Removes the received part of a file. */
async function discard(path: string): Promise<void> {
  for (const each of partFiles(path)) await remove(each);
}

async function remove(path: string): Promise<void> {
  try {
    await Deno.remove(path);
  } catch (error) {
    if (!(error instanceof Deno.errors.NotFound)) throw error;
  }
}

async function sizeOf(path: string): Promise<number> {
  try {
    return (await Deno.stat(path)).size;
  } catch (error) {
    if (error instanceof Deno.errors.NotFound) return 0;
    throw error;
  }
}
