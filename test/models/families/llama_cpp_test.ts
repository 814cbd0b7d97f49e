/**
 * llama.cpp loads files that forge writes, and computes the same. Needs the package node-llama-cpp,
 * which `deno task bench peers` installs.
 */
import { assert, assertEquals } from "@std/assert";
import { join } from "@std/path";
import { isFile } from "../../../src/formats/file.ts";
import type { MixName } from "../../../src/formats/gguf/mixes.ts";
import { load, quantize } from "../../../src/mod.ts";
import { ROOT } from "../../support/checkout.ts";
import { TempFolder } from "../../support/temp_folder.ts";

const PACKAGE = join(ROOT, "build", "bench", "peers", "node_modules", "node-llama-cpp");
const MODULE = join(PACKAGE, "dist", "index.js");
const DEMO = join(ROOT, "models", "demo");
const PROMPT = "Once upon a time, Mia's 3 cats said: 'HELLO!'\n\n";

/** Result of a prompt: its tokens, and the probabilities of the next one. */
interface Evaluated {
  readonly tokens: readonly number[];
  readonly probabilities: readonly (readonly [token: number, probability: number])[];
}

async function evaluate(paths: readonly string[]): Promise<Evaluated[]> {
  const child = new Deno.Command("node", {
    args: [join(ROOT, "test", "support", "llama_cpp.mjs"), MODULE],
    stdin: "piped",
    stdout: "piped",
    stderr: "inherit",
  }).spawn();
  const jobs = paths.map((path) => ({ path, prompt: PROMPT }));
  const writer = child.stdin.getWriter();
  await writer.write(new TextEncoder().encode(JSON.stringify(jobs)));
  await writer.close();
  const { success, stdout } = await child.output();
  assert(success, "llama.cpp evaluates the prompts");
  return JSON.parse(new TextDecoder().decode(stdout));
}

function isInstalled(): boolean {
  if (isFile(MODULE)) return true;
  console.error("skipping: node-llama-cpp is not installed; deno task bench peers installs it");
  return false;
}

Deno.test({
  name: "llama.cpp computes the tokens and probabilities of written files",
  ignore: !isInstalled(),
  fn: async () => {
    using folder = new TempFolder();
    const types: readonly MixName[] = ["F16", "Q8_0", "Q4_K_M", "Q2_K"];
    const paths = types.map((type) => folder.at(`${type}.gguf`));
    for (const [i, type] of types.entries()) await quantize(DEMO, paths[i]!, { type });
    const results = await evaluate(paths);
    for (const [i, { tokens, probabilities }] of results.entries()) {
      await using model = await load(paths[i]!, { device: "reference" });
      assertEquals([...model.tokenizer.encode(PROMPT, { addSpecial: false })], tokens);
      const logits = await model.logits(Int32Array.from(tokens));
      const most = Math.max(...logits);
      const sum = logits.reduce((sum, logit) => sum + Math.exp(logit - most), 0);
      assertEquals(probabilities.length, logits.length);
      for (const [token, probability] of probabilities) {
        const own = Math.exp(logits[token]! - most) / sum;
        // llama.cpp rounds activations to 8 bits for products with quantised weights.
        assert(Math.abs(own - probability) < 0.02, `${types[i]}: ${own}, not ${probability}`);
      }
    }
  },
});
