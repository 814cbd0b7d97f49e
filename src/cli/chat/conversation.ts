import { ForgeError } from "../../errors.ts";
import { quote } from "../../formats/quote.ts";
import type { ChatMessage } from "../../mod.ts";

/** A conversation: an optional system message, then messages of user and assistant alternately. */
export class Conversation {
  system: string | undefined;
  #turns: ChatMessage[] = [];

  constructor(system: string | undefined) {
    this.system = system;
  }

  /** All messages; the system message comes first. */
  get messages(): ChatMessage[] {
    const { system } = this;
    return system === undefined
      ? [...this.#turns]
      : [{ role: "system", content: system }, ...this.#turns];
  }

  /** Number of answered questions. */
  get length(): number {
    return Math.floor(this.#turns.length / 2);
  }

  ask(content: string): void {
    this.#turns.push({ role: "user", content });
  }

  answer(content: string): void {
    this.#turns.push({ role: "assistant", content });
  }

  /** Removes a question without an answer. */
  dropUnanswered(): void {
    this.#turns.length = 2 * this.length;
  }

  /**
   * Removes the last question and its answer.
   *
   * @returns the question
   * @throws {ForgeError} `usage` if the conversation is empty
   */
  undo(): string {
    const question = this.#turns.at(-2);
    if (question === undefined) throw new ForgeError("usage", "the conversation is empty");
    this.#turns.length -= 2;
    return question.content;
  }

  /** Removes the oldest question and its answer. */
  forgetOldest(): void {
    this.#turns.splice(0, 2);
  }

  /** Removes everything except the system message. */
  reset(): void {
    this.#turns = [];
  }

  /**
   * Continues another conversation.
   *
   * @throws {ForgeError} `bad_input` if its roles do not alternate
   */
  replace(messages: readonly ChatMessage[]): void {
    const [first] = messages;
    const turns = first?.role === "system" ? messages.slice(1) : messages;
    for (const [i, { role }] of turns.entries()) {
      const expected = i % 2 === 0 ? "user" : "assistant";
      if (role === expected) continue;
      const place = messages.length - turns.length + i;
      throw new ForgeError(
        "bad_input",
        `messages[${place}] has role ${quote(role)}; expected "${expected}"`,
      );
    }
    if (turns.length % 2 !== 0) {
      throw new ForgeError("bad_input", `the last message has role "user"; expected "assistant"`);
    }
    this.system = first?.role === "system" ? first.content : undefined;
    this.#turns = [...turns];
  }
}
