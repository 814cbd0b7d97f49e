/**
 * One round of a build of llama.cpp or of a relative of it, by its own `llama-bench`: reads a task from
 * stdin, prints a result. The arguments are the program and what it is given besides.
 */
import { ForgeError } from "../../src/errors.ts";
import type { RoundTask, RoundTimes } from "./round.ts";

/** What is used of an entry of the program's JSON: a prompt, or tokens generated. */
interface Entry {
  readonly n_prompt: number;
  readonly n_gen: number;
  readonly avg_ns: number;
}

async function main(program: string, args: readonly string[]): Promise<void> {
  const task = JSON.parse(await new Response(Deno.stdin.readable).text()) as RoundTask;
  const { model, nPrompt, threads } = task;
  // forge's first token comes with the prompt; here none does.
  const nGen = task.nGen - 1;
  const { success, stdout, stderr } = await new Deno.Command(program, {
    // deno-fmt-ignore
    args: [
      "-m", model, "-p", `${nPrompt}`, "-n", `${nGen}`, "-t", `${threads}`, "-fa", "1",
      "-r", "1", "-o", "json", ...args,
    ],
    stdin: "null",
  }).output();
  const text = new TextDecoder();
  if (!success) throw new ForgeError("device", text.decode(stderr).trim());
  const entries = JSON.parse(text.decode(stdout)) as readonly Entry[];
  const milliseconds = (prompt: number, gen: number) => {
    const entry = entries.find(({ n_prompt, n_gen }) => n_prompt === prompt && n_gen === gen);
    if (entry === undefined) throw new ForgeError("device", `${program} measured something else`);
    return entry.avg_ns / 1e6;
  };
  const times: RoundTimes = {
    prefill_ms: milliseconds(nPrompt, 0),
    decode_ms: milliseconds(0, nGen),
  };
  console.log(JSON.stringify(times));
}

if (import.meta.main) {
  const [program = "llama-bench", ...args] = Deno.args;
  await main(program, args);
}
