/** Answers as a list of blocks, as `/v1/responses` and `/v1/messages` have them. */
import type { GenerationEnd, Piece } from "../../engine/generation/request.ts";
import type { Part, PartReader } from "./dialect.ts";

/** Reasoning, a text, or a tool call. */
export interface Block {
  readonly kind: "reasoning" | "text" | "call";
  /** Name of the called function; empty for other blocks. */
  readonly name: string;
  /** The text so far; of a call, its arguments as JSON. */
  text: string;
  /** Random letters and digits that name the block: a {@linkcode newCallId} for a call. */
  readonly id: string;
}

/**
 * Returns nine random letters and digits, the only form that templates of Mistral's models accept.
 */
export function newCallId(): string {
  return crypto.randomUUID().replaceAll("-", "").slice(0, 9);
}

/** A change of the last block. */
export type BlockEvent =
  & { readonly index: number; readonly block: Block }
  & (
    | { readonly kind: "open" }
    | { readonly kind: "delta"; readonly text: string; readonly piece: Piece }
    | { readonly kind: "close" }
  );

/** The blocks of one answer, as its pieces arrive. */
export class Blocks {
  readonly all: Block[] = [];
  /** End of the generation; `undefined` before it. */
  end: GenerationEnd | undefined;
  /** Number of tokens of reasoning. */
  reasoningTokens = 0;
  readonly #reader: PartReader;
  #isOpen = false;
  #cut: Block | undefined;

  /** @param reader reads the generated text */
  constructor(reader: PartReader) {
    this.#reader = reader;
  }

  /** The last block if it was open at the end of the generation. */
  get cut(): Block | undefined {
    return this.#cut;
  }

  /** True if the answer ends with complete calls. */
  get endsInCalls(): boolean {
    return this.all.some(({ kind }) => kind === "call") && this.#cut?.kind !== "call";
  }

  /** Takes the next piece and returns the changes that it makes. */
  take(piece: Piece): BlockEvent[] {
    this.end = piece.end;
    const parts = this.#reader.push(piece.text);
    if (piece.end !== undefined) parts.push(...this.#reader.end());
    const events = parts.flatMap((part) => [...this.#add(part, piece)]);
    if (piece.token !== undefined && this.#isOpen && this.all.at(-1)!.kind === "reasoning") {
      this.reasoningTokens++;
    }
    if (piece.end !== undefined) {
      this.#cut = this.#isOpen ? this.all.at(-1) : undefined;
      events.push(...this.#close());
    }
    return events;
  }

  *#add(part: Part, piece: Piece): Generator<BlockEvent> {
    switch (part.kind) {
      case "reasoning":
      case "content": {
        const kind = part.kind === "content" ? "text" : "reasoning";
        if (!this.#isOpen || this.all.at(-1)!.kind !== kind) yield* this.#open(kind, "");
        yield this.#extend(part.text, piece);
        break;
      }
      case "call":
        yield* this.#open("call", part.name);
        break;
      case "arguments":
        yield this.#extend(part.text, piece);
        break;
      case "called":
        yield* this.#close();
    }
  }

  *#open(kind: Block["kind"], name: string): Generator<BlockEvent> {
    yield* this.#close();
    const id = kind === "call" ? newCallId() : crypto.randomUUID().replaceAll("-", "");
    const block = { kind, name, text: "", id };
    const index = this.all.push(block) - 1;
    this.#isOpen = true;
    yield { kind: "open", index, block };
  }

  #extend(text: string, piece: Piece): BlockEvent {
    const index = this.all.length - 1;
    const block = this.all[index]!;
    block.text += text;
    return { kind: "delta", index, block, text, piece };
  }

  *#close(): Generator<BlockEvent> {
    if (!this.#isOpen) return;
    this.#isOpen = false;
    const index = this.all.length - 1;
    yield { kind: "close", index, block: this.all[index]! };
  }
}
