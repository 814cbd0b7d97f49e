import { assert, assertEquals, assertThrows } from "@std/assert";
import { isInShard, parseShard } from "../../../src/cli/batch/shard.ts";
import { ForgeError } from "../../../src/errors.ts";

function shard(text: string, variables: Record<string, string> = {}) {
  const { index, count } = parseShard(text, (name) => variables[name]);
  return `${index}/${count}`;
}

function slurm(id: number, min: number, max: number, count: number, step?: number) {
  return {
    SLURM_ARRAY_TASK_ID: `${id}`,
    SLURM_ARRAY_TASK_MIN: `${min}`,
    SLURM_ARRAY_TASK_MAX: `${max}`,
    SLURM_ARRAY_TASK_COUNT: `${count}`,
    ...(step === undefined ? {} : { SLURM_ARRAY_TASK_STEP: `${step}` }),
  };
}

Deno.test("shards: every line belongs to exactly one shard", () => {
  for (const count of [1, 2, 3, 7]) {
    for (let line = 1; line < 50; line++) {
      const owners = Array.from(
        { length: count },
        (_, i) => isInShard({ index: i + 1, count }, line),
      );
      assertEquals(owners.filter((owns) => owns).length, 1);
      assertEquals(owners[(line - 1) % count], true);
    }
  }
});

Deno.test("shards: given by number or by the cluster's job variables", () => {
  assertEquals(shard("1/1"), "1/1");
  assertEquals(shard("3/4", slurm(0, 0, 1, 2)), "3/4");
  assertEquals([0, 1, 2].map((id) => shard("auto", slurm(id, 0, 2, 3))), ["1/3", "2/3", "3/3"]);
  assertEquals([1, 2].map((id) => shard("auto/2", slurm(id, 1, 2, 2, 1))), ["1/2", "2/2"]);
  assertEquals([2, 6, 10].map((id) => shard("auto", slurm(id, 2, 10, 3, 4))), [
    "1/3",
    "2/3",
    "3/3",
  ]);
  assertEquals(shard("auto/4", { JOB_COMPLETION_INDEX: "0" }), "1/4");
  assertEquals(shard("auto/4", { JOB_COMPLETION_INDEX: "3" }), "4/4");
  // A pod may be in a Slurm job.
  assertEquals(shard("auto/4", { JOB_COMPLETION_INDEX: "3", ...slurm(0, 0, 1, 2) }), "4/4");
});

Deno.test("shards: invalid shards are rejected", () => {
  const { SLURM_ARRAY_TASK_COUNT: _, ...uncounted } = slurm(1, 0, 1, 2);
  const refused: [shard: string, variables?: Record<string, string>, reason?: string][] = [
    ["0/4"],
    ["5/4"],
    ["1"],
    ["1/0"],
    ["-1/2"],
    ["a/b"],
    [""],
    ["auto", {}, "neither SLURM_ARRAY_TASK_ID nor JOB_COMPLETION_INDEX is set"],
    ["auto/4", {}, "neither SLURM_ARRAY_TASK_ID nor JOB_COMPLETION_INDEX is set"],
    ["auto/4", { JOB_COMPLETION_INDEX: "" }, "neither"],
    ["auto", { JOB_COMPLETION_INDEX: "1" }, "does not give its number of pods"],
    ["auto/4", { JOB_COMPLETION_INDEX: "4" }, "JOB_COMPLETION_INDEX is 4"],
    ["auto", { SLURM_ARRAY_TASK_ID: "1" }, "_MAX or _COUNT is not set"],
    ["auto", uncounted, "_MAX or _COUNT is not set"],
    // A sparse array such as 1,5,6, and a count that differs from the array's.
    ["auto", slurm(5, 1, 6, 3)],
    ["auto", slurm(2, 1, 6, 3)],
    ["auto/3", slurm(0, 0, 1, 2)],
    ["auto", slurm(4, 2, 10, 3, 4)],
    ["auto", slurm(14, 2, 10, 3, 4)],
  ];
  for (const [text, variables, reason] of refused) {
    const error = assertThrows(() => shard(text, variables), ForgeError, reason);
    assert(error.code === "usage" && error.message.startsWith("--shard"), error.message);
  }
});
