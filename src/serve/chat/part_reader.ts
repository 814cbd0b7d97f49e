/**
 * The longest end of a text that may still become one of some markers, so that it has to be held back
 * until more is known.
 *
 * @returns its length
 */
export function heldLength(text: string, markers: readonly string[]): number {
  const longest = Math.max(0, ...markers.map((marker) => marker.length - 1));
  for (let length = Math.min(longest, text.length); length > 0; length--) {
    const end = text.slice(text.length - length);
    if (markers.some((marker) => marker.startsWith(end))) return length;
  }
  return 0;
}

/** A part of an answer, as a client is told of it. */
export type Part =
  | { readonly kind: "reasoning"; readonly text: string }
  | { readonly kind: "content"; readonly text: string }
  /** A call begins. */
  | { readonly kind: "call"; readonly name: string }
  /** The arguments of the last call go on: JSON, all pieces together. */
  | { readonly kind: "arguments"; readonly text: string }
  /** The last call is complete. */
  | { readonly kind: "called" };

/** Takes the text of an answer as it comes and says what its parts are. */
export interface PartReader {
  /** What is certain once `text` is known. */
  push(text: string): Part[];
  /** What was held back, at the end of the text. */
  end(): Part[];
}

/** Reads what stands behind the mark of a call. */
export interface CallBody extends PartReader {
  /** Whether there is more to come, its calls are complete, or the text is no call, or none any more. */
  readonly state: "open" | "ended" | "broken";
  /** What was read and not told: content, where no call comes of it. */
  readonly unsaid: string;
  /** What was not read, of a body that is not open. */
  readonly rest: string;
}
