const MAX_QUOTED_CHARACTERS = 120;

/**
 * Puts untrusted text into an error message: in double quotes, with control characters escaped so
 * that the message stays on one line, and shortened in the middle when it is long.
 */
export function quote(text: string): string {
  let shown = text;
  if (text.length > MAX_QUOTED_CHARACTERS) {
    const half = MAX_QUOTED_CHARACTERS / 2;
    shown = `${text.slice(0, half)}…${text.slice(-half)}`;
  }
  return JSON.stringify(shown);
}

/** Lists names for an error message, at most `limit` of them. */
export function quoteList(names: readonly string[], limit = 8): string {
  const shown = names.slice(0, limit).map(quote).join(", ");
  return names.length > limit ? `${shown} and ${names.length - limit} more` : shown;
}
