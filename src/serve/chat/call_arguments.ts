import { JsonText } from "./json_text.ts";
import type { Part } from "./part_reader.ts";

/** Reads the arguments of a call whose name is known, as they are written. What is no object is content. */
export class CallArguments {
  readonly #name: string;
  readonly #json = new JsonText();
  #state: "before" | "inside" | "behind" | "content" = "before";
  /** White space that is not told yet. */
  #gap = "";

  constructor(name: string) {
    this.#name = name;
  }

  push(text: string): Part[] {
    const parts: Part[] = [];
    let at = 0;
    if (this.#state === "before") {
      at = text.length - text.trimStart().length;
      this.#gap += text.slice(0, at);
      if (at === text.length) return parts;
      this.#state = text[at] === "{" ? "inside" : "content";
      if (this.#state === "inside") parts.push({ kind: "call", name: this.#name });
    }
    let written = "";
    for (; at < text.length && this.#state === "inside"; at++) {
      if (this.#json.take(text[at]!)) written += text[at];
      if (this.#json.isEnded) this.#state = "behind";
    }
    if (written !== "") parts.push({ kind: "arguments", text: written });
    if (written !== "" && this.#state === "behind") {
      parts.push({ kind: "called" });
      this.#gap = "";
    }
    this.#tellRest(text.slice(at), parts);
    return parts;
  }

  /** What is not told when the message ends. */
  end(): Part[] {
    return this.#state === "before" && this.#gap !== ""
      ? [{ kind: "content", text: this.#gap }]
      : [];
  }

  /** White space behind the object says nothing; what else there is, is content. */
  #tellRest(text: string, parts: Part[]): void {
    const rest = this.#gap + text;
    if (this.#state === "inside" || (this.#state === "behind" && rest.trim() === "")) {
      this.#gap = this.#state === "behind" ? rest : "";
      return;
    }
    this.#state = "content";
    this.#gap = "";
    if (rest !== "") parts.push({ kind: "content", text: rest });
  }
}
