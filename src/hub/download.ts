import { dirname } from "@std/path";
import { createHash } from "node:crypto";
import { ForgeError } from "../errors.ts";
import { reasonOf } from "../formats/file.ts";
import { Interruption, persist, request as ask } from "./http.ts";

/** A checksum of a file: of its bytes, or the one that Git gives it as a blob. */
export interface Checksum {
  readonly kind: "SHA-256" | "Git blob";
  /** In hexadecimal. */
  readonly value: string;
}

/** One file to download. */
export interface Download {
  readonly url: string;
  readonly path: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly bytes: number | undefined;
  readonly checksum: Checksum | undefined;
  /** Called as bytes arrive, with the number the file has so far. */
  readonly onProgress?: ((bytes: number) => void) | undefined;
  readonly signal?: AbortSignal | undefined;
  /** After how long without a byte the connection counts as broken, in milliseconds. @default 60000 */
  readonly stallMs?: number | undefined;
}

const NO_SUCH_RANGE = 416;

/** Where what has arrived of a file is kept until it is whole. */
export function partPath(path: string): string {
  return `${path}.part`;
}

/** Where the ETag is kept of the file that a part is of. */
function etagPath(part: string): string {
  return `${part}.etag`;
}

/** The files that an interrupted download leaves. */
export function partFiles(path: string): string[] {
  return [partPath(path), etagPath(partPath(path))];
}

/**
 * Downloads a file. What arrives goes to its {@linkcode partPath}, from which an interrupted download
 * continues if the server still has the same file, by its ETag or, without one, by the checksum of the
 * whole. The file takes its name only when it is whole and its checksum is right.
 *
 * @throws {ForgeError} `not_found` when the server refuses; `bad_model` when size or checksum are
 * wrong; `device` when it cannot be written; `cancelled` when the signal is raised, keeping what has
 * arrived.
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
    // The part may have been of another file.
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

/** Appends to the partial file what it still lacks. */
async function fetchRest(request: Download, part: string): Promise<void> {
  let have = await sizeOf(part);
  const etag = await readEtag(part);
  const { bytes: whole = Infinity, checksum } = request;
  if (have > 0 && have === whole && checksum !== undefined) return;
  // What cannot be known to be of this file is fetched again.
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
  const stall = () => stalled.abort(new Error(`nothing came for ${stallMs / 1000} s`));
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

/** Where the part of the file that was sent begins. */
function startOf(response: Response, asked: number): number {
  const range = response.headers.get("content-range");
  const [, start] = /^bytes (\d+)-/.exec(range ?? "") ?? [];
  if (start === undefined || Number(start) === asked) return asked;
  if (Number(start) === 0) return 0;
  throw new Error(`it sent the bytes from ${start} on, not from ${asked}`);
}

/** The end of a download that would not end; nothing of it can be used. */
async function tooLong(request: Download): Promise<ForgeError> {
  await discard(request.path);
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

/** The way in which a file is not the one that was asked for, by size and checksum. */
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

/** The checksum of a file on disk, in hexadecimal. */
export async function checksumOf(path: string, kind: Checksum["kind"]): Promise<string> {
  const hash = createHash(kind === "SHA-256" ? "sha256" : "sha1");
  if (kind === "Git blob") hash.update(`blob ${await sizeOf(path)}\0`);
  using file = await Deno.open(path);
  for await (const chunk of file.readable) hash.update(chunk);
  return hash.digest("hex");
}

/** The strong ETag of the file that a part is of. */
async function readEtag(part: string): Promise<string | undefined> {
  try {
    return await Deno.readTextFile(etagPath(part));
  } catch (error) {
    if (error instanceof Deno.errors.NotFound) return undefined;
    throw error;
  }
}

/** Keeps the ETag of an answer; a weak one cannot say that bytes are the same. */
async function writeEtag(part: string, response: Response): Promise<void> {
  const etag = response.headers.get("etag");
  if (etag !== null && /^"[!-~]{1,200}"$/.test(etag)) {
    await Deno.writeTextFile(etagPath(part), etag);
  } else {
    await remove(etagPath(part));
  }
}

/** Removes what has arrived of a file. */
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
