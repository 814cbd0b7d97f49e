import type { Drafter, DraftPath, Proposal, Prospect } from "../../src/engine/speculation/draft.ts";
import type { ModelDrafter, TreeShape } from "../../src/engine/speculation/model_drafter.ts";
import type { TokenList } from "../../src/engine/token_list.ts";
import type { Random } from "./random.ts";

export interface OracleOptions {
  readonly random: Random;
  /** Returns the known continuation of a text, up to `most` tokens. */
  readonly answer: (text: Int32Array, most: number) => ArrayLike<number>;
  /** Probability that a draft token is the token of the answer. */
  readonly hitRate: number;
  readonly vocabSize: number;
}

/** A drafter that knows the continuation of texts and is wrong at a given rate. */
export class OracleDrafter implements Drafter {
  readonly #options: OracleOptions;

  constructor(options: OracleOptions) {
    this.#options = options;
  }

  propose(tokens: TokenList, most: number): Proposal {
    const answer = this.#options.answer(tokens.view(0), most);
    const drafted = Array.from({ length: most }, (_, i) => this.#draft(answer[i]));
    return { tokens: drafted, odds: drafted.map((_, i) => 0.99 ** (i + 1)) };
  }

  #draft(right: number | undefined): number {
    const { random, hitRate, vocabSize } = this.#options;
    if (right !== undefined && random.chance(hitRate)) return right;
    const any = random.int(0, vocabSize - 2);
    return right !== undefined && any >= right ? any + 1 : any;
  }
}

/**
 * A head that knows the continuation of texts. Its first choices are right at a given rate. In a
 * tree, there is a branch with a wrong token next to each, and one with the right token.
 */
export class OracleHead implements ModelDrafter {
  /** Number of branches drafted so far. */
  branches = 0;
  readonly #options: OracleOptions;

  constructor(options: OracleOptions) {
    this.#options = options;
  }

  rate(): number {
    return 0.99;
  }

  cost(): number {
    return 0;
  }

  lag(): number {
    return 0;
  }

  draft(
    prospects: readonly Prospect[],
    counts: readonly number[],
    tree?: TreeShape,
  ): Promise<void> {
    for (const [i, prospect] of prospects.entries()) {
      const count = counts[i]!;
      const answer = Array.from(this.#options.answer(prospect.tokens.view(0), count));
      this.#grow(prospect, prospect.draft, answer, count, tree);
    }
    return Promise.resolve();
  }

  /** Continues a path at random, with branches for the right token and for wrong ones. */
  #grow(
    prospect: Prospect,
    path: DraftPath,
    answer: readonly number[],
    count: number,
    tree: TreeShape | undefined,
  ): void {
    const { random, hitRate, vocabSize } = this.#options;
    const any = () => random.int(0, vocabSize - 1);
    while (path.depth < count) {
      const from = path.depth;
      const isRight = path.tokens.every((token, i) => token === answer[i]);
      const right = isRight ? answer[from] : undefined;
      const first = right !== undefined && random.chance(hitRate) ? right : any();
      if (!path.add(first)) return;
      const others = random.chance(0.5) ? [any(), right ?? any()] : [right ?? any(), any()];
      for (const token of new Set(others)) {
        if (token === first || tree === undefined || !tree.takeRow(0.5)) continue;
        const branch = prospect.branch?.(path, from, token);
        if (branch === undefined) continue;
        this.branches++;
        this.#grow(prospect, branch, answer, count, tree);
      }
    }
  }

  cancel(): void {}

  forget(): void {}
}
