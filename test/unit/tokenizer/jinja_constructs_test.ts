import { assert, assertEquals } from "@std/assert";
import { ForgeError } from "../../../src/errors.ts";
import { type ChatMessage, ChatTemplate } from "../../../src/tokenizer/chat_template.ts";
import constructs from "./jinja_constructs.json" with { type: "json" };

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
