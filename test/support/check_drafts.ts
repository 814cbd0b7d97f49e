/**
 * Checks drafts by a model's own layer on an emulated GPU, chains of wrong tokens and trees with
 * right ones: the program's answers are the CPU's.
 */
import { assert, assertEquals } from "@std/assert";
import { forge } from "../cli/forge.ts";
import { TempFolder } from "./temp_folder.ts";
import { writeForeseeingLlama, writeRandomLlama } from "./tiny_llama.ts";

const SCHEMA = { type: "object", properties: { a: { type: "integer" } }, required: ["a"] };

/** Requests that share steps. */
const LINES = [
  { prompt: "The fox", temperature: 0, max_tokens: 12 },
  { prompt: "The fox and the dog", temperature: 1, seed: 2, max_tokens: 10, logprobs: 2 },
  {
    prompt: "As JSON:",
    seed: 3,
    max_tokens: 12,
    response_format: { type: "json_schema", json_schema: { name: "a", schema: SCHEMA } },
  },
];

/** @param env environment in which the device is emulated */
export async function assertDraftsAsTheCpu(
  device: string,
  env: Readonly<Record<string, string>>,
): Promise<void> {
  using folder = new TempFolder();
  const lines = LINES.map((line, id) => `${JSON.stringify({ id, raw: true, ...line })}\n`);
  const input = folder.write("in.jsonl", lines.join(""));
  const writers = {
    right: writeForeseeingLlama,
    wrong: (path: string) => writeRandomLlama(path, { predictor: true }),
  };
  for (const [drafts, write] of Object.entries(writers)) {
    const model = folder.at(drafts);
    write(model);
    // In F32, devices round alike up to the last digits, which decide no token here.
    const args = ["run", "-m", model, "--batch", input, "--ordered", "--kv-type", "F32"];
    const answers = async (
      device: string,
      speculate: string,
      env: Readonly<Record<string, string>>,
    ) => {
      const tree = drafts === "right" ? "2" : "1";
      const flags = ["--device", device, "--speculate", speculate, "--draft-tree", tree];
      const { code, stdout, stderr } = await forge([...args, ...flags], { env });
      assertEquals([code, stderr], [0, ""]);
      const all = stdout.trimEnd().split("\n").map((line) => JSON.parse(line));
      const sum = (name: "drafted" | "accepted") =>
        all.reduce((total, { timings }) => total + timings[name], 0);
      return {
        texts: all.map(({ token_ids, finish_reason }) => [token_ids, finish_reason]),
        drafted: sum("drafted"),
        accepted: sum("accepted"),
      };
    };
    const plain = await answers("cpu", "off", {});
    const { texts, drafted, accepted } = await answers(device, "3", env);
    assertEquals(texts, plain.texts);
    assert(drafted > 8, `only ${drafted} drafted`);
    assert(drafts === "right" ? accepted > drafted / 3 : accepted < drafted / 2, `${accepted}`);
  }
}
