/** `POST /v1/chat/completions`: answers conversations. */
import type { JsonObject } from "../../formats/json.ts";
import { readMessages } from "../../requests/messages.ts";
import { OPTION_FIELDS, readOptions } from "../../requests/options.ts";
import { invalid, isGiven, readBoolean } from "../../requests/values.ts";
import { Answer } from "../answer.ts";
import { splitBegun, withKnownRoles } from "../chat/conversation.ts";
import { withEffort } from "../chat/reasoning.ts";
import { resolveDialect } from "../chat/resolve_dialect.ts";
import { readTools } from "../chat/tools.ts";
import type { Service } from "../service.ts";
import { ChatChoice } from "./chat_choice.ts";
import { checkFields, readStream } from "./request_fields.ts";
import { CompletionFormat } from "./response.ts";

const FIELDS = [
  "model",
  "messages",
  "stream",
  "stream_options",
  "tools",
  "tool_choice",
  "parallel_tool_calls",
  "reasoning_effort",
  "continue_final_message",
  "add_generation_prompt",
  // A conversation has system messages, and always uses the template.
  ...OPTION_FIELDS.filter((name) => name !== "system" && name !== "raw"),
];

export async function chatCompletions(
  service: Service,
  request: Request,
  body: JsonObject,
): Promise<Response> {
  checkFields(body, FIELDS);
  const { model } = service;
  const { chatTemplate } = model.checkpoint;
  const { messages, begun } = readConversation(body, chatTemplate);
  const stream = readStream(body);
  const { n = 1, ...given } = { ...readOptions(body, service.defaults), ...begun };
  const options = withEffort(given, body.reasoning_effort, chatTemplate);
  const use = readTools(body);

  using answer = new Answer(service, n);
  const dialect = await resolveDialect(model, { messages, options, use }, service.enforceable);
  const { promptTokens, pieces } = await model.generateMany(messages, n, {
    ...dialect.options,
    signal: answer.signal,
  });
  const hasLogprobs = options.logprobs !== undefined;
  const choices = pieces.map((_, index) =>
    new ChatChoice(index, dialect.newReader(promptTokens), model.tokenizer, hasLogprobs)
  );
  const head = { kind: "chat.completion", model: service.name } as const;
  const format = new CompletionFormat(head, choices, n, stream);
  return await answer.respond(request, pieces, format, stream !== undefined);
}

/** Reads the messages, and the beginning of the answer if the last message is to be continued. */
function readConversation(body: JsonObject, template: string | undefined) {
  const messages = withKnownRoles(readMessages(body.messages), template);
  const { continue_final_message, add_generation_prompt } = body;
  const isContinued = isGiven(continue_final_message) &&
    readBoolean(continue_final_message, "continue_final_message");
  if (isGiven(add_generation_prompt) && add_generation_prompt !== !isContinued) {
    const valid = `${!isContinued} with "continue_final_message": ${isContinued}`;
    throw invalid("add_generation_prompt", add_generation_prompt, valid);
  }
  return isContinued ? splitBegun(messages, "continue_final_message") : { messages, begun: {} };
}
