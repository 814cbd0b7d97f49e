/** `POST /v1/chat/completions`: answers conversations. */
import type { JsonObject } from "../../formats/json.ts";
import { readMessages } from "../../requests/messages.ts";
import { OPTION_FIELDS, readOptions } from "../../requests/options.ts";
import type { ChatMessage } from "../../tokenizer/chat_template.ts";
import { respond } from "../answer.ts";
import { ChatChoice } from "./chat_choice.ts";
import { settleDialect } from "../chat/resolve_dialect.ts";
import { effortVariables } from "../chat/reasoning_effort.ts";
import { readTools } from "../chat/tools.ts";
import { readBody } from "../http/request_body.ts";
import { checkFields, readStream } from "./request_fields.ts";
import type { Service } from "../service.ts";

const FIELDS = [
  "model",
  "messages",
  "stream",
  "stream_options",
  "tools",
  "tool_choice",
  "parallel_tool_calls",
  "reasoning_effort",
  // Messages have a role for the system, and are always rendered through the template.
  ...OPTION_FIELDS.filter((name) => name !== "system" && name !== "raw"),
];

export async function chatCompletions(service: Service, request: Request): Promise<Response> {
  const body = await readBody(request);
  checkFields(body, FIELDS);
  service.checkModel(body);
  const { model } = service;
  const messages = readConversation(body, model.checkpoint.chatTemplate);
  const stream = readStream(body);
  const { n = 1, ...asked } = readOptions(body, service.defaults);
  const variables = effortVariables(
    body.reasoning_effort,
    model.checkpoint.chatTemplate,
    asked.templateVariables,
  );
  const options = variables === undefined ? asked : { ...asked, templateVariables: variables };
  const use = readTools(body);
  const controller = new AbortController();
  const leave = service.admission.enter(n);
  try {
    const dialect = await settleDialect(model, { messages, options, use }, service.enforceable);
    const { promptTokens, pieces } = await model.generateMany(messages, n, {
      ...dialect.options,
      signal: controller.signal,
    });
    return await respond(service, request, {
      kind: "chat.completion",
      chunkKind: "chat.completion.chunk",
      prompts: [pieces],
      choices: pieces.map((_, index) =>
        new ChatChoice(
          index,
          dialect.newReader(promptTokens),
          model.tokenizer,
          options.logprobs !== undefined,
        )
      ),
      stream,
      controller,
    }, leave);
  } catch (error) {
    leave();
    throw error;
  }
}

/** The messages, with the role that a template knows for what OpenAI's API calls the developer's. */
function readConversation(body: JsonObject, template: string | undefined): ChatMessage[] {
  const messages = readMessages(body.messages);
  if (template?.includes("developer")) return messages;
  return messages.map((message) =>
    message.role === "developer" ? { ...message, role: "system" } : message
  );
}
