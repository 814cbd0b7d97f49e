/** Finds the end of a JSON text, object or list that comes a character at a time; what is in it may be anything. */
export class JsonText {
  #depth = 0;
  #isInString = false;
  #isEscaped = false;

  /** Whether the last character ended it. */
  get isEnded(): boolean {
    return this.#depth === 0 && !this.#isInString;
  }

  /** Goes on by a character. @returns whether it says something: white space between parts does not */
  take(character: string): boolean {
    if (this.#isInString) {
      if (this.#isEscaped) this.#isEscaped = false;
      else if (character === "\\") this.#isEscaped = true;
      else if (character === '"') this.#isInString = false;
      return true;
    }
    if (character === '"') this.#isInString = true;
    else if (character === "{" || character === "[") this.#depth++;
    else if (character === "}" || character === "]") this.#depth--;
    return character.trim() !== "";
  }
}
