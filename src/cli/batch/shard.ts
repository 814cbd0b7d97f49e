/** Shards of a batch. */
import { ForgeError } from "../../errors.ts";
import { quote } from "../../formats/quote.ts";

/** The `index`-th of `count` parts. */
export interface Shard {
  /** From 1 to `count`. */
  readonly index: number;
  readonly count: number;
}

/** True if a line, counted from 1, belongs to a shard: every `count`-th line does. */
export function isInShard({ index, count }: Shard, line: number): boolean {
  return (line - index) % count === 0;
}

/**
 * Parses `I/N`, `auto` (in a Slurm array job) or `auto/N` (in a Kubernetes indexed job, whose pods
 * do not get their number).
 *
 * @param variable returns the value of an environment variable
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
    const text = variable(name) ?? "";
    return /^\d{1,9}$/.test(text) ? Number(text) : undefined;
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
    : "a Kubernetes job does not give its number of pods; name it: --shard auto/N";
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
  // In an array such as 1,5,6 the shard of a task is not defined.
  const isEven = (max - min) / step + 1 === count && Number.isInteger(index) && index <= count;
  if (!isEven || (asked !== undefined && asked !== count)) {
    throw new ForgeError(
      "usage",
      `--shard auto${asked === undefined ? "" : `/${asked}`}: task ${task} of ${count} tasks ` +
        `from ${min} to ${max} in steps of ${step} has no shard; name it: --shard I/N`,
    );
  }
  return { index, count };
}
