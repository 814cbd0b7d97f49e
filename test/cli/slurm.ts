/** Starts a Slurm cluster on this machine for one test. */
import { isFile } from "../../src/formats/file.ts";
import { TempFolder } from "../support/temp_folder.ts";

const PROGRAMS = ["slurmctld", "slurmd", "sbatch", "scontrol", "squeue"];

/** Returns the reason why this machine cannot run Slurm, or `undefined` if it can. */
export function whyNoSlurm(): string | undefined {
  if (Deno.build.os !== "linux") return "Slurm is tested on Linux";
  if (Deno.uid() !== 0) return "Slurm's daemons need to be started by root";
  const folders = ["/usr/local/sbin", ...Deno.env.get("PATH")?.split(":") ?? []];
  const missing = PROGRAMS.find((name) => !folders.some((folder) => isFile(`${folder}/${name}`)));
  if (missing === undefined) return undefined;
  return `${missing} is missing: apt-get install slurmctld slurmd slurm-client`;
}

/**
 * Returns an unused port below the range of ephemeral ports, so that no other process is assigned
 * it.
 */
export function freePort(): number {
  for (;;) {
    const port = 20_000 + crypto.getRandomValues(new Uint16Array(1))[0]! % 10_000;
    try {
      Deno.listen({ hostname: "127.0.0.1", port }).close();
      return port;
    } catch (error) {
      if (!(error instanceof Deno.errors.AddrInUse)) throw error;
    }
  }
}

/** Slurm daemons, which run until the cluster is disposed. */
export class SlurmCluster implements AsyncDisposable {
  readonly #folder = new TempFolder();
  readonly #daemons: Deno.ChildProcess[] = [];

  constructor() {
    this.#folder.write("slurm.conf", this.#configuration(freePort()));
    for (const daemon of ["slurmctld", "slurmd"]) {
      this.#daemons.push(
        new Deno.Command(daemon, {
          args: ["-D", "-f", this.#folder.at("slurm.conf")],
          stdin: "null",
          stdout: "null",
          stderr: "null",
        }).spawn(),
      );
    }
  }

  /** Runs a Slurm command and returns its output. @throws if it fails, with its stderr */
  async command(name: string, ...args: string[]): Promise<string> {
    const { success, stdout, stderr } = await new Deno.Command(name, {
      args,
      env: { SLURM_CONF: this.#folder.at("slurm.conf") },
      stdin: "null",
    }).output();
    const decoder = new TextDecoder();
    if (!success) throw new Error(`${name} ${args.join(" ")}: ${decoder.decode(stderr)}`);
    return decoder.decode(stdout).trim();
  }

  /** Returns the logs of the daemons, to explain a failure. */
  log(): string {
    return ["slurmctld.log", "slurmd.log"]
      .map((name) => Deno.readTextFileSync(this.#folder.at(name)).split("\n").slice(-20).join("\n"))
      .join("\n");
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const daemon of this.#daemons.reverse()) {
      daemon.kill("SIGTERM");
      const timer = setTimeout(() => daemon.kill("SIGKILL"), 30_000);
      await daemon.status;
      clearTimeout(timer);
    }
    this.#folder[Symbol.dispose]();
  }

  /** Configures no authentication: only this machine reaches the loopback ports. */
  #configuration(controlPort: number): string {
    const { path } = this.#folder;
    const host = Deno.hostname();
    let nodePort = controlPort;
    while (nodePort === controlPort) nodePort = freePort();
    return `ClusterName=forge
SlurmctldHost=${host}(127.0.0.1)
SlurmctldPort=${controlPort}
SlurmdPort=${nodePort}
SlurmUser=root
AuthType=auth/none
AuthInfo=cred_expire=5
CredType=cred/none
StateSaveLocation=${path}
SlurmdSpoolDir=${path}
SlurmctldPidFile=${path}/slurmctld.pid
SlurmdPidFile=${path}/slurmd.pid
SlurmctldLogFile=${path}/slurmctld.log
SlurmdLogFile=${path}/slurmd.log
SlurmdParameters=config_overrides
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerParameters=sched_interval=1,batch_sched_delay=0
KillWait=2
ReturnToService=2
NodeName=${host} NodeAddr=127.0.0.1 CPUs=2 State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
`;
  }
}
