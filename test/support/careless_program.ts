/**
 * Programs that leave their model open, or write to its file while it is in use. Each runs in a
 * separate process, which a bug in the library would end by a signal.
 */
import { assertEquals, assertMatch } from "@std/assert";
import { load, type Model } from "../../src/mod.ts";
import { ROOT } from "./checkout.ts";
import { TempFolder } from "./temp_folder.ts";
import { writeEndlessLlama } from "./tiny_llama.ts";

const PROMPT = "Once upon a time";
const CHANGED = /model\.safetensors was written to while it was in use/;

/** A program's use of its model and of the weight file, and its end. */
interface Program {
  readonly run: (model: Model, weights: string) => Promise<void>;
  readonly code: number;
  /** Matches its output. */
  readonly output: RegExp;
}

/** Waits until a long answer has started. */
async function beginLongAnswer(model: Model): Promise<AsyncIterator<unknown>> {
  const pieces = model.generate(PROMPT, { maxTokens: 20_000 })[Symbol.asyncIterator]();
  await pieces.next();
  return pieces;
}

async function readOn(pieces: AsyncIterator<unknown>): Promise<void> {
  while (!(await pieces.next()).done);
}

/** Prints the error of an answer, caused by the change of the file. */
async function failToComplete(model: Model): Promise<void> {
  try {
    await model.complete(PROMPT, { maxTokens: 4 });
  } catch (error) {
    console.log(String(error));
  }
}

/** The programs by name. */
export const CARELESS = {
  "ends without closing": { run: async () => {}, code: 0, output: /^$/ },
  "calls Deno.exit": { run: () => Deno.exit(7), code: 7, output: /^$/ },
  "calls Deno.exit during an answer": {
    run: async (model) => {
      readOn(await beginLongAnswer(model));
      await new Promise((resolve) => setTimeout(resolve, 20));
      Deno.exit(7);
    },
    code: 7,
    output: /^$/,
  },
  "throws": {
    run: () => Promise.reject(new Error("nobody catches this")),
    code: 1,
    output: /nobody catches this/,
  },
  "throws during an answer": {
    run: async (model) => {
      readOn(await beginLongAnswer(model));
      await new Promise((resolve) => setTimeout(resolve, 20));
      throw new Error("nobody catches this");
    },
    code: 1,
    output: /nobody catches this/,
  },
  "truncates the weights": {
    run: async (model, weights) => {
      Deno.truncateSync(weights, 512);
      await failToComplete(model);
    },
    code: 0,
    output: CHANGED,
  },
  "truncates the weights during an answer": {
    run: async (model, weights) => {
      const pieces = await beginLongAnswer(model);
      Deno.truncateSync(weights, 512);
      try {
        await readOn(pieces);
      } catch (error) {
        console.log(String(error));
      }
    },
    code: 0,
    output: CHANGED,
  },
  "overwrites the weights": {
    run: async (model, weights) => {
      Deno.writeFileSync(weights, Deno.readFileSync(weights));
      await failToComplete(model);
    },
    code: 0,
    output: CHANGED,
  },
  "replaces the weights by renaming": {
    run: async (model, weights) => {
      Deno.writeFileSync(`${weights}.new`, new Uint8Array(512));
      Deno.renameSync(`${weights}.new`, weights);
      await failToComplete(model);
    },
    code: 0,
    output: /^$/,
  },
} as const satisfies Record<string, Program>;

export type CarelessProgram = keyof typeof CARELESS;

/** Runs a program on a device, from a folder that is not the checkout, and checks its end. */
export async function assertEndsCleanly(
  name: CarelessProgram,
  device: string,
  env: Readonly<Record<string, string>> = {},
): Promise<void> {
  using folder = new TempFolder();
  const model = writeEndlessLlama(folder.at("model")).folder;
  const { code, signal, stdout, stderr } = await new Deno.Command(Deno.execPath(), {
    args: [
      "run",
      "--allow-all",
      "--no-check",
      `--config=${ROOT}/deno.json`,
      `${ROOT}/test/support/careless_program.ts`,
      ...[name, device, model],
    ],
    cwd: folder.path,
    env: { NO_COLOR: "1", ...env },
    stdin: "null",
  }).output();
  const output = [stdout, stderr].map((bytes) => new TextDecoder().decode(bytes)).join("");
  assertEquals({ code, signal }, { code: CARELESS[name].code, signal: null }, output);
  assertMatch(output, CARELESS[name].output);
}

if (import.meta.main) {
  const [name = "", device = "", folder = ""] = Deno.args;
  const model = await load(folder, { device });
  await model.complete(PROMPT, { maxTokens: 2 });
  await CARELESS[name as CarelessProgram].run(model, `${folder}/model.safetensors`);
}
