/**
 * Whole models on the CUDA device: the bundled model against the CPU, token by token, and models of
 * the shared test data against independent programs: `models.ts [--emulated]`. Prints the lines of
 * `lines.ts`.
 */
import { bundledModel } from "../../src/cli/model/model_path.ts";
import { ForgeError, load, type LoadOptions } from "../../src/mod.ts";
import {
  assertClose,
  assertMatchesReference,
  readJson,
  type Reference,
} from "../../test/models/reference_check.ts";
import { sharedAvailable, sharedPath } from "../../test/support/shared.ts";
import { say } from "./lines.ts";

/** Relative errors of logits with F32 caches and with 16-bit caches. */
const TOLERANCES = { F32: 1e-3, F16: 5e-3 } as const;

async function main(args: readonly string[]): Promise<boolean> {
  const emulated = args.includes("--emulated");
  const checks: (readonly [string, () => Promise<void>])[] = [
    ...bundledChecks(emulated ? 2 : 96),
    ...tinyChecks(emulated ? ["llama"] : undefined),
    ...(emulated ? [] : [...storyChecks(), ...quantizedChecks()]),
  ];
  let all = true;
  for (const [name, check] of checks) {
    try {
      await check();
      say({ kind: "check", name, passed: true });
    } catch (error) {
      all = false;
      say({ kind: "check", name, passed: false, detail: String(error) });
    }
  }
  return all;
}

/**
 * Checks that the bundled model gives the same tokens as on the CPU: greedy, drawn, and batched.
 */
function* bundledChecks(tokens: number): Generator<readonly [string, () => Promise<void>]> {
  const prompts = ["Once upon a time", "One day, a little girl"];
  const chains = {
    greedy: { temperature: 0 },
    drawn: { temperature: 0.8, topK: 40, topP: 0.9, seed: 7 },
  };
  for (const [name, chain] of Object.entries(chains)) {
    const answers = async (options: LoadOptions) => {
      await using model = await load(bundledModel(), { ...options, parallel: 2 });
      const generated = await Promise.all(
        prompts.map((prompt) => model.complete(prompt, { ...chain, maxTokens: tokens })),
      );
      return generated.map(({ tokenIds }) => [...tokenIds]);
    };
    yield [`the bundled model, ${name}`, async () => {
      const expected = await answers({ device: "cpu", kvType: "F32" });
      const actual = await answers({ device: "cuda", kvType: "F32" });
      expected.forEach((ids, i) => {
        const parting = ids.findIndex((id, at) => actual[i]?.[at] !== id);
        if (parting >= 0) {
          const ours = actual[i]?.[parting];
          throw new Error(`answer ${i}: token ${parting} is ${ours}, on the CPU ${ids[parting]}`);
        }
      });
    }];
  }
}

function* tinyChecks(
  only: readonly string[] | undefined,
): Generator<readonly [string, () => Promise<void>]> {
  if (!sharedAvailable("models", "tiny")) return;
  const families = Array.from(Deno.readDirSync(sharedPath("models", "tiny")), ({ name }) => name);
  for (const family of families.sort()) {
    if (only !== undefined && !only.includes(family)) continue;
    for (const kvType of ["F32", "F16"] as const) {
      const folder = sharedPath("models", "tiny", family);
      yield [`tiny ${family}, ${kvType} caches`, async () => {
        const reference = readJson<Reference>(`${folder}/reference.json`);
        const logits = TOLERANCES[kvType];
        try {
          await assertMatchesReference(folder, { device: "cuda", kvType }, reference, {
            logits,
            logLikelihood: 2 * logits,
          });
        } catch (error) {
          if (!(error instanceof ForgeError && error.code === "unsupported")) throw error;
        }
      }];
    }
  }
}

function* storyChecks(): Generator<readonly [string, () => Promise<void>]> {
  if (!sharedAvailable("models", "stories260K")) return;
  const { greedy_ids } = readJson<{ greedy_ids: number[] }>(
    sharedPath("models", "stories260K", "expected.json"),
  );
  for (const file of ["", "stories260K-f32.gguf"]) {
    yield [`stories260K ${file || "as a folder"}`, async () => {
      const path = sharedPath("models", "stories260K", file);
      await using model = await load(path, { device: "cuda", kvType: "F32" });
      const generated = await model.complete("", { raw: true, temperature: 0, maxTokens: 256 });
      const parting = greedy_ids.findIndex((id, i) => generated.tokenIds[i] !== id);
      if (parting >= 0) throw new Error(`token ${parting} is ${generated.tokenIds[parting]}`);
    }];
  }
}

function* quantizedChecks(): Generator<readonly [string, () => Promise<void>]> {
  if (!sharedAvailable("models", "quant256")) return;
  const { models } = readJson<{ models: Record<string, Reference & { readonly file: string }> }>(
    sharedPath("models", "quant256", "reference.json"),
  );
  for (const [type, reference] of Object.entries(models)) {
    yield [`quant256 ${type}`, async () => {
      const path = sharedPath("models", "quant256", reference.file);
      await using model = await load(path, { device: "cuda", kvType: "F32" });
      const logits = await model.logits(Int32Array.from(reference.prompt_ids));
      assertClose(logits, reference.logits_last, TOLERANCES.F16);
    }];
  }
}

if (import.meta.main && !await main(Deno.args)) Deno.exit(1);
