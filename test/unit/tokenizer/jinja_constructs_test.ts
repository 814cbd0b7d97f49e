import { assert, assertEquals } from "@std/assert";
import { ForgeError } from "../../../src/errors.ts";
import { type ChatMessage, ChatTemplate } from "../../../src/tokenizer/chat_template.ts";
import { createHash } from "node:crypto";
import constructs from "./jinja_constructs.json" with { type: "json" };
import products from "./jinja_products.json" with { type: "json" };

/** Renders a template; returns `null` if it is rejected. */
function render(source: string, variables: Record<string, unknown>): string | null {
  const { messages, ...extra } = variables;
  try {
    return new ChatTemplate(source).render(messages as ChatMessage[], {
      addGenerationPrompt: true,
      bosToken: "<s>",
      eosToken: "</s>",
      extra,
    });
  } catch (error) {
    if (error instanceof ForgeError) return null;
    throw error;
  }
}

Deno.test("small templates render as in Jinja, and fail if Jinja fails", () => {
  const cases = constructs.constructs as [source: string, expected: string | null][];
  const differing = cases.flatMap(([source, expected]) => {
    const text = render(source, constructs.variables);
    return text === expected ? [] : [{ source, text, expected }];
  });
  assertEquals(differing, []);
  assert(cases.length > 1000, `${cases.length} constructs`);
});

/** A pattern, the lists whose values replace each of its marks, and places that do not count. */
type Group = readonly [
  name: string,
  pattern: string,
  lists: readonly (readonly string[])[],
  skipped: readonly number[],
  digest: string,
];

Deno.test("every combination of values, operations and arguments renders as in Jinja", () => {
  let count = 0;
  const differing = (products.groups as unknown as Group[]).flatMap(
    ([name, pattern, lists, skipped, digest]) => {
      const parts = pattern.split("§");
      let sources = [parts[0]!];
      for (const [i, values] of lists.entries()) {
        sources = sources.flatMap((head) => values.map((value) => head + value + parts[i + 1]!));
      }
      const left = new Set(skipped);
      const kept = sources.filter((_, i) => !left.has(i));
      count += kept.length;
      const texts = kept.map((source) => render(source, products.variables) ?? "\0error");
      const hash = createHash("sha256").update(texts.join("\0\0")).digest("hex").slice(0, 16);
      return hash === digest ? [] : [name];
    },
  );
  assertEquals(differing, [], "compare with: python3 jinja_constructs.py --group NAME");
  assert(count > 39_000, `${count} templates`);
});
