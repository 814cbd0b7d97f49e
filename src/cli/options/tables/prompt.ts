/** Options of prompts, conversations and texts. */
import type { OptionSpec } from "../types.ts";

export const PROMPT_OPTIONS = {
  prompt: {
    flags: "-p, --prompt",
    kind: "text",
    metavar: "TEXT",
    group: "Prompt",
    help: "the prompt",
  },
  file: {
    flags: "-f, --file",
    kind: "text",
    metavar: "FILE",
    group: "Prompt",
    help: "read the prompt from a file (UTF-8; a newline at the end is dropped)",
  },
  system: {
    flags: "--system",
    kind: "text",
    metavar: "TEXT",
    group: "Prompt",
    help: "system message before the prompt, for models with a chat template",
  },
  chatSystem: {
    flags: "--system",
    kind: "text",
    metavar: "TEXT",
    group: "Prompt",
    help: "system message of the conversation",
  },
  web: {
    flags: "--web",
    kind: "flag",
    group: "Prompt",
    help: "chat in the browser, on a page of this machine",
  },
  raw: {
    flags: "--raw",
    kind: "flag",
    group: "Prompt",
    help: "continue the prompt as it is, without the chat template",
  },
  promptCache: {
    flags: "--prompt-cache",
    kind: "text",
    metavar: "FILE",
    group: "Prompt",
    help: "load the computed prompt from this file if it exists, otherwise save it there",
  },
  text: {
    flags: "-f, --file",
    kind: "text",
    metavar: "FILE",
    group: "Input",
    help: "read the text from a file (UTF-8, including a final newline)",
  },
  special: {
    flags: "--no-special",
    kind: "flag",
    group: "Input",
    help: "add no BOS or EOS token, and treat tokens such as </s> in the text as plain text",
  },
} as const satisfies Record<string, OptionSpec>;
