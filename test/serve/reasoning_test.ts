/** Tests reasoning: its separation from the answer, and its effort. */
import { assertEquals, assertMatch, assertStringIncludes } from "@std/assert";
import { TempFolder } from "../support/temp_folder.ts";
import { writeRandomLlama } from "../support/tiny_llama.ts";
import { Client, joined, user } from "./client.ts";
import { CHAT, GIVEN, scripted } from "./scripted.ts";

Deno.test("serve: reasoning is separated from the answer", async () => {
  const script = ["<think>", "\nHm", "m. </th", "ink>", "\n\nFor", "ty-two"];
  for (
    const [chatTemplate, said, controls] of [
      [`${GIVEN}{# </think> #}`, script, []],
      // A template that opens the reasoning, as DeepSeek's does, and marks that are control tokens.
      [`${GIVEN}<think>\n{# </think> #}`, script.slice(1), []],
      [GIVEN, ["<think>", "\nHmm.", "</think>", "Forty-two"], ["<think>", "</think>"]],
    ] as const
  ) {
    using folder = new TempFolder();
    const pieces = ["<think>", "\n"];
    await using client = await scripted(folder, said, { chatTemplate, controls, pieces });
    const body = { messages: [user("x")], temperature: 0 };
    const { choices: [choice] } = await client.chat(body);
    assertEquals(choice!.message, {
      role: "assistant",
      content: "Forty-two",
      reasoning_content: "Hmm.",
    });
    assertEquals(joined(await client.stream(CHAT, body)), {
      content: "Forty-two",
      reasoning_content: "Hmm.",
      finish: "stop",
    });
    // If the marks are tokens, a constraint applies after the reasoning.
    const constrained = await client.chat({ ...body, regex: "[a-z]{4}" });
    const { content, reasoning_content } = constrained.choices[0]!.message!;
    assertMatch(content!, /^[a-z]{4}$/);
    assertEquals(reasoning_content, controls.length > 0 ? "Hmm." : undefined);
    const cut = await client.chat({ ...body, max_tokens: 2 });
    assertMatch(cut.choices[0]!.message!.reasoning_content!, /^Hm/);
    assertEquals(cut.choices[0]!.message!.content, "");
  }
});

Deno.test("serve: the reasoning effort sets the template's own variable", async () => {
  const open = async (folder: TempFolder, chatTemplate: string) => {
    writeRandomLlama(folder.path, { contextLength: 4096, chatTemplate });
    return await Client.open(folder.path);
  };
  const ask = { messages: [user("x")], max_tokens: 1 };
  const promptTokens = async (client: Client, effort: string | null) => {
    const { usage } = await client.chat({ ...ask, reasoning_effort: effort });
    return usage!.prompt_tokens;
  };
  const refusal = async (client: Client, body: object) => {
    const response = await client.post(CHAT, { ...ask, ...body });
    const { error } = await response.json();
    assertEquals([response.status, error.param], [400, "reasoning_effort"]);
    return error.message;
  };
  using folder = new TempFolder();
  await using levels = await open(
    folder,
    "{{ 'aaaaaaaaa' if reasoning_effort == 'high' else 'a' }}",
  );
  assertEquals(await promptTokens(levels, "high") - await promptTokens(levels, "low"), 8);
  assertEquals(await promptTokens(levels, null), await promptTokens(levels, "medium"));
  const unknown = await refusal(levels, { reasoning_effort: "minimal" });
  assertStringIncludes(unknown, 'valid is "low", "medium", "high" for this model');

  using switched = new TempFolder();
  await using thinker = await open(switched, "{{ 'aaa' if enable_thinking else 'a' }}");
  assertEquals(await promptTokens(thinker, "minimal") - await promptTokens(thinker, "none"), 2);
  const twice = { reasoning_effort: "none", chat_template_kwargs: { enable_thinking: true } };
  assertStringIncludes(await refusal(thinker, twice), "not both");
  assertStringIncludes(await refusal(thinker, { reasoning_effort: "lots" }), 'is "lots"; valid');

  using plain = new TempFolder();
  await using other = await open(plain, "a");
  assertEquals(await promptTokens(other, "high"), await promptTokens(other, null));
  assertEquals(await promptTokens(other, "none"), await promptTokens(other, null));

  using always = new TempFolder();
  await using stubborn = await open(always, "a{# </think> #}");
  assertEquals(await promptTokens(stubborn, "high"), await promptTokens(stubborn, null));
  const none = await refusal(stubborn, { reasoning_effort: "none" });
  assertStringIncludes(none, "this model always reasons");
});
