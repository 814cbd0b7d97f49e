/** Which lines of a batch are this machine's. */
import { ForgeError } from "../../errors.ts";
import { quote } from "../../formats/quote.ts";

/** The `index`-th of `count` parts. */
export interface Shard {
  /** From 1 to `count`. */
  readonly index: number;
  readonly count: number;
}

/** Whether a line, counted from 1, belongs to a shard: every `count`-th does. */
export function isInShard({ index, count }: Shard, line: number): boolean {
  return (line - index) % count === 0;
}

/**
 * Reads `I/N`, `auto` (from the variables of a Slurm array job) or `auto/N` (from those of a Kubernetes
 * indexed job, whose pods are not told how many they are).
 *
 * @param variable the value of an environment variable
 * @throws {ForgeError} `usage`
 */
export function parseShard(
  text: string,
  variable: (name: string) => string | undefined,
): Shard {
  const [, first = "", second] = /^(\d{1,9}|auto)(?:\/(\d{1,9}))?$/.exec(text) ?? [];
  const count = second === undefined ? undefined : Number(second);
  if (first === "auto") return automaticShard(count, variable);
  const index = Number(first);
  if (count === undefined || index < 1 || index > count) {
    throw new ForgeError(
      "usage",
      `--shard is ${quote(text)}; valid are I/N with I from 1 to N, such as 1/4, auto in a Slurm ` +
        `array job, and auto/N in a Kubernetes indexed job`,
    );
  }
  return { index, count };
}

function automaticShard(
  count: number | undefined,
  variable: (name: string) => string | undefined,
): Shard {
  const whole = (name: string) => {
    const text = variable(name);
    return text !== undefined && /^\d{1,9}$/.test(text) ? Number(text) : undefined;
  };
  const pod = whole("JOB_COMPLETION_INDEX");
  if (pod !== undefined && count !== undefined) {
    if (pod < count) return { index: pod + 1, count };
    throw new ForgeError("usage", `--shard auto/${count}: JOB_COMPLETION_INDEX is ${pod}`);
  }
  const task = whole("SLURM_ARRAY_TASK_ID");
  if (task !== undefined) return slurmShard(task, count, whole);
  const missing = pod === undefined
    ? "neither SLURM_ARRAY_TASK_ID nor JOB_COMPLETION_INDEX is set"
    : "a Kubernetes job does not tell how many pods it has: --shard auto/N";
  throw new ForgeError("usage", `--shard auto: ${missing}`);
}

function slurmShard(
  task: number,
  asked: number | undefined,
  whole: (name: string) => number | undefined,
): Shard {
  const [min, max, count, step = 1] = ["MIN", "MAX", "COUNT", "STEP"].map((name) =>
    whole(`SLURM_ARRAY_TASK_${name}`)
  );
  if (min === undefined || max === undefined || count === undefined) {
    throw new ForgeError("usage", "--shard auto: SLURM_ARRAY_TASK_MIN, _MAX or _COUNT is not set");
  }
  const index = (task - min) / step + 1;
  // Of an array such as 1,5,6 nobody can tell which of three shards each task is.
  const isEven = (max - min) / step + 1 === count && Number.isInteger(index) && index <= count;
  if (!isEven || (asked !== undefined && asked !== count)) {
    throw new ForgeError(
      "usage",
      `--shard auto${asked === undefined ? "" : `/${asked}`}: task ${task} of the ${count} tasks ` +
        `from ${min} to ${max} in steps of ${step} is no shard; name it: --shard I/N`,
    );
  }
  return { index, count };
}
