import { ForgeError } from "../../errors.ts";
import type { Chunk, Runner } from "../runner.ts";
import type { TokenList } from "../token_list.ts";
import type { Prospect } from "./draft.ts";
import { DraftRates, type ModelDrafter } from "./model_drafter.ts";
import { ReducedVocabulary } from "./draft_vocabulary.ts";
import { StepCosts } from "./step_costs.ts";

/** Part of a runner that a head uses. */
type HeadRunner = Pick<Runner, "contextLength" | "vocabSize" | "draftTokens" | "draft" | "cancel">;

/** The first run of a step takes longer: it prepares weights. */
const UNMEASURED_RUNS = 1;

/** Text with the number of draft tokens it gets. */
interface Drafted {
  readonly prospect: Prospect;
  readonly count: number;
}

/**
 * The model's own head for multi-token prediction. It reads the hidden states that the model keeps
 * in the pages of a sequence, and writes its own after them, which the model's next step replaces.
 * It samples with the same parameters, random number and mask as the model.
 */
export class HeadDrafter implements ModelDrafter {
  readonly #runner: HeadRunner;
  readonly #rates = new DraftRates();
  readonly #costs = new StepCosts();
  readonly #vocabulary: ReducedVocabulary | undefined;
  #nRuns = 0;

  constructor(runner: HeadRunner) {
    this.#runner = runner;
    const { draftTokens, vocabSize } = runner;
    this.#vocabulary = draftTokens && new ReducedVocabulary(draftTokens, vocabSize);
  }

  rate(tokens: TokenList): number {
    return this.#rates.of(tokens);
  }

  /** Returns 0 before a measurement, so that the head is tried at once. */
  cost(texts: number): number {
    return this.#nRuns <= UNMEASURED_RUNS ? 0 : this.#costs.of(Math.max(1, texts));
  }

  /** Returns 0: every step of the model also computes the head's keys and values. */
  lag(): number {
    return 0;
  }

  async draft(prospects: readonly Prospect[], counts: readonly number[]): Promise<void> {
    const drafted = prospects
      .map((prospect, i) => ({ prospect, count: counts[i]! }))
      .filter((text) => this.#canDraft(text));
    const isMasked = drafted.some(({ prospect: { draft } }) => draft.mask() !== undefined);
    // A run of several steps takes no masks, and reads the tokens that it chose.
    if (isMasked || this.#vocabulary !== undefined) {
      for (let open: readonly Drafted[] = drafted; open.length > 0;) {
        open = await this.#draftNext(open);
      }
    } else if (drafted.length > 0) {
      await this.#draftAll(drafted);
    }
    for (const { prospect: { tokens, draft } } of drafted) this.#rates.made(tokens, draft.tokens);
  }

  cancel(): void {
    this.#runner.cancel();
  }

  /** Does nothing: what is kept of a text is in its own pages. */
  forget(): void {}

  /** True if all tokens but the last are computed, and free pages hold the draft. */
  #canDraft({ prospect: { tokens, table, stored }, count }: Drafted): boolean {
    const end = tokens.length + count;
    return count > 0 && stored >= tokens.length - 1 && end <= this.#runner.contextLength &&
      table.reserve(end);
  }

  /** Drafts all tokens in one run: each step takes the tokens that the previous one chose. */
  async #draftAll(drafted: readonly Drafted[]): Promise<void> {
    const nSteps = Math.max(...drafted.map(({ count }) => count));
    const fewest = Math.min(...drafted.map(({ count }) => count));
    // Texts with pages for fewer tokens end the common run.
    const fits = drafted.every(({ prospect: { tokens, table } }) =>
      tokens.length + nSteps <= this.#runner.contextLength && table.reserve(tokens.length + nSteps)
    );
    const results = await this.#run(drafted, fits ? nSteps : fewest);
    for (const [i, { prospect: { draft }, count }] of drafted.entries()) {
      for (const result of results[i]!.slice(0, count)) {
        if (result instanceof ForgeError || !draft.add(result.token)) break;
      }
    }
  }

  /** Drafts one more token for each text. Returns the texts that need more. */
  async #draftNext(open: readonly Drafted[]): Promise<Drafted[]> {
    const unfinished = open.filter(({ prospect: { draft }, count }) =>
      draft.tokens.length < count && draft.room > 0
    );
    if (unfinished.length === 0) return [];
    const results = await this.#run(unfinished, 1);
    return unfinished.filter(({ prospect: { draft } }, i) => {
      const result = results[i]![0];
      return result !== undefined && !(result instanceof ForgeError) && draft.add(result.token);
    });
  }

  async #run(texts: readonly Drafted[], nSteps: number) {
    const start = performance.now();
    const results = await this.#runner.draft(
      texts.map((text) => nextChunk(text, this.#vocabulary)),
      nSteps,
    );
    if (++this.#nRuns > UNMEASURED_RUNS) {
      this.#costs.measure(texts.length, (performance.now() - start) / nSteps);
    }
    return this.#vocabulary?.results(results) ?? results;
  }
}

/** Returns the last token of a text and its draft. */
function nextChunk(
  { prospect: { tokens, draft, table, next } }: Drafted,
  vocabulary: ReducedVocabulary | undefined,
): Chunk {
  const last = draft.tokens.at(-1) ?? tokens.at(tokens.length - 1)!;
  const start = tokens.length + draft.tokens.length - 1;
  const request = { ...next(), nTop: 0, row: 0 };
  const outputs = [vocabulary?.request(request) ?? request];
  return { table, tokens: [last], start, outputs, adapterScales: tokens.adapters?.scales };
}
