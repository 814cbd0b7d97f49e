import {
  BOOLEAN,
  checkArgument,
  checkOptions,
  type OptionCheck,
  type OptionChecks,
} from "../formats/arguments.ts";
import type { LeadingStrip, Tokenizer } from "./tokenizer.ts";

/** Options of a `StreamDecoder`. */
export interface StreamDecoderOptions {
  /**
   * True if the ids are a whole text, not the continuation of a prompt: removes the prefix that the
   * tokenizer adds to a text, such as the space of SentencePiece vocabularies.
   *
   * @default false
   */
  readonly startsText?: boolean;
  /** Control tokens that add their names to the text; others add nothing. @default none */
  readonly shownTokens?: ReadonlySet<number>;
}

const OPTIONS: OptionChecks<StreamDecoderOptions> = {
  startsText: BOOLEAN,
  shownTokens: { accepts: (value) => value instanceof Set, valid: "a Set of token ids" },
};

const TOKENIZER: OptionCheck = {
  accepts: (value) => typeof Object(value).tokenBytes === "function",
  valid: "a Tokenizer, such as a model's",
};

/**
 * Decodes ids one at a time. A character whose bytes are spread over several tokens is held back
 * until it is complete.
 */
export class StreamDecoder {
  readonly #tokenizer: Tokenizer;
  readonly #utf8 = new TextDecoder("utf-8", { ignoreBOM: true });
  readonly #shown: ReadonlySet<number> | undefined;
  /** True until the first piece of a whole text. */
  #isFirst: boolean;
  readonly #stripper: LeadingStripper;

  /** Begins a text. @throws {ForgeError} `usage` for an argument or option of the wrong type */
  constructor(tokenizer: Tokenizer, options: StreamDecoderOptions = {}) {
    checkArgument("the tokenizer", tokenizer, TOKENIZER);
    checkOptions("a StreamDecoder", options, OPTIONS);
    this.#tokenizer = tokenizer;
    this.#isFirst = options.startsText ?? false;
    this.#stripper = new LeadingStripper(this.#isFirst ? tokenizer.leadingStrip : undefined);
    this.#shown = options.shownTokens;
  }

  /**
   * Adds a token and returns the complete characters; "" in the middle of a character.
   *
   * @throws ForgeError `bad_input` for an id outside the vocabulary
   */
  push(id: number): string {
    return this.#stripper.push(this.#utf8.decode(this.#bytesOf(id), { stream: true }));
  }

  /** Returns U+FFFD for an incomplete character, else "", and resets the decoder. */
  flush(): string {
    return this.#stripper.push(this.#utf8.decode());
  }

  #bytesOf(id: number): Uint8Array {
    if (this.#tokenizer.isSpecial(id)) {
      const isNamed = this.#shown?.has(id) === true;
      if (isNamed) this.#isFirst = false;
      return new TextEncoder().encode(isNamed ? this.#tokenizer.tokenText(id) : "");
    }
    if (!this.#isFirst) return this.#tokenizer.tokenBytes(id);
    // Ids without a piece, which fill up a vocabulary, do not begin a text.
    this.#isFirst = this.#tokenizer.tokenText(id) === "";
    return this.#tokenizer.tokenBytes(id, true);
  }
}

/** Removes a {@linkcode LeadingStrip} from a text that arrives in parts. */
export class LeadingStripper {
  readonly #character: string;
  /** Number of characters still to remove; 0 once the text has begun. */
  #left: number;

  constructor(strip: LeadingStrip | undefined) {
    this.#character = strip?.character ?? "";
    this.#left = strip?.count ?? 0;
  }

  /** Returns the next part of the text without the characters to remove. */
  push(part: string): string {
    let start = 0;
    while (this.#left > 0 && part.startsWith(this.#character, start)) {
      start += this.#character.length;
      this.#left--;
    }
    if (start < part.length) this.#left = 0;
    return part.slice(start);
  }
}
