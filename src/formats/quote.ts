const MAX_QUOTED_CHARACTERS = 120;

/**
 * Characters that `JSON.stringify` does not escape and that must not reach a terminal: C1 controls,
 * bidirectional marks, line separators.
 */
const UNPRINTABLE = /[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]/gu;

/**
 * Quotes untrusted text for an error message: in double quotes, with control characters escaped so
 * that the message stays on one line, and shortened in the middle if it is long.
 */
export function quote(text: string): string {
  let shown = text;
  if (text.length > MAX_QUOTED_CHARACTERS) {
    const half = MAX_QUOTED_CHARACTERS / 2;
    shown = `${text.slice(0, half)}…${text.slice(-half)}`;
  }
  return JSON.stringify(shown).replace(UNPRINTABLE, (character) => {
    return `\\u{${character.codePointAt(0)?.toString(16)}}`;
  });
}

/** Quotes names for an error message, at most `limit` of them. */
export function quoteList(names: readonly string[], limit = 8): string {
  const shown = names.slice(0, limit).map(quote).join(", ");
  return names.length > limit ? `${shown} and ${names.length - limit} more` : shown;
}

/** Describes a value of any type for an error message: a text in quotes, others by kind. */
export function show(value: unknown): string {
  if (typeof value === "string") return quote(value);
  if (Array.isArray(value)) return "an array";
  if (typeof value === "function") return "a function";
  return typeof value === "object" && value !== null ? "an object" : String(value);
}
