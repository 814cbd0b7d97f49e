import { ForgeError } from "../../errors.ts";
import type { PageTable } from "../cache/kv_pages.ts";
import type { Chunk, Runner } from "../runner.ts";
import { commonLength, TokenList } from "../token_list.ts";
import type { Prospect } from "./draft.ts";
import { fitRequest } from "./draft_vocabulary.ts";
import { DraftRates, type ModelDrafter } from "./model_drafter.ts";
import { StepCosts } from "./step_costs.ts";

/** Part of a runner that a draft model uses. */
type DraftRunner = Pick<
  Runner,
  "contextLength" | "vocabSize" | "limits" | "newSequence" | "run" | "cancel"
>;

/** State of the draft model for one text. */
interface Reading {
  readonly table: PageTable;
  /** Tokens whose keys and values are in the pages, draft tokens included. */
  readonly tokens: TokenList;
}

/** Text with the number of draft tokens it gets. */
interface Followed {
  readonly prospect: Prospect;
  readonly reading: Reading;
  readonly count: number;
}

/**
 * Smaller model with the same vocabulary that drafts tokens. It samples with the same parameters,
 * random number and mask as the large model. It has its own KV cache; a text that finds no free
 * pages there gets no draft tokens.
 */
export class DraftModel implements ModelDrafter {
  readonly #runner: DraftRunner;
  readonly #readings = new Map<TokenList, Reading>();
  readonly #rates = new DraftRates();
  readonly #costs = new StepCosts();

  constructor(runner: DraftRunner) {
    this.#runner = runner;
  }

  rate(tokens: TokenList): number {
    return this.#rates.of(tokens);
  }

  cost(texts: number): number {
    return this.#costs.of(Math.max(1, texts));
  }

  /** Returns the number of tokens of a text that are not computed yet. */
  lag(tokens: TokenList): number {
    return tokens.length - (this.#readings.get(tokens)?.tokens.length ?? 0);
  }

  /**
   * Adds tokens to drafts, one run for one more token of every text. A text whose tokens are not
   * computed yet is caught up with first, in chunks, and gets no draft tokens until then.
   *
   * @param counts number of draft tokens of each text
   */
  async draft(prospects: readonly Prospect[], counts: readonly number[]): Promise<void> {
    const followed = prospects.flatMap((prospect, i) => {
      const reading = counts[i]! > 0 ? this.#follow(prospect.tokens) : undefined;
      return reading === undefined ? [] : [{ prospect, reading, count: counts[i]! }];
    });
    for (let open: readonly Followed[] = followed; open.length > 0;) {
      open = await this.#draftNext(open);
    }
    for (const { prospect: { tokens, draft } } of followed) this.#rates.made(tokens, draft.tokens);
  }

  cancel(): void {
    this.#runner.cancel();
  }

  forget(tokens: TokenList): void {
    this.#readings.get(tokens)?.table.release();
    this.#readings.delete(tokens);
  }

  /** Drafts one more token for each text. Returns the texts that need more. */
  async #draftNext(open: readonly Followed[]): Promise<Followed[]> {
    const { limits } = this.#runner;
    const parts: { readonly text: Followed; readonly chunk: Chunk }[] = [];
    let room = limits.maxTokens;
    for (const text of open) {
      const chunk = parts.length < limits.maxSequences ? this.#nextChunk(text, room) : undefined;
      if (chunk === undefined) continue;
      parts.push({ text, chunk });
      room -= chunk.tokens.length;
    }
    if (parts.length === 0) return [];
    const start = performance.now();
    const results = await this.#runner.run(parts.map(({ chunk }) => chunk));
    const isDecoding = limits.maxTokens - room <= 2 * parts.length;
    if (isDecoding) this.#costs.measure(parts.length, performance.now() - start);
    return parts.flatMap(({ text, chunk }, i) => {
      for (let at = 0; at < chunk.tokens.length; at++) text.reading.tokens.push(chunk.tokens[at]!);
      const [result] = results[i]!;
      // A text that is not caught up with, or whose mask allows no token, gets no draft token.
      if (result === undefined || result instanceof ForgeError) return [];
      const { draft } = text.prospect;
      return draft.add(result.token) && draft.tokens.length < text.count ? [text] : [];
    });
  }

  /** Returns the state for a text; `undefined` if its tokens or its length exceed the model's. */
  #follow(tokens: TokenList): Reading | undefined {
    const { contextLength, vocabSize } = this.#runner;
    let reading = this.#readings.get(tokens);
    if (reading === undefined) {
      const table = this.#runner.newSequence();
      reading = { table, tokens: new TokenList([]) };
      this.#readings.set(tokens, reading);
    }
    const known = tokens.view(0);
    // The last token is always computed: the next one is sampled from its output.
    reading.tokens.truncate(commonLength(reading.tokens.view(0), known.subarray(0, -1)));
    const isBeyond = tokens.length >= contextLength ||
      known.subarray(reading.tokens.length).some((id) => id >= vocabSize);
    return isBeyond ? undefined : reading;
  }

  /** Returns the next chunk of a text and its draft tokens, at most `most` tokens. */
  #nextChunk({ prospect, reading, count }: Followed, most: number): Chunk | undefined {
    const { tokens, draft, next } = prospect;
    // A token that a constraint forces need not be sampled.
    while (draft.forced !== undefined && draft.tokens.length < count && draft.add(draft.forced));
    // The draft of a text that ended meanwhile has no room.
    if (draft.tokens.length === count || draft.room === 0 || most <= 0) return undefined;
    const { contextLength, vocabSize } = this.#runner;
    const start = reading.tokens.length;
    const length = tokens.length + draft.tokens.length;
    const end = Math.min(length, start + most);
    if (end > contextLength || !reading.table.reserve(end)) return undefined;
    const draftTokens = draft.tokens.slice(Math.max(0, start - tokens.length));
    const ids = [...tokens.view(start), ...draftTokens].slice(0, end - start);
    const outputs = end < length
      ? []
      : [{ ...fitRequest(next(), vocabSize), row: end - start - 1 }];
    return { table: reading.table, tokens: ids, start, outputs };
  }
}
