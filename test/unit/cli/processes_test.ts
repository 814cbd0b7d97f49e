/** Numbers and addresses of processes, from the variables of each launcher. */
import {
  assert,
  assertEquals,
  assertRejects,
  assertStringIncludes,
  assertThrows,
} from "@std/assert";
import { COMMANDS } from "../../../src/cli/commands.ts";
import { runDistributed } from "../../../src/cli/commands/distributed.ts";
import { firstNode, processOptions } from "../../../src/cli/model/processes.ts";
import { parseCommandLine } from "../../../src/cli/parse.ts";
import { ForgeError } from "../../../src/errors.ts";
import { TempFolder } from "../../support/temp_folder.ts";

const SECRET = { FORGE_SECRET: "0123456789abcdef" };

type Variables = Readonly<Record<string, string>>;

function placeOf(variables: Variables, flags: { master?: string } = {}): unknown[] {
  const given: Variables = { ...SECRET, ...variables };
  const options = processOptions({ distributed: true, ...flags }, (name) => given[name]);
  if (options === undefined) return [];
  const { index, count, localIndex, host, port } = options;
  return [index, count, localIndex, host, port];
}

const OPEN_MPI = {
  OMPI_COMM_WORLD_RANK: "5",
  OMPI_COMM_WORLD_SIZE: "8",
  OMPI_COMM_WORLD_LOCAL_RANK: "1",
  OMPI_COMM_WORLD_LOCAL_SIZE: "4",
};
const SLURM = {
  SLURM_PROCID: "3",
  SLURM_NTASKS: "16",
  SLURM_STEP_NUM_TASKS: "4",
  SLURM_LOCALID: "1",
  SLURM_JOB_ID: "1234567",
  SLURM_JOB_NODELIST: "n[01-04]",
  SLURM_STEP_NODELIST: "n[03-04],gpu7",
};
const TORCHRUN = {
  RANK: "9",
  WORLD_SIZE: "16",
  LOCAL_RANK: "1",
  MASTER_ADDR: "10.0.0.1",
  MASTER_PORT: "29400",
};

Deno.test("processes: each launcher's variables, the most specific first", () => {
  assertEquals(placeOf(TORCHRUN), [9, 16, 1, "10.0.0.1", 29400]);
  const { LOCAL_RANK: _local, ...placeless } = TORCHRUN;
  assertEquals(placeOf(placeless), [9, 16, 0, "10.0.0.1", 29400]);
  assertEquals(placeOf({ ...TORCHRUN, ...SLURM }), [9, 16, 1, "10.0.0.1", 29400]);
  assertEquals(placeOf(OPEN_MPI, { master: "head" }), [5, 8, 1, "head", 29555]);
  const onOne = { ...OPEN_MPI, OMPI_COMM_WORLD_LOCAL_SIZE: "8" };
  assertEquals(placeOf({ ...SLURM, ...onOne }), [5, 8, 1, "127.0.0.1", 29555]);
  assertEquals(placeOf(SLURM), [3, 4, 1, "n03", 29555 + 567]);
  assertEquals(placeOf({ ...SLURM, MASTER_PORT: "5000" }), [3, 4, 1, "n03", 5000]);
  assertEquals(placeOf({ ...SLURM, MASTER_ADDR: "n04" }), [3, 4, 1, "n04", 29555]);
  const mpich = { PMI_RANK: "1", PMI_SIZE: "2", MPI_LOCALRANKID: "0", FORGE_MASTER: "[::1]:99" };
  assertEquals(placeOf(mpich), [1, 2, 0, "::1", 99]);
  const pod = {
    JOB_COMPLETION_INDEX: "2",
    FORGE_WORLD_SIZE: "3",
    FORGE_MASTER: "forge-0.forge:80",
  };
  assertEquals(placeOf(pod), [2, 3, 0, "forge-0.forge", 80]);
  assertEquals(
    placeOf({ ...SLURM, FORGE_RANK: "0", FORGE_WORLD_SIZE: "2", FORGE_LOCAL_RANK: "1" }),
    [0, 2, 1, "n03", 29555 + 567],
  );
  const { SLURM_STEP_NODELIST: _nodes, SLURM_STEP_NUM_TASKS: _tasks, ...job } = SLURM;
  assertEquals(placeOf(job), [3, 16, 1, "n01", 29555 + 567]);
  const { SLURM_JOB_ID: _, ...noJob } = SLURM;
  assertEquals(placeOf(noJob), [3, 4, 1, "n03", 29555]);
  const { FORGE_WORLD_SIZE, ...others } = pod;
  const { FORGE_MASTER: _master, ...index } = { ...others, WORLD_SIZE: FORGE_WORLD_SIZE };
  assertEquals(placeOf({ ...others, ...index }), [2, 3, 0, "forge-0.forge", 80]);
  assertEquals(placeOf(pod, { master: "first:81" }), [2, 3, 0, "first", 81]);
  assertEquals(placeOf({ ...TORCHRUN, RANK: "0", WORLD_SIZE: "1" }), []);
  assertEquals(processOptions({}), undefined);
});

Deno.test("processes: a server of one model is accepted, and one of several is not", async () => {
  const command = COMMANDS.find(({ name }) => name === "serve")!;
  const context = { verbose: false, interruptSignal, terminateSignal: interruptSignal };
  const several = "--distributed serves a single model";
  for (
    const [more, message] of [
      [[], "--distributed: "],
      [["-m", "b"], several],
      [["--keep-alive", "5m"], several],
      [["--models-dir", "c"], several],
    ] as const
  ) {
    const parsed = parseCommandLine(["serve", "--distributed", "-m", "a", ...more]);
    assert(parsed.kind === "command");
    const run = () => runDistributed(command, parsed.options, parsed.operands, context);
    await assertRejects(run, ForgeError, message);
  }
});

function interruptSignal(): AbortSignal {
  return new AbortController().signal;
}

Deno.test("processes: the first of Slurm's nodes", () => {
  for (
    const [list, first] of [
      ["gpu3", "gpu3"],
      ["n[07-12,15],gpu3", "n07"],
      ["rack1-n[7,9]", "rack1-n7"],
      ["a,b[1-2]", "a"],
      ["c[01-02]-ib", "c01-ib"],
    ] as const
  ) assertEquals(firstNode(list), first);
});

Deno.test("processes: variables that are missing or not valid are named", () => {
  const rank = { FORGE_RANK: "1", FORGE_WORLD_SIZE: "2" };
  const secretless = { ...rank, FORGE_SECRET: "", FORGE_MASTER: "a" };
  for (
    const [variables, message, flags] of [
      [{}, "no launcher has set the number of this process"],
      [{ JOB_COMPLETION_INDEX: "0" }, "FORGE_WORLD_SIZE"],
      [{ ...rank, FORGE_RANK: "x" }, 'FORGE_RANK is "x"; expected a number'],
      [rank, "the address of process 0 is not known"],
      [OPEN_MPI, "the address of process 0 is not known"],
      [{ ...rank, FORGE_MASTER: "a:b:c" }, '--master is "a:b:c"; valid is HOST or HOST:PORT'],
      [rank, '--master is "host:123456"', { master: "host:123456" }],
      [{ ...secretless, FORGE_SECRET_FILE: "/none" }, 'FORGE_SECRET_FILE: cannot read "/none"'],
      [secretless, "set FORGE_SECRET"],
    ] as const
  ) {
    const given: Variables = { ...SECRET, ...variables };
    const read = () =>
      processOptions({ distributed: true, ...flags }, (name) => given[name] || undefined);
    const error = assertThrows(read, ForgeError);
    assertStringIncludes(error.message, message);
  }
  for (const flags of [{ master: "a" }, { joinTimeout: 5 }]) {
    assertThrows(() => processOptions(flags), ForgeError, "need --distributed");
  }
  using folder = new TempFolder();
  const file = folder.write("secret", "a secret in a file\n");
  const inFile: Variables = { ...rank, FORGE_MASTER: "a", FORGE_SECRET_FILE: file };
  const options = processOptions({ distributed: true }, (name) => inFile[name]);
  assertEquals([options?.secret, options?.timeout], ["a secret in a file", undefined]);
  const both: Variables = { ...inFile, ...SECRET };
  const given = processOptions({ distributed: true, joinTimeout: 5 }, (name) => both[name]);
  assertEquals([given?.secret, given?.timeout], [SECRET.FORGE_SECRET, 5]);
});
