/** Every command, in the order of the help. */
import { SYNTHETIC_NAMES } from "../bench/synthetic/shapes.ts";
import { SYNTHETIC_TYPES } from "../bench/synthetic/shapes.ts";
import { OPTION_FIELDS } from "../requests/options.ts";
import { CHAT_COMMANDS } from "./chat/help.ts";
import { type Command, defineCommand } from "./command.ts";
import {
  BATCH_FLAGS,
  CONSTRAINT_FLAGS,
  GENERATION_FLAGS,
  MODEL_FLAGS,
  SERVE_FLAGS,
} from "./options/flags.ts";

const MODEL = {
  name: "MODEL",
  help: "model folder, .gguf file or hub name; also as -m MODEL",
  required: false,
};

/** The commands, in the order that help lists them. */
export const COMMANDS: readonly Command[] = [
  defineCommand({
    name: "run",
    summary: "generate text from a prompt, or from every line of a file",
    description: [
      "Generates text from a prompt and writes it to stdout as it becomes certain. With --batch it " +
      "answers every line of a JSONL file, several at a time, and writes one JSON object a line.",
    ],
    operands: [
      { ...MODEL, help: "model folder, .gguf file or hub name, if not given with -m" },
      {
        name: "PROMPT",
        help: "the prompt, if not given with -p or -f; - reads stdin",
        required: false,
      },
    ],
    options: [
      "prompt",
      "file",
      "system",
      "raw",
      "promptCache",
      ...BATCH_FLAGS,
      ...MODEL_FLAGS,
      ...GENERATION_FLAGS,
      ...CONSTRAINT_FLAGS,
      "completions",
      "json",
      "logprobs",
      "verbose",
    ],
    notes: [
      "Sampling defaults are the model's own where it names them.",
      "On a terminal the text ends with a newline; a file or pipe gets exactly the text. Ctrl-C stops " +
      "with exit code 130, and what was generated stays.",
      "A line of a batch has prompt or messages, an id (default: the line's number), and any of " +
      `${
        OPTION_FIELDS.join(", ")
      }; lines of OpenAI's batch API (custom_id, body) are read too. A line ` +
      "that cannot be answered becomes {id, error, line}, the others go on, and the exit code is 1.",
    ],
    examples: [
      "forge run -p 'Once upon a time'",
      "forge run model.gguf 'Why is the sky blue?'",
      "forge run -m model.gguf -p 'Write a haiku' -n 64 --temp 0",
      `forge run -p 'Ada is 36.' --json-schema '{"properties":{"name":{"type":"string"}}}'`,
      "cat question.txt | forge run -m path/to/folder --json",
      "forge run --batch prompts.jsonl -o answers.jsonl --resume",
    ],
  }, () => import("./commands/run.ts")),
  defineCommand({
    name: "chat",
    summary: "talk with a model",
    description: [
      "Talks with a model, which is told everything that was said before. Only what is new is computed.",
      "On a terminal a line is a message; a \\ at its end goes on in the next, as does everything between " +
      '""" and """, and pasted lines stay together. Ctrl-C stops the answer, and at the prompt twice ' +
      "ends the chat, as Ctrl-D does.",
    ],
    operands: [MODEL],
    options: [
      "chatSystem",
      ...MODEL_FLAGS,
      ...GENERATION_FLAGS,
      ...CONSTRAINT_FLAGS,
      "verbose",
    ],
    notes: [
      `Commands: ${CHAT_COMMANDS}. /help explains them.`,
      "Piped, each line is a message, answers go to stdout, and what fails ends the chat. " +
      "A conversation that has filled the context is not cut silently: the message is refused " +
      "with the number of its tokens, and /drop or /reset make room.",
    ],
    examples: [
      "forge chat",
      "forge chat -m model.gguf --system 'Answer in one sentence.' --verbose",
      "printf 'Tell me a story about a fox.\\nTell me another one.\\n' | forge chat --temp 0",
    ],
  }, () => import("./commands/chat.ts")),
  defineCommand({
    name: "serve",
    summary: "answer programs over HTTP, in the words of OpenAI's API",
    description: [
      "Serves a model over HTTP in the words of OpenAI's API, for any client of it: " +
      "/v1/chat/completions, /v1/completions, /v1/embeddings, /v1/models, /tokenize, /detokenize, " +
      "/health. Clients of Ollama find /api/chat, /api/generate, /api/embed, /api/tags, /api/show and " +
      "/api/version. Requests are answered side by side.",
    ],
    operands: [MODEL],
    options: [...SERVE_FLAGS, ...MODEL_FLAGS, ...GENERATION_FLAGS, "verbose"],
    notes: [
      "Options of generation and sampling are the defaults of requests that do not set them. What a " +
      "request asks for and forge does not do is refused by name.",
      "On this machine's own addresses requests must be addressed to it (localhost, 127.0.0.1, [::1]) " +
      "unless there is an API key. --verbose writes a line for each request to stderr.",
      "Ctrl-C and SIGTERM let what is under way come to its end; a second one ends it. The exit code is " +
      "130 after Ctrl-C, 0 after SIGTERM.",
    ],
    examples: [
      "forge serve -m model.gguf",
      "forge serve -m Qwen/Qwen3-0.6B --port 8000 --alias qwen",
      "FORGE_API_KEY=secret forge serve -m model.gguf --host 0.0.0.0",
    ],
  }, () => import("./commands/serve.ts")),
  defineCommand({
    name: "embed",
    summary: "turn texts into vectors",
    description: [
      "Prints the vector of a text, or of every line of a file, as JSON: what the model's hidden states " +
      "are behind its last norm, pooled. Any model that generates can embed; those made for it, such as " +
      "Qwen3-Embedding, say in their files how.",
    ],
    operands: [
      { ...MODEL, help: "model folder or .gguf file, if not given with -m" },
      { name: "TEXT", help: "the text; - reads it from stdin", required: false },
    ],
    options: [
      "wholeText",
      "lines",
      "model",
      "device",
      "threads",
      "ctx",
      "quantize",
      "kvType",
      "kvMemory",
      "attention",
      "pooling",
      "dimensions",
      "normalize",
      "embeddingOutput",
      "verbose",
    ],
    notes: [
      "An object has embedding, the numbers; tokens, how many the text has; and with --lines line, the " +
      "number of its line, from 1. A text that does not fit the context is an error: nothing is cut.",
      "A model that wants an instruction before a query gets it as part of the text.",
    ],
    examples: [
      "forge embed -m Qwen/Qwen3-Embedding-0.6B 'Why is the sky blue?'",
      "forge embed -m model.gguf --lines documents.txt > vectors.jsonl",
      "cat page.txt | forge embed -m model.gguf --pooling mean --dimensions 256 -",
    ],
  }, () => import("./commands/embed.ts")),
  defineCommand({
    name: "inspect",
    summary: "show what a model is and what it needs",
    description: [
      "Shows a model's architecture, tensors, tokenizer, chat template and the memory it needs. Only " +
      "headers are read, and no native library is used.",
    ],
    operands: [MODEL],
    options: ["model", "quantize", "tensors", "template", "json", "verbose"],
    examples: ["forge inspect model.gguf", "forge inspect path/to/folder --tensors"],
  }, () => import("./commands/inspect.ts")),
  defineCommand({
    name: "tokenize",
    summary: "show the tokens of a text",
    description: [
      "Prints the tokens of a text as the model sees them, one a line: the id and the text it adds, or " +
      "its bytes where they are no whole character. With --json, pieces are as the vocabulary writes them.",
    ],
    operands: [
      { ...MODEL, help: "model folder or .gguf file, if not given with -m" },
      { name: "TEXT", help: "the text; - reads it from stdin", required: false },
    ],
    options: ["text", "special", "model", "ids", "json", "verbose"],
    examples: ["forge tokenize 'Hello, world'", "forge tokenize -m model.gguf -f book.txt --ids"],
  }, () => import("./commands/tokenize.ts")),
  defineCommand({
    name: "perplexity",
    summary: "measure how well a model predicts a text",
    description: [
      "Measures how well a model predicts a text.",
      "The text is cut into windows of --ctx tokens that do not overlap; the last may be shorter. Each " +
      "starts with BOS where the model uses one, otherwise its first token is given and not scored. " +
      "The mean negative log-likelihood (nats) of the scored tokens and its exponential, the " +
      "perplexity, are printed with their standard errors. Only numbers of the same text, window " +
      "and tokenizer compare.",
    ],
    options: [
      "text",
      "model",
      "device",
      "threads",
      "windowSize",
      "quantize",
      "kvType",
      "kvMemory",
      "attention",
      "json",
      "verbose",
    ],
    examples: ["forge perplexity -m model.gguf -f book.txt -c 512"],
  }, () => import("./commands/perplexity.ts")),
  defineCommand({
    name: "pull",
    summary: "download a model from the hub",
    description: [
      "Downloads a model from the hub and prints where it is. What is there already is not " +
      "downloaded again, and an interrupted download goes on where it stopped.",
      "REF is org/name for a folder of safetensors or the best quantisation of a GGUF repository, " +
      "or org/name:FILE or org/name:Q4_K_M for one of them; @REVISION may follow the name. Other " +
      "commands take the same names with -m.",
    ],
    operands: [{ name: "REF", help: "org/name, org/name:FILE-OR-QUANTIZATION", required: true }],
    options: ["verbose"],
    notes: [
      "Models are kept in $FORGE_CACHE, or forge in $XDG_CACHE_HOME or ~/.cache. HF_TOKEN opens " +
      "models that need access, HF_ENDPOINT names another hub, FORGE_HUB_HOSTS the further hosts " +
      "that it redirects to.",
    ],
    examples: ["forge pull Qwen/Qwen3-0.6B", "forge run -m Qwen/Qwen3-0.6B -p 'Hello'"],
  }, () => import("./commands/pull.ts")),
  defineCommand({
    name: "list",
    summary: "list the models downloaded from the hub",
    description: ["Lists the models that are downloaded, with their sizes and where they are."],
    options: ["json", "verbose"],
    examples: ["forge list"],
  }, () => import("./commands/list.ts")),
  defineCommand({
    name: "rm",
    summary: "remove a downloaded model",
    description: [
      "Removes a model that was downloaded from the hub, by the name that forge list shows. Files that " +
      "another downloaded model needs too stay.",
    ],
    operands: [{
      name: "NAME",
      help: "a name as forge list shows it",
      required: true,
      values: "downloads",
    }],
    options: ["verbose"],
    examples: ["forge rm Qwen/Qwen3-0.6B"],
  }, () => import("./commands/remove.ts")),
  defineCommand({
    name: "bench",
    summary: "measure how fast models compute prompts and decode",
    description: [
      "Measures how many tokens a second a model computes: ppN is a prompt of N tokens, tgN the " +
      "decoding of N tokens one at a time, ppN+tgM both together, @ dN behind N tokens that are in the " +
      "KV cache already. Lists (128,512) and ranges (1-4, 0-1024+256, 128-2048*2) are measured one " +
      "after another.",
    ],
    options: [
      "benchModel",
      "synthetic",
      "device",
      "benchThreads",
      "quantize",
      "kvType",
      "attention",
      "nPrompt",
      "nGen",
      "pair",
      "nDepth",
      "nBatch",
      "parallel",
      "repetitions",
      "benchOutput",
      "verbose",
    ],
    notes: [
      "Each test is run once to warm up, then -r times from the same KV cache; t/s is the mean ± the " +
      "sample standard deviation. Tokens are random. A prompt ends with the choice of the likeliest " +
      "token, and so does each decode step; the tokenizer has no part in it. GB/s is what decoding " +
      "reads of the weights alone, also as a share of what the memory gives at most; memory is the " +
      "most that the process has held so far. json, jsonl and csv use the field names of llama-bench.",
      `Names for --synthetic: ${
        SYNTHETIC_NAMES.join(", ")
      }; or the path of a config.json of any architecture, as in path/to/config.json:Q4_K. Types: ${
        SYNTHETIC_TYPES.join(", ")
      } (default: Q4_0); as in most files, the output matrix of a 4- or 5-bit model is Q6_K or ` +
      "Q8_0. The model is a temporary file and is removed in the end.",
      "With --parallel B, B sequences get a prompt each and are then decoded together, one token of " +
      "each a step; the table has the columns of llama-batched-bench: PP, TG, B, N_KV, and times T and " +
      "speeds S of prompts, decoding and both, over all sequences.",
      "Ctrl-C stops with exit code 130; what was measured is printed.",
    ],
    examples: [
      "forge bench -m model.gguf -p 512,2048 -n 64 -t 1,2",
      "forge bench --synthetic llama-3.2-1b:Q4_0 --synthetic llama-3.2-1b:Q8_0",
      "forge bench --synthetic smollm2-135m:F16 -p 0 -n 128 -d 0,4096 -o json",
      "forge bench -m model.gguf -p 128 -n 64 --parallel 1,8",
    ],
  }, () => import("./commands/bench.ts")),
  defineCommand({
    name: "doctor",
    summary: "show whether forge can run here, and why not",
    description: [
      "Shows versions, the processor, the native libraries and where they were looked for, the C++ " +
      "compiler, and permissions that are missing. The exit code is 1 when no model could run.",
    ],
    options: ["json", "verbose"],
    examples: ["forge doctor"],
  }, () => import("./commands/doctor.ts")),
  defineCommand({
    name: "completions",
    summary: "print a completion script for bash, zsh or fish",
    description: ["Prints a script that completes forge's commands and options in a shell."],
    operands: [{
      name: "SHELL",
      help: "bash, zsh or fish",
      required: true,
      values: ["bash", "zsh", "fish"],
    }],
    options: ["verbose"],
    examples: [
      "source <(forge completions bash)",
      "forge completions zsh > ~/.zfunc/_forge",
      "forge completions fish > ~/.config/fish/completions/forge.fish",
    ],
  }, async () => (await import("./commands/completions.ts")).completionsOf(COMMANDS)),
];
