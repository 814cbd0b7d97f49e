/** Formatting of numbers and rows for the terminal. */
import { columnsOf, formatColumns } from "./terminal_text.ts";

/**
 * Formats bytes in the largest unit that keeps the number above 1, to three digits: `344 kB`,
 * `1.05 MB`.
 */
export function formatBytes(bytes: number): string {
  return scaled(bytes, ["B", "kB", "MB", "GB", "TB", "PB"]);
}

/** Formats a count in words: `260 thousand`, `7.62 billion`. */
export function formatCount(count: number): string {
  return scaled(count, ["", "thousand", "million", "billion", "trillion"]).trimEnd();
}

/** Formats tokens, time and rate: `12 tokens in 350 ms (34.3 per second)`. */
export function formatSpeed(tokens: number, milliseconds: number): string {
  const rate = milliseconds > 0 ? ` (${threeDigits(tokens / milliseconds * 1000)} per second)` : "";
  return `${plural(tokens, "token")} in ${formatDuration(milliseconds)}${rate}`;
}

/** Formats a duration: `350 ms`, `1.24 s`. */
export function formatDuration(milliseconds: number): string {
  return milliseconds < 999.5
    ? `${threeDigits(milliseconds)} ms`
    : `${threeDigits(milliseconds / 1000)} s`;
}

/** Formats a time: `0:05`, `12:34`, `3:00:00`. */
export function formatClock(seconds: number): string {
  const whole = Math.ceil(seconds);
  const [h, m, s] = [Math.floor(whole / 3600), Math.floor(whole / 60) % 60, whole % 60];
  const padded = (part: number) => String(part).padStart(2, "0");
  return h > 0 ? `${h}:${padded(m)}:${padded(s)}` : `${m}:${padded(s)}`;
}

/** Formats a count with its noun: `1 token`, `2 tokens`. */
export function plural(count: number, noun: string): string {
  return `${count} ${noun}${count === 1 ? "" : "s"}`;
}

/**
 * Formats rows with an aligned first column, within the width of the terminal they are written to.
 */
export function formatRows(
  rows: readonly (readonly [label: string, text: string])[],
  stream: typeof Deno.stdout | typeof Deno.stderr = Deno.stdout,
): string {
  return `${formatColumns(rows, { columns: columnsOf(stream) })}\n`;
}

function scaled(value: number, units: readonly string[]): string {
  let unit = 0;
  while (value >= 999.5 && unit + 1 < units.length) {
    value /= 1000;
    unit++;
  }
  return `${unit === 0 ? value : threeDigits(value)} ${units[unit]}`;
}

function threeDigits(value: number): string {
  return value >= 99.95 ? value.toFixed(0) : value >= 9.995 ? value.toFixed(1) : value.toFixed(2);
}

/** Escapes control characters of untrusted text, for a terminal and for one line. */
export function printable(text: string): string {
  return text.replace(
    /[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]/gu,
    (character) => `\\u{${character.codePointAt(0)!.toString(16)}}`,
  );
}
