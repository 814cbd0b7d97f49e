/** Tests a batch as a Slurm array, with one task killed and requeued. */
import { assert, assertEquals } from "@std/assert";
import { TempFolder } from "../support/temp_folder.ts";
import { writeRandomLlama } from "../support/tiny_llama.ts";
import { until } from "../support/wait.ts";
import { denoArgs } from "./forge.ts";
import { SlurmCluster, whyNoSlurm } from "./slurm.ts";

const LINES = 100;
/** Milliseconds after which a test counts as hanging, even on a busy machine. */
const DEADLINE = 600_000;

const reason = whyNoSlurm();
if (reason !== undefined) console.error(`skipping: ${reason}`);

function linesOf(path: string): string[] {
  try {
    return Deno.readTextFileSync(path).split("\n").slice(0, -1);
  } catch {
    return [];
  }
}

Deno.test({
  name: "batch: a Slurm array answers every line once, even if a task is killed and requeued",
  ignore: reason !== undefined,
  async fn() {
    using folder = new TempFolder();
    writeRandomLlama(folder.at("model"));
    const line = (_: unknown, i: number) => `{"id":"p${i}","prompt":"prompt ${i}"}\n`;
    folder.write("prompts.jsonl", Array.from({ length: LINES }, line).join(""));
    const command = [Deno.execPath(), ...denoArgs(["run", "-m", folder.at("model")])];
    // As in README.md, but with the full command, and with input through a pipe. The first run of
    // the first task gets endless input, so that it cannot finish before it is killed.
    const script = folder.write(
      "job.sh",
      `#!/bin/bash
#SBATCH --array=0-1
#SBATCH --requeue
[ -z "$SLURM_RESTART_COUNT" ] || wc -l < "answers-$SLURM_ARRAY_TASK_ID.jsonl" > resumed
lines() {
  if [ "$SLURM_ARRAY_TASK_ID$SLURM_RESTART_COUNT" != 0 ]; then
    cat prompts.jsonl
  else
    head -n ${LINES / 2} prompts.jsonl
    sleep infinity
  fi
}
lines | ${command.map((part) => `'${part}'`).join(" ")} -t 1 -n 8 --batch - \\
  -o "answers-$SLURM_ARRAY_TASK_ID.jsonl" --shard auto --resume
`,
    );
    await using cluster = new SlurmCluster();
    const wait = (condition: () => boolean | Promise<boolean>, what: string) =>
      until(condition, {
        what: () => `${what}:\n${cluster.log()}`,
        patienceMs: DEADLINE,
        pauseMs: 100,
      });
    await wait(
      async () => (await cluster.command("sinfo", "-h", "-o", "%T").catch(() => "")) === "idle",
      "the node is idle",
    );
    const log = folder.at("job.log");
    const output = ["--open-mode=append", `--output=${log}`];
    const job = await cluster.command("sbatch", "--parsable", "-D", folder.path, ...output, script);
    const answers = [0, 1].map((task) => folder.at(`answers-${task}.jsonl`));
    const hasBegun = () => {
      const failure = linesOf(log).find((line) => line.includes("error"));
      if (failure !== undefined) throw new Error(failure);
      return linesOf(answers[0]!).length > 5;
    };
    await wait(hasBegun, "the first task has written");
    await cluster.command("scontrol", "requeue", `${job}_0`);
    const isOver = async () =>
      answers.every((path) => linesOf(path).length >= LINES / 2) &&
      (await cluster.command("squeue", "-h", "-j", job).catch(() => "")) === "";
    await wait(isOver, "both tasks are over");
    const before = Number(Deno.readTextFileSync(folder.at("resumed")));
    assert(before > 5 && before <= LINES / 4, `it was killed after ${before} lines`);

    const merged = answers.flatMap(linesOf).map((text) => JSON.parse(text));
    assertEquals(answers.map((path) => linesOf(path).length), [LINES / 2, LINES / 2]);
    assertEquals(new Set(merged.map(({ id }) => id)).size, LINES);
    assert(merged.every(({ text }) => typeof text === "string"));
  },
});
