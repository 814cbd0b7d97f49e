import type { Tokenizer } from "./tokenizer.ts";

/** How a `StreamDecoder` begins. */
export interface StreamDecoderOptions {
  /**
   * Take one space off the start, which SentencePiece vocabularies put before the first word of a
   * text. Right where the ids are a whole text; wrong where they continue a prompt.
   *
   * @default false
   */
  readonly stripLeadingSpace?: boolean;
  /** Control tokens whose names are text; others add nothing. @default none */
  readonly shownTokens?: ReadonlySet<number>;
}

/**
 * Turns ids into text one at a time. A character whose bytes are spread over several tokens is held
 * back until it is whole.
 */
export class StreamDecoder {
  readonly #tokenizer: Tokenizer;
  readonly #utf8 = new TextDecoder("utf-8", { ignoreBOM: true });
  readonly #shown: ReadonlySet<number> | undefined;
  #stripsSpace: boolean;

  /** Begins a text. */
  constructor(tokenizer: Tokenizer, options: StreamDecoderOptions = {}) {
    this.#tokenizer = tokenizer;
    this.#stripsSpace = options.stripLeadingSpace ?? false;
    this.#shown = options.shownTokens;
  }

  /**
   * The text that is certain once `id` is known; often "" in the middle of a character.
   *
   * @throws ForgeError `bad_input` for an id outside the vocabulary
   */
  push(id: number): string {
    return this.#strip(this.#utf8.decode(this.#bytesOf(id), { stream: true }));
  }

  /** What was held back: U+FFFD for an unfinished character, else "". The decoder starts anew. */
  flush(): string {
    return this.#strip(this.#utf8.decode());
  }

  #bytesOf(id: number): Uint8Array {
    const isNamed = this.#shown?.has(id) && this.#tokenizer.isSpecial(id);
    return isNamed
      ? new TextEncoder().encode(this.#tokenizer.tokenText(id))
      : this.#tokenizer.tokenBytes(id);
  }

  #strip(text: string): string {
    if (!this.#stripsSpace || text === "") return text;
    this.#stripsSpace = false;
    return text.startsWith(" ") ? text.slice(1) : text;
  }
}
