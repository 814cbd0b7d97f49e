import type { CharSet } from "./char_set.ts";

/** A parsed regular expression; groups are gone, lazy repeats match what greedy ones do. */
export type Regex =
  | { readonly kind: "set"; readonly set: CharSet }
  /** `^` or `$`: the beginning or the end of the text. */
  | { readonly kind: "edge"; readonly at: "start" | "end" }
  | { readonly kind: "sequence"; readonly items: readonly Regex[] }
  | { readonly kind: "choice"; readonly options: readonly Regex[] }
  | {
    readonly kind: "repeat";
    readonly body: Regex;
    readonly min: number;
    /** `Infinity` where there is no limit. */
    readonly max: number;
  };

/** One after another; nothing for none. */
export function sequence(...items: Regex[]): Regex {
  return items.length === 1 ? items[0]! : { kind: "sequence", items };
}

/** Any of them; no text at all for none. */
export function choice(...options: Regex[]): Regex {
  return options.length === 1 ? options[0]! : { kind: "choice", options };
}

/** From `min` to `max` times, `Infinity` for any number. */
export function repeat(body: Regex, min: number, max: number): Regex {
  return { kind: "repeat", body, min, max };
}

/** One character of a set. */
export function set(chars: CharSet): Regex {
  return { kind: "set", set: chars };
}
