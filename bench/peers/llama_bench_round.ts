/**
 * One round of llama.cpp or one of its forks, by its own `llama-bench`: reads a task from stdin and
 * prints a result. The arguments are the program and its additional options.
 */
import { ForgeError } from "../../src/errors.ts";
import type { RoundTask, RoundTimes } from "./round.ts";

/**
 * The fields used of an entry of the program's JSON. An entry is a prompt, generated tokens, or
 * tokens generated after a prompt. Some builds time only these tokens and call the test `tgN@ppM`.
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
  // forge samples its first token after the prompt; llama-bench does not.
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
