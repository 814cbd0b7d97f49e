import { ForgeError } from "../../errors.ts";
import type { StepResult } from "../../backend.ts";
import type { PageTable } from "../cache/kv_pages.ts";
import type { Chunk, Runner } from "../runner.ts";
import type { TokenList } from "../token_list.ts";
import { DraftBranch, type DraftPath, type Prospect } from "./draft.ts";
import { type Choice, DraftRates, type ModelDrafter, type TreeShape } from "./model_drafter.ts";
import { ReducedVocabulary } from "./draft_vocabulary.ts";
import { StepCosts } from "./step_costs.ts";

/** Part of a runner that a head uses. */
type HeadRunner = Pick<
  Runner,
  "contextLength" | "vocabSize" | "draftTokens" | "draft" | "cancel"
>;

/** The first run of a step takes longer: it prepares weights. */
const UNMEASURED_RUNS = 1;

/** Choices at a position that may become leaves of a tree. */
const N_LEAVES = 3;

/** Path of a tree that is continued, and the odds of its last token. */
interface Tip {
  readonly path: DraftPath;
  readonly odds: number;
}

/** A token that may follow the first `from` tokens of a path. */
interface Candidate {
  readonly path: DraftPath;
  readonly from: number;
  readonly choice: Choice;
  /** Probability that it is accepted with all tokens before it. */
  readonly odds: number;
}

/** Text that gets draft tokens. */
interface Drafted {
  readonly prospect: Prospect;
  /** Number of draft tokens in a row. */
  readonly count: number;
  /** Paths to be continued. */
  tips: Tip[];
  /** Candidates that no path has taken. */
  readonly others: Candidate[];
  /** Choices at each position of the draft itself. */
  readonly choices: Choice[][];
}

/**
 * The model's own head for multi-token prediction. It reads the hidden states that the model keeps
 * in the pages of a sequence, and writes its own after them, which the model's next step replaces.
 * It samples with the same parameters, random number and mask as the model.
 *
 * In a tree, a text is continued by the likeliest tokens at each position, each path in pages of
 * its own. Tokens that are not continued may become leaves.
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

  secondRate(): number {
    return this.#rates.second.value;
  }

  /** Returns 0 before a measurement, so that the head is tried at once. */
  cost(texts: number): number {
    return this.#nRuns <= UNMEASURED_RUNS ? 0 : this.#costs.of(Math.max(1, texts));
  }

  /** Returns 0: every step of the model also computes the head's keys and values. */
  lag(): number {
    return 0;
  }

  async draft(
    prospects: readonly Prospect[],
    counts: readonly number[],
    asked?: TreeShape,
  ): Promise<void> {
    const tree = prospects.some(({ branch }) => branch !== undefined) ? asked : undefined;
    const drafted = prospects
      .map((prospect, i): Drafted => ({
        prospect,
        count: counts[i]!,
        tips: [{ path: prospect.draft, odds: 1 }],
        others: [],
        choices: [],
      }))
      .filter((text) => this.#canDraft(text));
    if (drafted.length === 0) return;
    const isMasked = drafted.some(({ prospect: { draft } }) => draft.mask() !== undefined);
    const width = tree?.width ?? 1;
    const nTop = tree === undefined ? 0 : Math.max(width, N_LEAVES);
    // A run of several steps takes no masks, and reads the tokens that it chose.
    if (isMasked || this.#vocabulary !== undefined || width > 1) {
      for (let open = drafted; open.length > 0;) open = await this.#draftNext(open, nTop, tree);
    } else {
      await this.#draftAll(drafted, nTop);
    }
    if (tree?.width === 1) addLeaves(drafted, tree);
    for (const { prospect: { tokens, draft }, choices } of drafted) {
      this.#rates.made(tokens, draft.tokens, choices);
    }
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

  /** Drafts chains in one run: each step takes the tokens that the previous one chose. */
  async #draftAll(drafted: readonly Drafted[], nTop: number): Promise<void> {
    const nSteps = Math.max(...drafted.map(({ count }) => count));
    const fewest = Math.min(...drafted.map(({ count }) => count));
    // Texts with pages for fewer tokens end the common run.
    const fits = drafted.every(({ prospect: { tokens, table } }) =>
      tokens.length + nSteps <= this.#runner.contextLength && table.reserve(tokens.length + nSteps)
    );
    const chunks = drafted.map(({ prospect }) => this.#nextChunk(prospect, prospect.draft, nTop));
    const results = await this.#run(chunks, fits ? nSteps : fewest);
    for (const [i, text] of drafted.entries()) {
      for (const result of results[i]!.slice(0, text.count)) {
        this.#continue(text, [result], undefined);
      }
    }
  }

  /** Drafts one more token for each path. Returns the texts that need more. */
  async #draftNext(
    open: readonly Drafted[],
    nTop: number,
    tree: TreeShape | undefined,
  ): Promise<Drafted[]> {
    const needsMore = ({ prospect: { draft }, count, tips }: Drafted) =>
      tips.length > 0 && tips[0]!.path.depth < count && draft.limit > tips[0]!.path.depth;
    const unfinished = open.filter(needsMore);
    if (unfinished.length === 0) return [];
    const chunks = unfinished.flatMap(({ prospect, tips }) =>
      tips.map(({ path }) => this.#nextChunk(prospect, path, nTop))
    );
    const results = (await this.#run(chunks, 1)).flat();
    let next = 0;
    for (const text of unfinished) {
      this.#continue(text, results.slice(next, next += text.tips.length), tree);
    }
    return unfinished;
  }

  /** Continues the paths of a text by the likeliest tokens of their results. */
  #continue(text: Drafted, results: readonly StepResult[], tree: TreeShape | undefined): void {
    const { prospect, tips, others, choices } = text;
    const { draft, branch, tokens } = prospect;
    text.tips = [];
    // The text may have ended during the run; its branches have no pages then.
    if (draft.limit === 0) return;
    const candidates = tips.flatMap(({ path, odds }, i): Candidate[] => {
      const own = choicesOf(results[i]!);
      if (path === draft) choices.push(own);
      const from = path.depth;
      return own.map((choice) => {
        return { path, from, choice, odds: odds * this.#rates.choices.of(choice).value };
      });
    });
    const width = tree?.width ?? 1;
    if (width > 1) candidates.sort((a, b) => b.odds - a.odds);
    const next = text.tips;
    for (const candidate of candidates) {
      const { path, from, choice: { token }, odds } = candidate;
      if (next.length === width) {
        others.push(candidate);
      } else if (path.depth === from) {
        const fits = tableOf(prospect, path).reserve(tokens.length + from + 1);
        if (fits && path.add(token)) next.push({ path, odds });
        else if (width === 1) break;
      } else if (tree!.takeRow(odds)) {
        const added = branch?.(path, from, token);
        if (added !== undefined) next.push({ path: added, odds });
      }
    }
  }

  async #run(chunks: readonly Chunk[], nSteps: number) {
    const start = performance.now();
    const results = await this.#runner.draft(chunks, nSteps);
    if (++this.#nRuns > UNMEASURED_RUNS) {
      this.#costs.measure(chunks.length, (performance.now() - start) / nSteps);
    }
    return this.#vocabulary?.results(results) ?? results;
  }

  /** Returns the last token of a path, from which the head drafts the next one. */
  #nextChunk(prospect: Prospect, path: DraftPath, nTop: number): Chunk {
    const { tokens, next } = prospect;
    const last = path.tokens.at(-1) ?? tokens.at(tokens.length - 1)!;
    const request = next(path);
    const sampled = this.#vocabulary?.request(request) ?? request;
    return {
      table: tableOf(prospect, path),
      tokens: [last],
      start: tokens.length + path.depth - 1,
      outputs: [{ ...sampled, nTop, row: 0 }],
      adapterScales: tokens.adapters?.scales,
    };
  }
}

/** Returns the pages that hold the tokens of a path. */
function tableOf({ table }: Prospect, path: DraftPath): PageTable {
  return path instanceof DraftBranch ? path.table : table;
}

/** Returns the sampled token, and the most probable other ones. */
function choicesOf(result: StepResult): Choice[] {
  if (result instanceof ForgeError) return [];
  return [result, ...result.top.filter(({ token }) => token !== result.token)].map(
    ({ token, logprob }, i) => ({ token, probability: Math.exp(logprob), isFirst: i === 0 }),
  );
}

/** Adds candidates that no path has taken as leaves, the likeliest first, while rows pay. */
function addLeaves(drafted: readonly Drafted[], { takeRow }: TreeShape): void {
  const candidates = drafted.flatMap(({ prospect: { branch }, others }) =>
    others.map((candidate) => ({ ...candidate, branch }))
  );
  candidates.sort((a, b) => b.odds - a.odds);
  for (const { path, from, choice: { token }, odds, branch } of candidates) {
    if (branch === undefined) continue;
    if (!takeRow(odds)) return;
    branch(path, from, token);
  }
}
