/**
 * Dialects: the ways in which models write reasoning, content and tool calls, and their readers.
 */
import type { GenerateOptions } from "../../engine/request/options.ts";
import type { ChatMessage } from "../../tokenizer/chat_template.ts";
import type { ToolUse } from "./tools.ts";

/** A request for answers in a conversation. */
export interface ChatRequest {
  readonly messages: readonly ChatMessage[];
  readonly options: GenerateOptions;
  readonly use: ToolUse | undefined;
}

/** Generation options and text reader for the answers to one request. */
export interface Dialect {
  /** Options of the generation, in place of the request's. */
  readonly options: GenerateOptions;
  /** Returns a reader for one answer. @param prompt tokens before the answer */
  newReader(prompt: ArrayLike<number>): PartReader;
}

/** A part of an answer. */
export type Part =
  | { readonly kind: "reasoning"; readonly text: string }
  | { readonly kind: "content"; readonly text: string }
  /** A call begins. */
  | { readonly kind: "call"; readonly name: string }
  /** Next piece of the last call's arguments. All pieces together are JSON. */
  | { readonly kind: "arguments"; readonly text: string }
  /** The last call is complete. */
  | { readonly kind: "called" };

/** Splits the text of an answer into parts as the text arrives. */
export interface PartReader {
  /** Returns the parts that are certain after `text`. */
  push(text: string): Part[];
  /** Returns the parts held back, at the end of the text. */
  end(): Part[];
}

/** Reads the text after the mark of a call. */
export interface CallBody extends PartReader {
  /**
   * `open` while text is missing, `ended` if the calls are complete, `broken` if the text is not a
   * call.
   */
  readonly state: "open" | "ended" | "broken";
  /** Text read without a part. It is content if no call follows. */
  readonly unreported: string;
  /** Text after the body, once it is not open. */
  readonly rest: string;
}

/** Returns the length of the longest suffix of a text that may be the beginning of a marker. */
export function heldLength(text: string, markers: readonly string[]): number {
  const longest = Math.max(0, ...markers.map((marker) => marker.length - 1));
  for (let length = Math.min(longest, text.length); length > 0; length--) {
    const end = text.slice(text.length - length);
    if (markers.some((marker) => marker.startsWith(end))) return length;
  }
  return 0;
}
