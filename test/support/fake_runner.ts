/** A runner without a device, with checkable KV pages, and requests for it. */
import { assert, assertEquals } from "@std/assert";
import type { OutputRequest, StepResult } from "../../src/backend.ts";
import type { GenerationRequest } from "../../src/engine/generation/request.ts";
import { KvPages, PageTable } from "../../src/engine/cache/kv_pages.ts";
import { Pool } from "../../src/engine/cache/pool.ts";
import type { Chunk, RunOptions } from "../../src/engine/runner.ts";
import { resolveSampling, SAMPLING_DEFAULTS } from "../../src/engine/request/sampling.ts";
import type { StepRunner } from "../../src/engine/schedule/scheduler.ts";
import { ForgeError } from "../../src/errors.ts";
import type { Tokenizer } from "../../src/tokenizer/tokenizer.ts";

export const FAKE_VOCABULARY = 1000;

/** A position of a page: its token, and a digest of it and all tokens before it. */
interface Entry {
  readonly token: number;
  readonly digest: number;
}

/** The input of one run for one sequence. */
export interface FakeChunk {
  readonly start: number;
  readonly tokens: readonly number[];
  readonly nOutputs: number;
}

export interface FakeOptions {
  readonly nPages: number;
  /** @default 4 */
  readonly pageTokens?: number;
  /** @default 16 */
  readonly maxTokens?: number;
  /** @default 4 */
  readonly maxSequences?: number;
  /** @default maxTokens */
  readonly maxOutputs?: number;
  /** Number of recurrent states. @default none: the model has no such state */
  readonly nSlots?: number | undefined;
}

const START = 17;

function digestOf(before: number, token: number): number {
  return (Math.imul(before ^ (token + 1), 0x9e3779b1) ^ (before >>> 13)) >>> 0;
}

/** The next token of the fake model. */
function nextFakeToken(tokens: ArrayLike<number>): number {
  return Array.from(tokens).reduce(digestOf, START) % FAKE_VOCABULARY;
}

/**
 * A model whose next token is a digest of all previous tokens, read from the pages. Every run
 * checks that the pages hold exactly what was written for these tokens, and that a page with
 * several readers is not written to.
 */
export class FakeRunner implements StepRunner {
  readonly limits;
  readonly pages: KvPages;
  readonly slots: Pool | undefined;
  readonly runs: FakeChunk[][] = [];
  /** Indices of the runs that computed hidden states. */
  readonly embedded = new Set<number>();
  readonly tables = new Set<PageTable>();
  /** Total number of steps of all runs. */
  nSteps = 0;
  cancels = 0;
  copies = 0;
  stateCopies = 0;
  isRunning = false;
  /** Called in each run; may throw the run's error or return results that replace the run's. */
  onRun: (chunks: readonly Chunk[]) => Promise<StepResult | undefined> = () =>
    Promise.resolve(undefined);
  readonly #pages: (Entry | undefined)[][];
  /** For each state, the digest of all tokens that it has seen. */
  readonly #states: number[] = [];
  #cancelled: PromiseWithResolvers<never> | undefined;

  constructor(options: FakeOptions) {
    const { nPages, pageTokens = 4, maxTokens = 16, maxSequences = 4 } = options;
    const { maxOutputs = maxTokens, nSlots } = options;
    this.limits = { maxTokens, maxOutputs, maxSequences, maxBranches: 0, maxTop: 0 };
    this.pages = new KvPages(nPages, pageTokens);
    this.slots = nSlots === undefined ? undefined : new Pool(nSlots, "state slot");
    this.#pages = Array.from({ length: nPages }, () => Array(pageTokens).fill(undefined));
  }

  newSequence(): PageTable {
    const table = new PageTable(this.pages, this.slots);
    this.tables.add(table);
    return table;
  }

  run(chunks: readonly Chunk[], options: RunOptions = {}): Promise<StepResult[][]> {
    return this.#run(chunks, this.limits.maxOutputs, options);
  }

  async #run(
    chunks: readonly Chunk[],
    mostOutputs: number,
    options: RunOptions,
  ): Promise<StepResult[][]> {
    assert(!this.isRunning, "two runs overlap");
    this.#checkLimits(chunks, mostOutputs);
    this.checkPages();
    this.isRunning = true;
    this.#cancelled = Promise.withResolvers();
    this.#cancelled.promise.catch(() => {});
    try {
      const replaced = await Promise.race([this.onRun(chunks), this.#cancelled.promise]);
      this.runs.push(chunks.map(({ start, tokens, outputs }) => ({
        start,
        tokens: Array.from(tokens),
        nOutputs: outputs.length,
      })));
      return this.#runSteps(chunks, options, replaced);
    } catch (error) {
      for (const { table: { slot } } of chunks) if (slot !== undefined) this.#states[slot] = NaN;
      throw error;
    } finally {
      this.isRunning = false;
    }
  }

  /** Each output's hidden state is the number of its token. */
  async embed(chunks: readonly Chunk[]): Promise<Float32Array[][]> {
    const results = await this.#run(chunks, this.limits.maxTokens, {});
    this.embedded.add(this.runs.length - 1);
    return results.map((of) =>
      of.map((result) => Float32Array.of(result instanceof ForgeError ? NaN : result.token))
    );
  }

  #runSteps(
    chunks: readonly Chunk[],
    { nSteps = 1, endTokens = [] }: RunOptions,
    replaced: StepResult | undefined,
  ): StepResult[][] {
    const ends = new Set(Array.from(endTokens));
    const results: StepResult[][] = chunks.map(() => []);
    let now = chunks;
    for (let step = 1;; step++) {
      this.nSteps++;
      const chosen = now.map((chunk) => {
        this.#write(chunk);
        return chunk.outputs.map((output) => replaced ?? this.#result(chunk, output));
      });
      chosen.forEach((some, i) => results[i]!.push(...some));
      const tokens = chosen.flat().map((result) =>
        result instanceof ForgeError ? -1 : result.token
      );
      if (step === nSteps || tokens.some((id) => id < 0 || ends.has(id))) return results;
      now = now.map(({ table, start, outputs }, i) => {
        assertEquals([chunks[i]!.tokens.length, outputs.length], [1, 1]);
        return { table, tokens: [tokens[i]!], start: start + 1, outputs };
      });
    }
  }

  cancel(): void {
    if (!this.isRunning) return;
    this.cancels++;
    this.#cancelled?.reject(new ForgeError("cancelled", "stopped on request"));
  }

  copyPage(from: number, to: number): void {
    assert(!this.isRunning, "a page is copied during a run");
    assert(!this.pages.isShared(to), "a copy overwrites a page of several users");
    this.copies++;
    this.#pages[to] = [...this.#pages[from]!];
  }

  copySlot(from: number, to: number): void {
    assert(!this.isRunning, "a state is copied during a run");
    this.stateCopies++;
    this.#states[to] = this.#states[from]!;
  }

  readSlot(slot: number | undefined): Uint8Array[] {
    return slot === undefined ? [] : [Uint8Array.of(this.#states[slot]! & 255)];
  }

  readLogits(output: number): Float32Array {
    return Float32Array.of(output);
  }

  /** Checks that each page has as many users as tables that contain it, and all others are free. */
  checkPages(): void {
    const users = new Map<number, number>();
    for (const { pages } of this.tables) {
      assertEquals(new Set(pages).size, pages.length, "a page twice in one table");
      for (const page of pages) users.set(page, (users.get(page) ?? 0) + 1);
    }
    assertEquals(this.pages.freePages, this.pages.nPages - users.size);
    const slots = [...this.tables].flatMap(({ slot }) => slot ?? []);
    assertEquals(new Set(slots).size, slots.length, "two sequences in one state slot");
    if (this.slots !== undefined) {
      // A table may hold a saved state as well.
      const used = this.slots.size - this.slots.free;
      assert(used >= slots.length && used <= 2 * slots.length, `${used} slots in use`);
    }
    for (const [page, count] of users) assertEquals(this.pages.isShared(page), count > 1);
  }

  #checkLimits(chunks: readonly Chunk[], mostOutputs: number): void {
    const { maxTokens, maxSequences } = this.limits;
    const sum = (count: (chunk: Chunk) => number) =>
      chunks.reduce((total, chunk) => total + count(chunk), 0);
    assert(chunks.length >= 1 && chunks.length <= maxSequences, `${chunks.length} sequences`);
    assert(chunks.every(({ tokens }) => tokens.length > 0), "an empty chunk");
    assert(sum(({ tokens }) => tokens.length) <= maxTokens, "too many tokens");
    assert(sum(({ outputs }) => outputs.length) <= mostOutputs, "too many outputs");
    assertEquals(new Set(chunks.map(({ table }) => table)).size, chunks.length);
  }

  #write({ table, tokens, start }: Chunk): void {
    let digest = START;
    for (let position = 0; position < start; position++) {
      const entry = this.#entry(table, position);
      assert(entry !== undefined, `position ${position} was not computed`);
      digest = digestOf(digest, entry.token);
      assertEquals(entry.digest, digest, `position ${position} holds another sequence's numbers`);
    }
    if (this.slots !== undefined && start > 0) {
      assertEquals(
        this.#states[table.slot!],
        digest,
        `the state is not that after ${start} tokens`,
      );
    }
    Array.from(tokens).forEach((token, i) => {
      const position = start + i;
      const page = table.pages[Math.floor(position / this.pages.pageTokens)]!;
      assert(!this.pages.isShared(page), `page ${page} is written while shared`);
      digest = digestOf(digest, token);
      this.#pages[page]![position % this.pages.pageTokens] = { token, digest };
    });
    if (this.slots !== undefined) this.#states[table.slot!] = digest;
  }

  #result({ table, start }: Chunk, { row }: OutputRequest): StepResult {
    const { digest } = this.#entry(table, start + row)!;
    return { token: digest % FAKE_VOCABULARY, logprob: -1, top: [] };
  }

  #entry(table: PageTable, position: number): Entry | undefined {
    const { pageTokens } = this.pages;
    return this.#pages[table.pages[Math.floor(position / pageTokens)]!]?.[position % pageTokens];
  }
}

/** A tokenizer without tokens: the tokens of the fake model have no text. */
export const noTokenizer = { vocabSize: 0, tokenBytes: (_) => new Uint8Array(0) } as Tokenizer;

export function fakeRequest(
  prompt: readonly number[],
  maxTokens: number,
  rest: Partial<GenerationRequest> = {},
): GenerationRequest {
  return {
    prompt,
    maxTokens,
    sampling: resolveSampling({ seed: 1 }, SAMPLING_DEFAULTS),
    logitBias: undefined,
    dryBreakers: [],
    stream: 0,
    stop: [],
    endTokens: new Set(),
    logprobs: undefined,
    reasoningLimit: undefined,
    constraint: undefined,
    vocabSize: FAKE_VOCABULARY,
    startsText: false,
    shownTokens: new Set(),
    signal: undefined,
    onPrefill: undefined,
    ...rest,
  };
}

/** The fake model's answer to a prompt. */
export function fakeAnswer(prompt: readonly number[], maxTokens: number): number[] {
  const tokens = [...prompt];
  for (let i = 0; i < maxTokens; i++) tokens.push(nextFakeToken(tokens));
  return tokens.slice(prompt.length);
}
