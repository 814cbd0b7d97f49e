/**
 * A model that several processes of this machine divide, on emulated GPUs: started by hand, by
 * mpirun and by srun. Exchanges go through the stand-in for NCCL, messages over loopback.
 */
import { assert, assertEquals, assertMatch, assertStringIncludes } from "@std/assert";
import { isFile } from "../../src/formats/file.ts";
import { denoArgs, type Outcome } from "../cli/forge.ts";
import { freePort, SlurmCluster, whyNoSlurm } from "../cli/slurm.ts";
import { TempFolder } from "../support/temp_folder.ts";
import { writeLlamaAdapter, writeRandomLlama } from "../support/tiny_llama.ts";
import { emulatedGpu, emulatedGpuUnavailable, type FakeOptions } from "./emulated_gpu.ts";

const ignore = emulatedGpuUnavailable() !== undefined;
const SECRET = "a secret of this test";

/** Milliseconds in which all processes end after one has failed, on a busy machine. */
const END_MS = 30_000;

/** Processes of a group, one after another. */
class Processes {
  readonly children: readonly Deno.ChildProcess[];
  readonly #outputs: readonly Promise<Deno.CommandOutput>[];

  private constructor(children: readonly Deno.ChildProcess[]) {
    this.children = children;
    this.#outputs = children.map((child) => child.output());
  }

  /**
   * Starts `count` processes with the same arguments.
   *
   * @param gpu options of the emulated GPUs of each process, or of all
   * @param env variables of each process
   */
  static async start(
    count: number,
    args: readonly string[],
    gpu: FakeOptions | ((index: number) => FakeOptions),
    env: (index: number) => Readonly<Record<string, string>> = () => ({}),
  ): Promise<Processes> {
    const port = freePort();
    const start = async (index: number) =>
      new Deno.Command(Deno.execPath(), {
        args: denoArgs([...args, "--distributed"]),
        env: {
          ...await emulatedGpu(typeof gpu === "function" ? gpu(index) : gpu),
          NO_COLOR: "1",
          FORGE_RANK: `${index}`,
          FORGE_WORLD_SIZE: `${count}`,
          FORGE_MASTER: `127.0.0.1:${port}`,
          FORGE_SECRET: SECRET,
          ...env(index),
        },
        stdin: "null",
        stdout: "piped",
        stderr: "piped",
      }).spawn();
    return new Processes(await Promise.all(Array.from({ length: count }, (_, i) => start(i))));
  }

  async outcomes(): Promise<Outcome[]> {
    const decoder = new TextDecoder();
    return (await Promise.all(this.#outputs)).map(({ code, stdout, stderr }) => ({
      code,
      stdout: decoder.decode(stdout),
      stderr: decoder.decode(stderr),
    }));
  }
}

/** A model, and a batch file with greedy, sampled and constrained lines. */
class Fixture implements Disposable {
  readonly #folder = new TempFolder();
  readonly model = this.#folder.at("model");
  readonly adapter = this.#folder.at("adapter");
  readonly input: string;

  constructor(nLines = 3) {
    writeRandomLlama(this.model);
    writeLlamaAdapter(this.adapter);
    const lines = Array.from({ length: nLines }, (_, i) => {
      const more = i % 2 === 0 ? { temperature: 0 } : { temperature: 0.8, regex: "[a-z ]+" };
      const prompt = `prompt ${i} `.repeat(1 + 2 * (i % 3));
      const line = { id: i, prompt, raw: true, max_tokens: 5, seed: i, ...more };
      return `${JSON.stringify(line)}\n`;
    });
    this.input = this.#folder.write("in.jsonl", lines.join(""));
  }

  at(name: string): string {
    return this.#folder.at(name);
  }

  batch(...flags: string[]): string[] {
    const args = ["run", "-m", this.model, "--device", "cuda", "--batch", this.input];
    return [...args, "--parallel", "2", ...flags];
  }

  prompt(...flags: string[]): string[] {
    const args = ["run", "-m", this.model, "--raw", "-p", "Hello", "-n", "12", "--temp", "0"];
    return [...args, "--tensor-parallel", "2", ...flags];
  }

  [Symbol.dispose](): void {
    this.#folder[Symbol.dispose]();
  }
}

function tokensOf({ stdout }: Outcome): unknown[] {
  return stdout.split("\n").slice(0, -1).map((line) => JSON.parse(line).token_ids);
}

/** Returns the outcome of one process, which is none of several. */
async function alone(args: readonly string[], gpu: FakeOptions): Promise<Outcome> {
  const env = { ...await emulatedGpu(gpu), NO_COLOR: "1" };
  const command = { args: denoArgs(args), env, stdin: "null" } as const;
  const { code, stdout, stderr } = await new Deno.Command(Deno.execPath(), command).output();
  const decoder = new TextDecoder();
  return { code, stdout: decoder.decode(stdout), stderr: decoder.decode(stderr) };
}

Deno.test({
  name: "processes: they give the answers of one process with the same division",
  ignore,
  fn: async () => {
    using fixture = new Fixture();
    for (
      const [count, ranks, stages] of [[2, 2, 1], [2, 1, 2], [4, 2, 2]] as const
    ) {
      const division = ["--tensor-parallel", `${ranks}`, "--pipeline-parallel", `${stages}`];
      const flags = [...division, "--lora", fixture.adapter];
      const args = fixture.batch("--ordered", ...flags);
      const devices = ranks * stages;
      const expected = await alone(args, { devices });
      assertEquals(expected.code, 0, expected.stderr);
      // As many devices as a process needs, as a scheduler that divides them shows it.
      const gpu = { devices: devices / count, strict_exit: 1 };
      const trace = () => ({ FORGE_CUDA_TRACE: "1" });
      const processes = await Processes.start(count, args, gpu, trace);
      const [first, ...others] = await processes.outcomes();
      assertEquals(first!.code, 0, first!.stderr);
      assertEquals(tokensOf(first!), tokensOf(expected));
      assertMatch(first!.stderr, /^(graph for|series of) \d+ tokens/m);
      for (const other of others) {
        assertEquals([other.code, other.stdout], [0, ""], other.stderr);
        assertMatch(other.stderr, /^(graph for|series of) \d+ tokens/m);
      }
    }
  },
});

Deno.test({
  name: "processes: a server answers for all",
  ignore,
  fn: async () => {
    using fixture = new Fixture();
    const port = freePort();
    const flags = ["--device", "cuda", "--pipeline-parallel", "2", "--port", `${port}`];
    const args = ["serve", "-m", fixture.model, ...flags];
    const processes = await Processes.start(2, args, { devices: 1 });
    const body = JSON.stringify({ prompt: "Hello", max_tokens: 5, temperature: 0 });
    const ask = async (): Promise<Response> => {
      try {
        const address = `http://127.0.0.1:${port}/v1/completions`;
        const response = await fetch(address, { method: "POST", body });
        if (response.status !== 503) return response;
        await response.body?.cancel();
      } catch {
        // It does not listen yet.
      }
      await new Promise((resolve) => setTimeout(resolve, 100));
      return await ask();
    };
    const response = await ask();
    const { choices } = await response.json();
    assertEquals(response.status, 200);
    for (const child of processes.children) child.kill("SIGTERM");
    const outcomes = await processes.outcomes();
    assertEquals(outcomes.map(({ code }) => code), [0, 0], outcomes[1]!.stderr);
    const prompt = ["run", "-m", fixture.model, "--device", "cuda", "--raw", "-p", "Hello"];
    const { stdout } = await alone([...prompt, "-n", "5", "--temp", "0"], { devices: 1 });
    assertEquals(choices[0].text, stdout);
  },
});

Deno.test({
  name: "processes: one that is killed ends all, and answers that are written stay",
  ignore,
  fn: async () => {
    using fixture = new Fixture(400);
    for (const killed of [1, 0]) {
      const output = fixture.at(`out-${killed}.jsonl`);
      const args = fixture.batch("-o", output, "--tensor-parallel", "2");
      const processes = await Processes.start(2, args, { devices: 1 });
      const lines = () => isFile(output) ? Deno.readTextFileSync(output).split("\n") : [];
      while (lines().length < 4) await new Promise((resolve) => setTimeout(resolve, 50));
      processes.children[killed]!.kill("SIGKILL");
      const since = performance.now();
      const outcomes = await processes.outcomes();
      assert(performance.now() - since < END_MS);
      const left = outcomes[1 - killed]!;
      assertEquals(left.code, 1);
      assertStringIncludes(left.stderr, `error: process ${killed} (127.0.0.1) ended`);
      assert(!left.stderr.includes("fake NCCL"), left.stderr);
      const written = lines();
      assert(written.length >= 4);
      for (const line of written.slice(0, -1)) assertEquals(JSON.parse(line).error, undefined);
    }
  },
});

Deno.test({
  name: "processes: failures of one process end all with its error",
  ignore,
  fn: async () => {
    using fixture = new Fixture();
    for (const failing of [0, 1]) {
      const gpu = (index: number): FakeOptions => index === failing ? { lost: 60 } : {};
      const processes = await Processes.start(2, fixture.prompt(), gpu);
      const outcomes = await processes.outcomes();
      assertEquals(outcomes.map(({ code }) => code), [1, 1]);
      for (const { stderr } of outcomes) assertStringIncludes(stderr, "CUDA_ERROR");
      const [, other] = failing === 0 ? outcomes : outcomes.toReversed();
      assertMatch(other!.stderr, failing === 0 ? /process 0 has failed: / : /process 1 \(127/);
    }
    // A GPU without room for the weights.
    const small = await Processes.start(
      2,
      fixture.prompt(),
      (index) => index === 1 ? { fail_allocation: 2 } : {},
    );
    const [first] = await small.outcomes();
    assertEquals(first!.code, 1);
    assertStringIncludes(first!.stderr, "process 1 (127.0.0.1): ");
  },
});

Deno.test({
  name: "processes: what is missing, differs or is not divided is named",
  ignore,
  fn: async () => {
    using fixture = new Fixture();
    const env = { FORGE_RANK: "0", FORGE_WORLD_SIZE: "2" };
    const missing = await Processes.start(1, fixture.prompt("--join-timeout", "1"), {}, () => env);
    const [waiting] = await missing.outcomes();
    assertEquals(waiting!.code, 1);
    assertMatch(
      waiting!.stderr,
      /after 1 s of waiting on port \d+, 1 of 2 processes are missing: 1/,
    );

    const secrets = await Processes.start(
      2,
      fixture.prompt("--join-timeout", "5"),
      {},
      (index) => index === 1 ? { FORGE_SECRET: "the secret of others" } : {},
    );
    const [host, guest] = await secrets.outcomes();
    assertStringIncludes(host!.stderr, "1 connections came from strangers or with another secret");
    assertStringIncludes(guest!.stderr, "process 1 cannot join process 0");

    using other = new Fixture();
    Deno.writeTextFileSync(
      `${other.model}/config.json`,
      Deno.readTextFileSync(`${other.model}/config.json`).replace(/}\s*$/, ', "other": 1}'),
    );
    const link = fixture.at("here");
    const models = (index: number) => (index === 0 ? fixture : other).model;
    // The same path leads to another model on the other machine.
    const port = freePort();
    const differing = await Promise.all([0, 1].map(async (index) => {
      const own = `${link}-${index}`;
      Deno.symlinkSync(models(index), own);
      const args = fixture.prompt().map((argument) => argument === fixture.model ? own : argument);
      const variables = { FORGE_RANK: `${index}`, FORGE_WORLD_SIZE: "2" };
      const address = { FORGE_MASTER: `127.0.0.1:${port}` };
      return await Processes.start(1, args, {}, () => ({ ...variables, ...address }));
    }));
    for (const processes of differing) {
      const [{ code, stderr }] = await processes.outcomes() as [Outcome];
      assertEquals(code, 1);
      assertMatch(stderr, /process 1 \(127\.0\.0\.1\) has the model "\w+", process 0 has "\w+"/);
    }
    for (const variable of ["FORGE_CUDA_GRAPHS", "NCCL_ALGO"]) {
      const alike = (index: number) => ({ [variable]: index === 0 ? "0" : "1" });
      const differing = await Processes.start(2, fixture.prompt(), {}, alike);
      for (const { code, stderr } of await differing.outcomes()) {
        assertEquals(code, 1);
        const values = `has the value of ${variable} "1", process 0 has "0"; all processes need`;
        assertStringIncludes(stderr, values);
      }
    }
    const cpu = await Processes.start(2, fixture.prompt("--device", "cpu"), {});
    for (const { code, stderr } of await cpu.outcomes()) {
      assertEquals(code, 2);
      assertStringIncludes(stderr, "several processes divide a model among CUDA devices");
    }
  },
});

/** Returns the command of a process as words of a shell. */
function shellWords(args: readonly string[]): string {
  return [Deno.execPath(), ...denoArgs(args)].map((part) => `'${part}'`).join(" ");
}

const noMpi = ["/usr/bin/mpirun", "/usr/local/bin/mpirun"].some(isFile)
  ? undefined
  : "mpirun is missing: apt-get install openmpi-bin";
if (!ignore && noMpi !== undefined) console.error(`skipping: ${noMpi}`);

Deno.test({
  name: "processes: mpirun starts them",
  ignore: ignore || noMpi !== undefined,
  fn: async () => {
    using fixture = new Fixture();
    const expected = await alone(fixture.prompt(), { devices: 2 });
    const { code, stdout, stderr } = await new Deno.Command("mpirun", {
      args: [
        ...["--allow-run-as-root", "--oversubscribe", "-n", "2", Deno.execPath()],
        ...denoArgs([...fixture.prompt(), "--distributed", "--master", `127.0.0.1:${freePort()}`]),
      ],
      // Both GPUs are visible to both processes, which take one each.
      env: { ...await emulatedGpu({ devices: 2 }), FORGE_SECRET: SECRET, NO_COLOR: "1" },
      stdin: "null",
    }).output();
    const decoder = new TextDecoder();
    assertEquals(code, 0, decoder.decode(stderr));
    // Open MPI gives the process a terminal, whose text ends with a new line.
    assertEquals(decoder.decode(stdout).trimEnd(), expected.stdout.trimEnd());
  },
});

const noSlurm = ignore ? "" : whyNoSlurm();
if (noSlurm) console.error(`skipping: ${noSlurm}`);

Deno.test({
  name: "processes: srun starts them",
  ignore: noSlurm !== undefined,
  fn: async () => {
    using fixture = new Fixture();
    const expected = await alone(fixture.prompt(), { devices: 2 });
    await using cluster = new SlurmCluster();
    for (let state = ""; state !== "idle";) {
      await new Promise((resolve) => setTimeout(resolve, 100));
      state = await cluster.command("sinfo", "-h", "-o", "%T").catch(() => "");
    }
    const variables = { ...await emulatedGpu({ devices: 2 }), FORGE_SECRET: SECRET, NO_COLOR: "1" };
    const exports = Object.entries(variables).map(([name, value]) => `export ${name}='${value}'\n`);
    const answer = fixture.at("answer"), log = fixture.at("log");
    const command = shellWords([...fixture.prompt(), "--distributed", "--master", "127.0.0.1"]);
    const script = fixture.at("job.sh");
    Deno.writeTextFileSync(
      script,
      `#!/bin/bash\n${exports.join("")}srun -n 2 --mpi=none ${command} > '${answer}'\n`,
    );
    const job = ["sbatch", "-W", "-n", "2", "-D", fixture.at("."), `--output=${log}`, script];
    await cluster.command(job[0]!, ...job.slice(1)).catch((error) => {
      throw new Error(`${error}\n${Deno.readTextFileSync(log)}\n${cluster.log()}`);
    });
    assertEquals(Deno.readTextFileSync(answer), expected.stdout, Deno.readTextFileSync(log));
  },
});
