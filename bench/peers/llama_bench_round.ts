/**
 * One round of a build of llama.cpp or of a relative of it, by its own `llama-bench`: reads a task from
 * stdin, prints a result. The arguments are the program and what it is given besides.
 */
import { ForgeError } from "../../src/errors.ts";
import type { RoundTask, RoundTimes } from "./round.ts";

/**
 * What is used of an entry of the program's JSON: a prompt, tokens generated, or tokens generated
 * behind a prompt, of which some builds time the tokens alone and call the test `tgN@ppM`.
 */
interface Entry {
  readonly n_prompt: number;
  readonly n_gen: number;
  readonly avg_ns: number;
  readonly test?: string;
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
  const milliseconds = (isMeant: (entry: Entry) => boolean) => {
    const entry = entries.find(isMeant);
    if (entry === undefined) throw new ForgeError("device", `${program} measured something else`);
    return entry.avg_ns / 1e6;
  };
  const isBehind = ({ test }: Entry) => test === `tg${nGen}@pp${nPrompt}`;
  const isAlone = ({ n_prompt, n_gen }: Entry) => n_prompt === 0 && n_gen === nGen;
  const times: RoundTimes = {
    prefill_ms: milliseconds(({ n_prompt, n_gen }) => n_prompt === nPrompt && n_gen === 0),
    decode_ms: milliseconds(entries.some(isBehind) ? isBehind : isAlone),
  };
  console.log(JSON.stringify(times));
}

if (import.meta.main) {
  const [program = "llama-bench", ...args] = Deno.args;
  await main(program, args);
}
