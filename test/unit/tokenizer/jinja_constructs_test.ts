import { assert, assertEquals } from "@std/assert";
import { ForgeError } from "../../../src/errors.ts";
import { type ChatMessage, ChatTemplate } from "../../../src/tokenizer/chat_template.ts";
import constructs from "./jinja_constructs.json" with { type: "json" };

/** The text of a template, or `null` if it is refused. */
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

Deno.test("small templates give what Jinja gives, and fail where Jinja fails", () => {
  const cases = constructs.constructs as [source: string, expected: string | null][];
  const differing = cases.flatMap(([source, expected]) => {
    const text = render(source, constructs.variables);
    return text === expected ? [] : [{ source, text, expected }];
  });
  assertEquals(differing, []);
  assert(cases.length > 1000, `${cases.length} constructs`);
});
