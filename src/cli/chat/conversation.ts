import { ForgeError } from "../../errors.ts";
import type { ChatMessage } from "../../mod.ts";

/** What has been said: a system message where there is one, then a user and an assistant in turns. */
export class Conversation {
  system: string | undefined;
  #turns: ChatMessage[] = [];

  constructor(system: string | undefined) {
    this.system = system;
  }

  /** Every message, the system's first. */
  get messages(): ChatMessage[] {
    const { system } = this;
    return system === undefined
      ? [...this.#turns]
      : [{ role: "system", content: system }, ...this.#turns];
  }

  /** How many questions were answered. */
  get length(): number {
    return Math.floor(this.#turns.length / 2);
  }

  ask(content: string): void {
    this.#turns.push({ role: "user", content });
  }

  answer(content: string): void {
    this.#turns.push({ role: "assistant", content });
  }

  /** Takes back a question that was not answered. */
  takeBack(): void {
    this.#turns.length = 2 * this.length;
  }

  /**
   * Takes back the last question and its answer.
   *
   * @returns the question
   * @throws {ForgeError} `usage` when there is none
   */
  undo(): string {
    const question = this.#turns.at(-2);
    if (question === undefined) throw new ForgeError("usage", "nothing has been said yet");
    this.#turns.length -= 2;
    return question.content;
  }

  /** Forgets the oldest question and its answer. */
  forgetOldest(): void {
    this.#turns.splice(0, 2);
  }

  /** Forgets everything but the system message. */
  reset(): void {
    this.#turns = [];
  }

  /**
   * Goes on with another conversation.
   *
   * @throws {ForgeError} `bad_input` when its messages are not in turns
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
        `messages[${place}] is of ${JSON.stringify(role)} where "${expected}" has its turn`,
      );
    }
    if (turns.length % 2 !== 0) {
      throw new ForgeError("bad_input", "the last message is not an assistant's");
    }
    this.system = first?.role === "system" ? first.content : undefined;
    this.#turns = [...turns];
  }
}
