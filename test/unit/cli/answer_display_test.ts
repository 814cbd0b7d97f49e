/** Answers as a terminal shows them: probabilities as colours, thoughts apart from the rest. */
import { assertEquals } from "@std/assert";
import {
  type AnswerDisplay,
  ProbabilityDisplay,
  ThoughtDisplay,
} from "../../../src/cli/output/answer_display.ts";
import type { Piece } from "../../../src/mod.ts";

/** Returns what is shown of the parts of an answer, of which the last ends it. */
function shown(display: AnswerDisplay, ...texts: string[]): string {
  return texts.map((text, i) =>
    display.show({ text, ...(i < texts.length - 1 ? {} : { end: {} }) } as Piece)
  ).join("");
}

Deno.test("answers: a token's colour goes from green to red with its probability", () => {
  const display = new ProbabilityDisplay();
  const colour = (probability: number) => {
    const logprob = Math.log(probability);
    const text = display.show({ text: "x", logprob } as Piece);
    const code = Number(text.split(/[;m]/)[2]);
    assertEquals(text, `\x1b[38;5;${code}mx\x1b[39m`);
    return code;
  };
  assertEquals([1, 0.901, 0.899, 0.601, 0.599].map(colour), [34, 34, 106, 106, 178]);
  assertEquals([0.301, 0.299, 0.101, 0.099, 0].map(colour), [178, 208, 208, 160, 160]);
  assertEquals(display.show({ text: "x" } as Piece), "x");
  assertEquals(display.show({ text: "", logprob: -1 } as Piece), "");
});

Deno.test("answers: thoughts are dimmed, or named without colours", () => {
  const marks = { open: "<think>", close: "</think>" };
  const show = (isOpen: boolean, isColoured: boolean, ...texts: string[]) =>
    shown(new ThoughtDisplay({ marks, isOpen }, isColoured), ...texts);
  const whole = ["<think>a", "b", "</think>c", "d"];
  assertEquals(show(false, true, ...whole), "\x1b[2mab\x1b[22m\n\ncd");
  assertEquals(show(false, false, ...whole), "Thoughts: ab\n\nAnswer: cd");
  assertEquals(show(true, true, "a", "b"), "\x1b[2mab\x1b[22m");
  assertEquals(show(true, false, "a", "b</thi"), "Thoughts: ab</thi");
  assertEquals(show(false, true, "c", "d"), "cd");
  assertEquals(shown(new ThoughtDisplay(undefined, true), "<think>", "c", "d"), "<think>cd");
});
