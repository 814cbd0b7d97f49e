/** `POST /v1/chat/completions`: answers conversations. */
import { readMessages } from "../../requests/messages.ts";
import { OPTION_FIELDS, readOptions } from "../../requests/options.ts";
import type { ChatMessage } from "../../tokenizer/chat_template.ts";
import { Answer } from "../answer.ts";
import { effortVariables } from "../chat/reasoning.ts";
import { resolveDialect } from "../chat/resolve_dialect.ts";
import { readTools } from "../chat/tools.ts";
import { readBody } from "../http/request_body.ts";
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
  // A conversation has system messages, and always uses the template.
  ...OPTION_FIELDS.filter((name) => name !== "system" && name !== "raw"),
];

export async function chatCompletions(service: Service, request: Request): Promise<Response> {
  const body = await readBody(request);
  checkFields(body, FIELDS);
  service.checkModel(body);
  const { model } = service;
  const { chatTemplate } = model.checkpoint;
  const messages = withKnownRoles(readMessages(body.messages), chatTemplate);
  const stream = readStream(body);
  const { n = 1, ...given } = readOptions(body, service.defaults);
  const variables = effortVariables(body.reasoning_effort, chatTemplate, given.templateVariables);
  const options = variables === undefined ? given : { ...given, templateVariables: variables };
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

/** Makes the role developer system for templates without a developer role. */
export function withKnownRoles(
  messages: readonly ChatMessage[],
  template: string | undefined,
): readonly ChatMessage[] {
  if (template?.includes("developer")) return messages;
  return messages.map((message) =>
    message.role === "developer" ? { ...message, role: "system" } : message
  );
}
