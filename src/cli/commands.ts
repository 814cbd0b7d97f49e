/** Table of all commands. Parsing, help and completions come from it. */
import { SYNTHETIC_NAMES } from "../bench/synthetic/shapes.ts";
import { SYNTHETIC_TYPES } from "../bench/synthetic/shapes.ts";
import { OPTION_FIELDS } from "../requests/options.ts";
import { CHAT_COMMANDS } from "./chat/help.ts";
import { type Command, defineCommand } from "./command.ts";
import {
  BATCH_FLAGS,
  CONSTRAINT_FLAGS,
  ENCODER_FLAGS,
  GENERATION_FLAGS,
  LOADING_FLAGS,
  MODEL_FLAGS,
  REPLICA_FLAGS,
  SERVE_FLAGS,
} from "./options/flags.ts";

const MODEL = {
  name: "MODEL",
  help: "model folder, .gguf file or hub name; also as -m MODEL",
  required: false,
};

/** All commands, in the order of the help. */
export const COMMANDS: readonly Command[] = [
  defineCommand({
    name: "run",
    summary: "generate text from a prompt, or from every line of a file",
    description: [
      "Generates text from a prompt and streams it to stdout. With --batch, answers every line of a JSONL " +
      "file, several at a time, and writes one JSON object per line.",
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
      ...MODEL_FLAGS,
      ...BATCH_FLAGS,
      ...GENERATION_FLAGS,
      ...CONSTRAINT_FLAGS,
      "thinking",
      "completions",
      "json",
      "logprobs",
      "colour",
      "profile",
      "verbose",
    ],
    notes: [
      "Sampling defaults come from the model's files if they have any.",
      "On a terminal the text ends with a newline; a file or pipe gets exactly the text. Ctrl-C stops " +
      "with exit code 130 and keeps the text so far.",
      "A batch line has prompt or messages, an id (default: the line number), and any of " +
      `${
        OPTION_FIELDS.join(", ")
      }; lines of OpenAI's batch API (custom_id, body) are valid too. A line ` +
      "that fails becomes {id, error, line}, the others continue, and the exit code is 1.",
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
    summary: "chat with a model",
    description: [
      "Chats with a model. The model sees the whole conversation; only new messages are computed.",
      "On a terminal, each line is a message. A \\ at the end of a line continues the message on the next, " +
      'text between """ and """ is one message, and so are pasted lines. Ctrl-C stops an answer. Ctrl-D, ' +
      "or Ctrl-C twice at the prompt, ends the chat.",
    ],
    operands: [MODEL],
    options: [
      "chatSystem",
      "web",
      ...MODEL_FLAGS,
      ...GENERATION_FLAGS,
      ...CONSTRAINT_FLAGS,
      "thinking",
      "verbose",
    ],
    notes: [
      `Commands: ${CHAT_COMMANDS}. /help explains them.`,
      "If stdin is not a terminal, each line is a message, answers go to stdout, and an error ends the chat. " +
      "When the context is full, the next message is an error that states the number of tokens; " +
      "/drop and /reset make room.",
    ],
    examples: [
      "forge chat",
      "forge chat -m model.gguf --web",
      "forge chat -m model.gguf --system 'Answer in one sentence.' --verbose",
      "printf 'Tell me a story about a fox.\\nTell me another one.\\n' | forge chat --temp 0",
    ],
  }, () => import("./commands/chat.ts")),
  defineCommand({
    name: "serve",
    summary: "serve models over HTTP, with the APIs of OpenAI, Anthropic and Ollama",
    description: [
      "Serves one or several models over HTTP, with a page for browsers. Endpoints of OpenAI's API: " +
      "/v1/chat/completions, /v1/responses, /v1/completions, /v1/embeddings, /v1/rerank, /v1/models, /tokenize, " +
      "/detokenize, /props, /health. Of Anthropic's API: /v1/messages. Of Ollama's API: /api/chat, " +
      "/api/generate, /api/embed, /api/tags, /api/ps, /api/show, /api/version. Requests are batched together.",
    ],
    operands: [MODEL],
    options: ["serveModel", ...LOADING_FLAGS, ...SERVE_FLAGS, ...GENERATION_FLAGS, "verbose"],
    notes: [
      "The first of several models is loaded at the start and answers requests that name none; the others " +
      "are loaded when a request names them. A short name, with options for its model, is a key of " +
      '"models" in ~/.config/forge/config.json.',
      "Generation and sampling options are defaults for requests that do not set them. A request with an " +
      "unknown or unsupported key is an error that names the key.",
      "Without an API key, a server on a loopback address accepts only requests for localhost, 127.0.0.1 " +
      "or [::1]. --verbose logs each request to stderr.",
      "After Ctrl-C or SIGTERM the server finishes the answers in progress and stops; a second signal stops " +
      "it at once. The exit code is 130 after Ctrl-C, 0 after SIGTERM.",
    ],
    examples: [
      "forge serve -m model.gguf",
      "forge serve -m Qwen/Qwen3-0.6B --port 8000 --alias qwen",
      "forge serve -m small.gguf -m large.gguf --keep-alive 10m",
      "FORGE_API_KEY=secret forge serve -m model.gguf --host 0.0.0.0",
    ],
  }, () => import("./commands/serve.ts")),
  defineCommand({
    name: "embed",
    summary: "compute embeddings of texts",
    description: [
      "Prints the embedding of a text, or of every line of a file, as JSON. An embedding pools the hidden " +
      "states after the last norm. Encoders and models that generate can embed; the files of embedding " +
      "models define the pooling.",
    ],
    operands: [
      { ...MODEL, help: "model folder or .gguf file, if not given with -m" },
      { name: "TEXT", help: "the text; - reads stdin", required: false },
    ],
    options: [
      "wholeText",
      "lines",
      ...ENCODER_FLAGS,
      "pooling",
      "dimensions",
      "normalize",
      "embeddingOutput",
      "verbose",
    ],
    notes: [
      "Each object has embedding (the vector), tokens (the length of the text) and, with --lines, line (its " +
      "number, from 1). A text longer than the context is an error; it is not cut.",
      "If a model expects an instruction before a query, include it in the text.",
    ],
    examples: [
      "forge embed -m Qwen/Qwen3-Embedding-0.6B 'Why is the sky blue?'",
      "forge embed -m model.gguf --lines documents.txt > vectors.jsonl",
      "cat page.txt | forge embed -m model.gguf --pooling mean --dimensions 256 -",
    ],
  }, () => import("./commands/embed.ts")),
  defineCommand({
    name: "rerank",
    summary: "order documents by how well they answer a query",
    description: [
      "Scores every line of a file with a reranker, and prints the lines as JSON, the best first. Rerankers " +
      "are cross-encoders (BERT, XLM-R, ModernBERT and others with a classification head, such as " +
      "bge-reranker) and Qwen3-Reranker.",
    ],
    operands: [
      { ...MODEL, help: "model folder or .gguf file, if not given with -m" },
      { name: "QUERY", help: "the query", required: false },
    ],
    options: [
      "documents",
      ...ENCODER_FLAGS,
      "instruction",
      "top",
      "embeddingOutput",
      "verbose",
    ],
    notes: [
      "Each object has line (its number, from 1), score (from 0 to 1), logit (the score before the logistic " +
      "function), tokens (of query and document) and text. A pair longer than the context is an error.",
    ],
    examples: [
      "forge rerank -m BAAI/bge-reranker-v2-m3 'how do plants eat?' --lines documents.txt",
      "cat notes.txt | forge rerank -m Qwen/Qwen3-Reranker-0.6B 'how do plants eat?' --lines - --top 3",
    ],
  }, () => import("./commands/rerank.ts")),
  defineCommand({
    name: "inspect",
    summary: "show what a model is and what it needs",
    description: [
      "Shows a model's architecture, tensors, tokenizer, chat template and memory needs. Reads only the " +
      "headers of files, and needs no native library. With --devices, --data-parallel, --tensor-parallel or " +
      "--pipeline-parallel, also shows what replicas would take of the memory of each device.",
    ],
    operands: [MODEL],
    options: ["model", "quantize", "tensors", "template", ...REPLICA_FLAGS, "json", "verbose"],
    examples: [
      "forge inspect model.gguf",
      "forge inspect path/to/folder --tensors",
      "forge inspect model.gguf --devices cuda:0,cuda:1",
    ],
  }, () => import("./commands/inspect.ts")),
  defineCommand({
    name: "tokenize",
    summary: "show the tokens of a text",
    description: [
      "Prints the tokens of a text, one per line: the id and its text, or its bytes if they are not whole " +
      "characters. With --json, pieces are spelled as in the vocabulary.",
    ],
    operands: [
      { ...MODEL, help: "model folder or .gguf file, if not given with -m" },
      { name: "TEXT", help: "the text; - reads stdin", required: false },
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
      "window starts with BOS if the model uses it; otherwise its first token is not scored. Prints the " +
      "mean negative log-likelihood (in nats) of the scored tokens and its exponential, the perplexity, " +
      "with standard errors. Results are comparable only for the same text, window and tokenizer.",
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
      "memory",
      "attention",
      "products",
      "numa",
      "lora",
      "importanceOutput",
      "json",
      "plot",
      "verbose",
    ],
    notes: [
      "--imatrix writes the sums of the squared activations of each column of each matrix, per expert for " +
      "mixtures, in llama.cpp's GGUF form. The text should resemble what the model is used for.",
    ],
    examples: [
      "forge perplexity -m model.gguf -f book.txt -c 512",
      "forge perplexity -m model.gguf -f book.txt --plot loss.svg",
    ],
  }, () => import("./commands/perplexity.ts")),
  defineCommand({
    name: "quantize",
    summary: "write a model with quantised weights as a GGUF file",
    description: [
      "Writes a model as a GGUF file with quantised weights, which llama.cpp and programs built on it " +
      "load too. The model is a folder with config.json, tokenizer.json and safetensors files, or a GGUF " +
      "file with float weights. Loading such a file is faster than --quantize, and types can be smaller.",
    ],
    operands: [
      { ...MODEL, help: "model folder, .gguf file or hub name", required: true },
      { name: "OUT", help: "the GGUF file to write", required: true },
    ],
    options: ["quantizedType", "importance", "replace", "threads", "json", "verbose"],
    notes: [
      "Types with K are mixtures: attention values, MLP outputs and the output matrix get more bits in " +
      "some layers, as in llama.cpp. Rows that are no whole number of 256 weights get a type with blocks " +
      "of 32. Norms, biases and routers stay floats.",
      "The file has its name once it is complete. After Ctrl-C nothing is left. Memory holds a few " +
      "megabytes of weights at a time.",
    ],
    examples: [
      "forge quantize path/to/folder model-Q4_K_M.gguf",
      "forge quantize Qwen/Qwen3-0.6B qwen3-Q8_0.gguf --type Q8_0",
      "forge perplexity -m path/to/folder -f text.txt --imatrix imatrix.gguf",
      "forge quantize path/to/folder model-Q3_K_M.gguf --type Q3_K_M --imatrix imatrix.gguf",
    ],
  }, () => import("./commands/quantize.ts")),
  defineCommand({
    name: "pull",
    summary: "download a model from the hub",
    description: [
      "Downloads a model from the hub and prints its path. A complete download is not repeated, and an " +
      "interrupted download resumes.",
      "REF is org/name for a folder of safetensors or the best quantisation of a GGUF repository, " +
      "org/name:FILE for one file or org/name:Q4_K_M for one quantisation; @REVISION may follow the name, " +
      "and modelscope: before it names a model on ModelScope. Addresses of models are valid too. Other " +
      "commands take the same names with -m.",
    ],
    operands: [{
      name: "REF",
      help: "org/name, org/name:FILE-OR-QUANTIZATION or the address of a model",
      required: true,
    }],
    options: ["verbose"],
    notes: [
      "Models are stored in $FORGE_CACHE (default: $XDG_CACHE_HOME/forge or ~/.cache/forge). Environment " +
      "variables: HF_TOKEN and MODELSCOPE_API_TOKEN for models that need access, HF_ENDPOINT and " +
      "MODELSCOPE_ENDPOINT for the address of a mirror, FORGE_HUB_HOSTS for " +
      "hosts that this hub redirects to. A whole model in the cache of Hugging Face's own programs " +
      "(HF_HOME) is used from there.",
    ],
    examples: ["forge pull Qwen/Qwen3-0.6B", "forge run -m Qwen/Qwen3-0.6B -p 'Hello'"],
  }, () => import("./commands/pull.ts")),
  defineCommand({
    name: "list",
    summary: "list the models downloaded from the hub",
    description: ["Lists the downloaded models with their sizes and paths."],
    options: ["json", "verbose"],
    examples: ["forge list"],
  }, () => import("./commands/list.ts")),
  defineCommand({
    name: "rm",
    summary: "remove a downloaded model",
    description: [
      "Removes a downloaded model, by its name in forge list. Files that another downloaded model shares " +
      "are kept.",
    ],
    operands: [{
      name: "NAME",
      help: "name of the model in forge list",
      required: true,
      values: "downloads",
    }],
    options: ["verbose"],
    examples: ["forge rm Qwen/Qwen3-0.6B"],
  }, () => import("./commands/remove.ts")),
  defineCommand({
    name: "bench",
    summary: "measure the speed of prefill and decoding",
    description: [
      "Measures tokens per second: ppN is the prefill of N tokens, tgN the decoding of N tokens one at a " +
      "time, ppN+tgM both together, and @ dN a test with N tokens already in the KV cache. Options take " +
      "lists (128,512) and ranges (1-4, 0-1024+256, 128-2048*2).",
    ],
    options: [
      "benchModel",
      "synthetic",
      "device",
      "benchThreads",
      "quantize",
      "kvType",
      "attention",
      "products",
      "numa",
      "nPrompt",
      "nGen",
      "pair",
      "nDepth",
      "nBatch",
      "parallel",
      "repetitions",
      "benchOutput",
      "plot",
      "compare",
      "verbose",
    ],
    notes: [
      "Each test runs once to warm up, then -r times from the same KV cache; t/s is the mean ± the " +
      "sample standard deviation. Tokens are random. A prefill and each decoding step include greedy " +
      "sampling, but no tokenizer. GB/s counts the weights that decoding reads, also as a share of the " +
      "measured memory bandwidth; memory is the peak of the process so far. json, jsonl and csv use the " +
      "field names of llama-bench.",
      `Names for --synthetic: ${
        SYNTHETIC_NAMES.join(", ")
      }; or the path of a config.json, such as path/to/config.json:Q4_K. Types: ${
        SYNTHETIC_TYPES.join(", ")
      } (default: Q4_0); as in most files, the output matrix of a 4- or 5-bit model is Q6_K or ` +
      "Q8_0. The model is a temporary file that is removed afterwards.",
      "With --parallel B, B sequences have a prompt each and are then decoded together, one token each per " +
      "step; the table has the columns of llama-batched-bench: PP, TG, B, N_KV, and times T and speeds S " +
      "of prefill, decoding and both, over all sequences.",
      "Ctrl-C stops with exit code 130; completed measurements are printed.",
    ],
    examples: [
      "forge bench -m model.gguf -p 512,2048 -n 64 -t 1,2",
      "forge bench --synthetic llama-3.2-1b:Q4_0 --synthetic llama-3.2-1b:Q8_0",
      "forge bench --synthetic smollm2-135m:F16 -p 0 -n 128 -d 0,4096 -o json",
      "forge bench -m model.gguf -p 128 -n 64 --parallel 1-32*2 --plot speed.svg",
    ],
  }, () => import("./commands/bench.ts")),
  defineCommand({
    name: "doctor",
    summary: "check whether forge can run on this machine",
    description: [
      "Shows versions, the system, the native libraries and their search paths, the C++ compiler, and " +
      "missing permissions. The exit code is 1 if no model can run.",
    ],
    options: ["json", "verbose"],
    examples: ["forge doctor"],
  }, () => import("./commands/doctor.ts")),
  defineCommand({
    name: "completions",
    summary: "print a completion script for bash, zsh or fish",
    description: ["Prints a script that completes commands and options of forge in a shell."],
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
