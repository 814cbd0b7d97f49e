/** Requests of a batch file, read as the batch proceeds. */
import { ForgeError } from "../../errors.ts";
import { show } from "../../formats/quote.ts";
import type { BadRequest, BatchId, BatchRequest, GenerateOptions } from "../../mod.ts";
import { type Line, readLines } from "../input/jsonl_lines.ts";
import { fileChunks } from "../input/text_source.ts";
import { IdSet } from "./id_set.ts";
import { parseEntry, readRequest } from "./line.ts";
import type { Done } from "./output.ts";
import { isInShard, type Shard } from "./shard.ts";

/** Estimates the number of a file's lines in a shard, for the progress bar. */
export async function countLines(path: string, { index, count }: Shard): Promise<number> {
  using file = await Deno.open(path);
  let lines = 0;
  let last = 0x0a;
  for await (const chunk of fileChunks(file)) {
    for (let at = chunk.indexOf(0x0a); at >= 0; at = chunk.indexOf(0x0a, at + 1)) lines++;
    last = chunk.at(-1) ?? last;
  }
  if (last !== 0x0a) lines++;
  return Math.max(0, Math.ceil((lines - index + 1) / count));
}

/** Reads the requests of a shard that are not done, and remembers their line numbers. */
export class BatchReader {
  readonly #defaults: GenerateOptions;
  readonly #shard: Shard;
  readonly #done: Done;
  readonly #seen = new IdSet();
  /** Line numbers of requests in progress, by index. */
  readonly #lines = new Map<number, number>();
  #skipped = 0;

  constructor(defaults: GenerateOptions, shard: Shard, done: Done) {
    this.#defaults = defaults;
    this.#shard = shard;
    this.#done = done;
  }

  /** Number of lines done by an earlier run. */
  get skipped(): number {
    return this.#skipped;
  }

  async *requests(
    chunks: AsyncIterable<Uint8Array<ArrayBuffer>>,
  ): AsyncGenerator<BatchRequest | BadRequest, void, undefined> {
    const isWanted = (line: number) => isInShard(this.#shard, line);
    let index = 0;
    for await (const line of readLines(chunks, { isWanted })) {
      const request = this.#read(line);
      if (request === undefined) {
        this.#skipped++;
        continue;
      }
      this.#lines.set(index++, line.number);
      yield request;
    }
  }

  /** Returns and forgets the line number of a request. */
  takeLine(index: number): number {
    const line = this.#lines.get(index);
    if (line === undefined) throw new ForgeError("device", `the batch has no request ${index}`);
    this.#lines.delete(index);
    return line;
  }

  /** Reads the request of a line; returns `undefined` if it is done. */
  #read(line: Line): BatchRequest | BadRequest | undefined {
    if (this.#done.errorLines.has(line.number)) return undefined;
    let id: BatchId = line.number;
    try {
      if (line.error !== undefined) throw line.error;
      const entry = parseEntry(line.text, line.number);
      id = entry.id;
      if (!this.#seen.add(id)) {
        throw new ForgeError("bad_input", `an earlier line has the id ${show(id)}`);
      }
      if (this.#done.ids.has(id)) return undefined;
      return readRequest(entry, this.#defaults);
    } catch (error) {
      if (!(error instanceof ForgeError)) throw error;
      return { id, error };
    }
  }
}
