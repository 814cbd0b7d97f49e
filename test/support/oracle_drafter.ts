import type { Drafter, Proposal } from "../../src/engine/speculation/draft.ts";
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
