/** What models are given: prompts, conversations, texts. A part of the table in `options.ts`. */
import type { OptionSpec } from "../types.ts";

export const PROMPT_OPTIONS = {
  prompt: {
    flags: "-p, --prompt",
    kind: "text",
    metavar: "TEXT",
    group: "Prompt",
    help: "the prompt itself",
  },
  file: {
    flags: "-f, --file",
    kind: "text",
    metavar: "FILE",
    group: "Prompt",
    help: "read it from a file (UTF-8; one newline at the end is dropped)",
  },
  system: {
    flags: "--system",
    kind: "text",
    metavar: "TEXT",
    group: "Prompt",
    help: "system message before the prompt, where the model has a chat template",
  },
  chatSystem: {
    flags: "--system",
    kind: "text",
    metavar: "TEXT",
    group: "Prompt",
    help: "system message of the conversation",
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
    help: "keep what is computed of the prompt, or take it up if the file is there",
  },
  text: {
    flags: "-f, --file",
    kind: "text",
    metavar: "FILE",
    group: "Input",
    help: "read the text from a file (UTF-8, every byte of it)",
  },
  special: {
    flags: "--no-special",
    kind: "flag",
    group: "Input",
    help: "add no BOS or EOS token, and take tokens such as </s> in the text as plain text",
  },
} as const satisfies Record<string, OptionSpec>;
