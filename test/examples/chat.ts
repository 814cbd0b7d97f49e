/** Holds a conversation: each turn includes all earlier messages but computes only the new ones. */
import { type ChatMessage, load } from "../../src/mod.ts";

const demo = `${import.meta.dirname}/../../models/demo`;
await using model = await load(demo);

const messages: ChatMessage[] = [];
for (const question of ["Tell me a story about a fox.", "Who is the story about?"]) {
  messages.push({ role: "user", content: question });
  const answer = await model.complete(messages, { temperature: 0 });
  messages.push({ role: "assistant", content: answer.text });
  console.log(`> ${question}\n${answer.text}`);
  console.log(`[${answer.cachedPromptTokens} of ${answer.promptTokens} prompt tokens reused]`);
}
