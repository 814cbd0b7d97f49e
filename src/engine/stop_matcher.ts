/**
 * Finds stop strings in text that arrives in pieces. It holds back no more than the longest suffix
 * that may still become a stop string.
 */
export class StopMatcher {
  readonly #stops: readonly string[];
  #held = "";

  /** @param stops strings that end the text; empty ones are ignored */
  constructor(stops: readonly string[]) {
    this.#stops = stops.filter((stop) => stop !== "");
  }

  /** The text that is now certain, and whether a stop string follows it. */
  push(piece: string): { readonly text: string; readonly stopped: boolean } {
    const text = this.#held + piece;
    const found = this.#stops.map((stop) => text.indexOf(stop)).filter((at) => at >= 0);
    if (found.length > 0) {
      this.#held = "";
      return { text: text.slice(0, Math.min(...found)), stopped: true };
    }
    const held = this.#heldLength(text);
    this.#held = text.slice(text.length - held);
    return { text: text.slice(0, text.length - held), stopped: false };
  }

  /** What was held back, at the end of the text. */
  flush(): string {
    const text = this.#held;
    this.#held = "";
    return text;
  }

  /** The length of the longest suffix of `text` that a stop string starts with. */
  #heldLength(text: string): number {
    const longest = Math.max(0, ...this.#stops.map((stop) => stop.length - 1));
    for (let length = Math.min(longest, text.length); length > 0; length--) {
      const suffix = text.slice(text.length - length);
      if (this.#stops.some((stop) => stop.startsWith(suffix))) return length;
    }
    return 0;
  }
}
