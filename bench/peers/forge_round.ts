/** One round of forge: reads a task from stdin, prints a result. */
import type { StepResult } from "../../src/backend.ts";
import { openBenchModel } from "../../src/bench/bench_model.ts";
import { UNSAMPLED } from "../../src/engine/runner.ts";
import { ForgeError } from "../../src/errors.ts";
import type { RoundResult, RoundTask } from "./round.ts";

const GREEDY = { ...UNSAMPLED, forcedToken: undefined };

/** The token that the only output of a run chose. */
function chosen(results: readonly StepResult[] | undefined): number {
  const result = results?.[0];
  if (result === undefined || result instanceof ForgeError) throw result;
  return result.token;
}

async function main(): Promise<void> {
  const task = JSON.parse(await new Response(Deno.stdin.readable).text()) as RoundTask;
  const { prompt, nGen } = task;
  using model = await openBenchModel(task.model, {
    name: task.model,
    device: "auto",
    threads: task.threads,
    contextLength: prompt.length + nGen,
  });
  const { runner } = model;

  const generate = async (): Promise<RoundResult> => {
    using table = runner.newSequence();
    const { maxTokens } = runner.limits;
    const start = performance.now();
    let token = 0;
    for (let at = 0; at < prompt.length; at += maxTokens) {
      const chunk = prompt.slice(at, at + maxTokens);
      const isLast = at + maxTokens >= prompt.length;
      const outputs = isLast ? [{ ...GREEDY, row: chunk.length - 1 }] : [];
      const [results] = await runner.run([{ table, tokens: chunk, start: at, outputs }]);
      if (isLast) token = chosen(results);
    }
    const prefilled = performance.now();
    for (let at = prompt.length; at < prompt.length + nGen - 1; at++) {
      const outputs = [{ ...GREEDY, row: 0 }];
      const [results] = await runner.run([{ table, tokens: [token], start: at, outputs }]);
      token = chosen(results);
    }
    return { prefill_ms: prefilled - start, decode_ms: performance.now() - prefilled };
  };
  await generate();
  console.log(JSON.stringify(await generate()));
}

if (import.meta.main) await main();
