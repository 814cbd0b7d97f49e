import { assert, assertEquals } from "@std/assert";
import { StopMatcher } from "../../../../src/engine/generation/stop_matcher.ts";
import { Random } from "../../../support/random.ts";

/** Returns the output of each piece, then "|" if a stop string was found, else the flushed rest. */
function stream(stops: readonly string[], pieces: readonly string[]): string[] {
  const matcher = new StopMatcher(stops);
  const out = pieces.map((piece) => matcher.push(piece));
  return [...out, matcher.stopped ? "|" : matcher.flush()];
}

Deno.test("without stop strings nothing is held back", () => {
  assertEquals(stream([], ["a", "b"]), ["a", "b", ""]);
  assertEquals(stream([""], ["a", "b"]), ["a", "b", ""]);
});

Deno.test("a stop string ends the text and is not part of it", () => {
  assertEquals(stream(["END"], ["one END two"]), ["one ", "|"]);
  assertEquals(stream(["END"], ["END"]), ["", "|"]);
  assertEquals(stream(["END"], ["a", "END", "more", "END"]), ["a", "", "", "", "|"]);
});

Deno.test("a stop string may span pieces", () => {
  assertEquals(stream(["END"], ["aE", "N", "D", "b"]), ["a", "", "", "", "|"]);
  assertEquals(stream(["\n\n"], ["a\n", "\nb"]), ["a", "", "|"]);
});

Deno.test("only a possible start of a stop string is held back", () => {
  assertEquals(stream(["END"], ["aEN", "x"]), ["a", "ENx", ""]);
  assertEquals(stream(["END"], ["EEN", "EN", "DD"]), ["E", "EN", "", "|"]);
  assertEquals(stream(["END"], ["EN"]), ["", "EN"]);
  assertEquals(stream(["aab"], ["aaa", "ab"]), ["a", "a", "|"]);
});

Deno.test("the stop string that ends first wins", () => {
  assertEquals(stream(["bcd", "ab"], ["abcd"]), ["", "|"]);
  assertEquals(stream(["abcd", "bc"], ["abcd"]), ["a", "|"]);
  assertEquals(stream(["abc", "bc"], ["abc"]), ["", "|"]);
});

/** Returns the text before the stop string that ends first; of several, the longest. */
function naive(stops: readonly string[], text: string): { text: string; stopped: boolean } {
  for (let end = 1; end <= text.length; end++) {
    const starts = stops.filter((stop) => text.slice(0, end).endsWith(stop)).map((s) =>
      end - s.length
    );
    if (starts.length > 0) return { text: text.slice(0, Math.min(...starts)), stopped: true };
  }
  return { text, stopped: false };
}

/** True if the held text is a proper prefix of a stop string. */
function isPrefixOfStop(stops: readonly string[], text: string): boolean {
  return stops.some((stop) => stop.length > text.length && stop.startsWith(text));
}

Deno.test("a text gives the same output however it is split", () => {
  const random = new Random("stop matcher");
  const word = (length: number) =>
    Array.from({ length }, () => random.pick(["a", "b", "c"])).join("");
  for (let round = 0; round < 3000; round++) {
    const stops = Array.from({ length: random.int(0, 3) }, () => word(random.int(1, 4)));
    const text = word(random.int(0, 30));
    const expected = naive(stops, text);

    const matcher = new StopMatcher(stops);
    let seen = "";
    for (let at = 0; at < text.length && !matcher.stopped;) {
      const next = Math.min(text.length, at + random.int(0, 4));
      seen += matcher.push(text.slice(at, next));
      at = next;
      if (matcher.stopped) break;
      // The held text is the shortest suffix that can still become part of a stop string.
      const held = text.slice(seen.length, at);
      assert(held === "" || isPrefixOfStop(stops, held), `${held} held back of ${text}`);
      for (let from = 0; from < seen.length; from++) {
        assert(!isPrefixOfStop(stops, text.slice(from, at)), `${text.slice(0, at)} gave ${seen}`);
      }
    }
    const stopped = matcher.stopped;
    assertEquals({ text: seen + matcher.flush(), stopped }, expected);
  }
});
