import { ForgeError } from "../../errors.ts";
import type { PageTable } from "../cache/kv_pages.ts";
import type { Chunk, Runner } from "../runner.ts";
import { commonLength, TokenList } from "../token_list.ts";
import type { Prospect } from "./draft.ts";
import { HitRate } from "./hit_rates.ts";
import { StepCosts } from "./step_costs.ts";
import type { OutputRequest } from "../../backend.ts";

/** How often the guesses of a draft model are expected to come true before anything was seen. */
const EXPECTED = 0.7;

/** What a draft model needs of a runner. */
export type DraftRunner = Pick<
  Runner,
  "contextLength" | "vocabSize" | "limits" | "newSequence" | "run" | "cancel"
>;

/** What the draft model has computed of one text. */
interface Reading {
  readonly table: PageTable;
  /** The tokens whose keys and values are in the pages, guesses among them. */
  readonly tokens: TokenList;
  readonly rate: HitRate;
  /** Guesses that were made, and where; to be compared with what came. */
  made: { readonly at: number; readonly guesses: readonly number[] } | undefined;
}

/** A text with the guesses that it is to have. */
interface Followed {
  readonly prospect: Prospect;
  readonly reading: Reading;
  readonly count: number;
}

/**
 * A smaller model of the same vocabulary, which guesses by drawing as the large one will: with the same
 * parameters, random number and mask. It follows each text in keys and values of its own; where its
 * pages do not suffice, a text goes on without guesses.
 */
export class DraftModel {
  readonly #runner: DraftRunner;
  readonly #readings = new Map<TokenList, Reading>();
  readonly #rate = new HitRate(EXPECTED);
  readonly #costs = new StepCosts();

  constructor(runner: DraftRunner) {
    this.#runner = runner;
  }

  /** How often its guesses for a text come true; takes note of what became of the last ones. */
  rate(tokens: TokenList): number {
    const reading = this.#readings.get(tokens);
    if (reading === undefined) return this.#rate.value;
    if (reading.made !== undefined && reading.made.at < tokens.length) {
      const { at, guesses } = reading.made;
      const right = commonLength(Int32Array.from(guesses), tokens.view(at));
      for (let i = 0; i < right; i++) reading.rate.note(true);
      // What lies behind the end of the text is not known.
      if (right < guesses.length && at + right < tokens.length) reading.rate.note(false);
      reading.made = undefined;
    }
    return reading.rate.value;
  }

  /** Milliseconds that one guess for each of some texts takes; about one before it was measured. */
  cost(texts: number): number {
    return this.#costs.of(Math.max(1, texts));
  }

  /** How many tokens of a text it has not computed yet. */
  lag(tokens: TokenList): number {
    return tokens.length - (this.#readings.get(tokens)?.tokens.length ?? 0);
  }

  /**
   * Adds guesses to drafts, one after another for all of them at once. A text that is new or was left
   * alone is caught up with first, in chunks, and has no guesses until that is done.
   *
   * @param counts how many guesses each is to have
   */
  async draft(prospects: readonly Prospect[], counts: readonly number[]): Promise<void> {
    const followed = prospects.flatMap((prospect, i) => {
      const reading = counts[i]! > 0 ? this.#follow(prospect.tokens) : undefined;
      return reading === undefined ? [] : [{ prospect, reading, count: counts[i]! }];
    });
    for (let open: readonly Followed[] = followed; open.length > 0;) open = await this.#guess(open);
    for (const { prospect: { tokens, draft }, reading } of followed) {
      reading.made = { at: tokens.length, guesses: [...draft.tokens] };
    }
  }

  /** Makes the run in progress stop early; without one, does nothing. */
  cancel(): void {
    this.#runner.cancel();
  }

  /** Frees what is held for a text. */
  forget(tokens: TokenList): void {
    this.#readings.get(tokens)?.table.release();
    this.#readings.delete(tokens);
  }

  /** Makes one more guess for each of some texts. Which of them go on. */
  async #guess(open: readonly Followed[]): Promise<Followed[]> {
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
      // Where the text is not caught up with, or its mask cannot be met, there is no guess.
      if (result === undefined || result instanceof ForgeError) return [];
      const { draft } = text.prospect;
      return draft.add(result.token) && draft.tokens.length < text.count ? [text] : [];
    });
  }

  /** What is computed of a text; nothing where its tokens or its length are beyond the model. */
  #follow(tokens: TokenList): Reading | undefined {
    const { contextLength, vocabSize } = this.#runner;
    let reading = this.#readings.get(tokens);
    if (reading === undefined) {
      const table = this.#runner.newSequence();
      const rate = new HitRate(this.#rate);
      reading = { table, tokens: new TokenList([]), rate, made: undefined };
      this.#readings.set(tokens, reading);
    }
    const known = tokens.view(0);
    // The last token is computed in any case: what follows it is drawn from its output.
    reading.tokens.truncate(commonLength(reading.tokens.view(0), known.subarray(0, -1)));
    const isBeyond = tokens.length >= contextLength ||
      known.subarray(reading.tokens.length).some((id) => id >= vocabSize);
    return isBeyond ? undefined : reading;
  }

  /** What is to be computed next of a text and its guesses, at most `most` tokens. */
  #nextChunk({ prospect, reading, count }: Followed, most: number): Chunk | undefined {
    const { tokens, draft, next } = prospect;
    // What a constraint leaves no choice about need not be drawn.
    while (draft.forced !== undefined && draft.tokens.length < count && draft.add(draft.forced));
    // There is no room in the draft of a text that has ended since the last guess.
    if (draft.tokens.length === count || draft.room === 0 || most <= 0) return undefined;
    const { contextLength, vocabSize } = this.#runner;
    const start = reading.tokens.length;
    const length = tokens.length + draft.tokens.length;
    const end = Math.min(length, start + most);
    if (end > contextLength || !reading.table.reserve(end)) return undefined;
    const guesses = draft.tokens.slice(Math.max(0, start - tokens.length));
    const ids = [...tokens.view(start), ...guesses].slice(0, end - start);
    const outputs = end < length
      ? []
      : [{ ...fitRequest(next(), vocabSize), row: end - start - 1 }];
    return { table: reading.table, tokens: ids, start, outputs };
  }
}

/**
 * What is asked of a model about its next token, asked of another one whose vocabulary is padded to
 * another size. Tokens that it does not have are left out.
 */
export function fitRequest(request: OutputRequest, vocabSize: number): OutputRequest {
  const { sampling, history, fillMask } = request;
  const { bias, mask } = sampling;
  const has = (token: number) => token < vocabSize;
  const fitting = {
    ...request,
    nTop: 0,
    history: Int32Array.from(history).filter(has),
    sampling: { ...sampling, bias: bias && new Map([...bias].filter(([token]) => has(token))) },
  };
  if (mask === undefined) return fitting;
  const words = new Uint32Array(Math.ceil(vocabSize / 32));
  const copy = () => {
    words.set(mask.subarray(0, words.length));
    const beyond = vocabSize % 32;
    if (beyond > 0) words[words.length - 1]! &= 2 ** beyond - 1;
  };
  if (fillMask === undefined) copy();
  return {
    ...fitting,
    sampling: { ...fitting.sampling, mask: words },
    fillMask: fillMask && (() => {
      fillMask();
      copy();
    }),
  };
}
