/** What each part of the GPU check came to. */

/** A part that has run. */
export interface Section {
  readonly title: string;
  readonly kind: "check" | "measure";
  readonly outcome: "passed" | "failed" | "skipped";
  readonly seconds: number;
  /** Why it was skipped, or the lines that tell the result. */
  readonly summary: string;
  /** All that it printed. */
  readonly output: string;
}

/** The sections as Markdown. */
export function describeSections(sections: readonly Section[]): string {
  return sections.map(({ title, outcome, seconds, summary }) =>
    [`## ${title}: ${outcome}, ${seconds.toFixed(1)} s`, "", summary.trimEnd(), ""].join("\n")
  ).join("\n");
}
