/**
 * The processes that divide a model, by the variables that srun, mpirun, torchrun and Kubernetes
 * set.
 */
import { ForgeError } from "../../errors.ts";
import { quote, show } from "../../formats/quote.ts";
import type { ProcessOptions } from "../../mod.ts";
import type { ProcessFlags } from "../options/flags.ts";
import { describeVersion } from "../version.ts";

/** Variables with the secret, or with the path of a file that has it. */
const SECRET = "FORGE_SECRET", SECRET_FILE = "FORGE_SECRET_FILE";

const DEFAULT_PORT = 29_555;

/** Variables of a launcher: number of the process, of processes, and on its machine. */
interface Launcher {
  readonly name: string;
  readonly index: string;
  readonly count: readonly string[];
  readonly local?: string;
}

/**
 * Launchers, the most specific first: mpirun in a Slurm job sees Slurm's variables of the job, and
 * torchrun under srun those of the process that started it.
 */
const LAUNCHERS: readonly Launcher[] = [
  {
    name: "forge's variables",
    index: "FORGE_RANK",
    count: ["FORGE_WORLD_SIZE"],
    local: "FORGE_LOCAL_RANK",
  },
  { name: "torchrun", index: "RANK", count: ["WORLD_SIZE"], local: "LOCAL_RANK" },
  {
    name: "Open MPI",
    index: "OMPI_COMM_WORLD_RANK",
    count: ["OMPI_COMM_WORLD_SIZE"],
    local: "OMPI_COMM_WORLD_LOCAL_RANK",
  },
  { name: "MPICH", index: "PMI_RANK", count: ["PMI_SIZE"], local: "MPI_LOCALRANKID" },
  {
    name: "Slurm",
    index: "SLURM_PROCID",
    count: ["SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"],
    local: "SLURM_LOCALID",
  },
  {
    name: "Kubernetes",
    index: "JOB_COMPLETION_INDEX",
    count: ["FORGE_WORLD_SIZE", "WORLD_SIZE"],
  },
];

/** Failures of other processes, which end this one. */
const lost = Promise.withResolvers<never>();
lost.promise.catch(() => {});

/** Rejects with the error of another process, once it has ended or failed. */
export const otherProcessLost: Promise<never> = lost.promise;

/**
 * Returns this process among those that divide a model; `undefined` without `--distributed`, or for
 * a single process.
 *
 * @param variable returns the value of an environment variable
 * @throws {ForgeError} `usage` if variables are missing or not valid
 */
export function processOptions(
  { distributed, master, joinTimeout }: Partial<ProcessFlags>,
  variable = (name: string) => Deno.env.get(name) || undefined,
): ProcessOptions | undefined {
  if (!distributed) {
    if (master === undefined && joinTimeout === undefined) return undefined;
    throw new ForgeError("usage", "--master and --join-timeout need --distributed");
  }
  const isSet = ({ index, count }: Launcher) =>
    variable(index) !== undefined && count.some((name) => variable(name) !== undefined);
  const launcher = LAUNCHERS.find(isSet);
  if (launcher === undefined) {
    throw new ForgeError(
      "usage",
      "--distributed: no launcher has set the number of this process; start it by srun, mpirun or " +
        "torchrun, or set FORGE_RANK and FORGE_WORLD_SIZE (of a Kubernetes job FORGE_WORLD_SIZE alone)",
    );
  }
  const whole = (name: string, fallback?: number) => {
    const text = variable(name) ?? fallback?.toString();
    if (/^\d{1,9}$/.test(text ?? "")) return Number(text);
    throw new ForgeError("usage", `--distributed: ${name} is ${show(text)}; expected a number`);
  };
  const count = whole(launcher.count.find((name) => variable(name) !== undefined)!);
  if (count === 1) return undefined;
  const index = whole(launcher.index);
  const { host, port } = masterOf(master, count, whole, variable);
  return {
    index,
    count,
    localIndex: launcher.local === undefined ? 0 : whole(launcher.local, 0),
    host,
    port,
    secret: readSecret(variable),
    timeout: joinTimeout,
    version: describeVersion(),
    onLost: lost.reject,
  };
}

type Variable = (name: string) => string | undefined;

function masterOf(
  given: string | undefined,
  count: number,
  whole: (name: string, fallback?: number) => number,
  variable: Variable,
): { readonly host: string; readonly port: number } {
  const text = given ?? variable("FORGE_MASTER");
  if (text !== undefined) {
    const [, bracketed, plain, port] = /^(?:\[([^\]]+)\]|([^:]+))(?::(\d{1,5}))?$/.exec(text) ?? [];
    const host = bracketed ?? plain;
    if (host !== undefined) return { host, port: port === undefined ? DEFAULT_PORT : Number(port) };
    throw new ForgeError("usage", `--master is ${quote(text)}; valid is HOST or HOST:PORT`);
  }
  const port = whole("MASTER_PORT", DEFAULT_PORT);
  const address = variable("MASTER_ADDR");
  if (address !== undefined) return { host: address, port };
  // Open MPI names no host, but all processes may be on one.
  if (variable("OMPI_COMM_WORLD_LOCAL_SIZE") === String(count)) return { host: "127.0.0.1", port };
  const nodes = variable("SLURM_STEP_NODELIST") ?? variable("SLURM_JOB_NODELIST");
  if (nodes !== undefined) {
    // Jobs on one node must not take each other's port.
    const job = whole("SLURM_JOB_ID", 0) % 1000;
    return {
      host: firstNode(nodes),
      port: variable("MASTER_PORT") === undefined ? port + job : port,
    };
  }
  throw new ForgeError(
    "usage",
    "--distributed: the address of process 0 is not known; give it with --master HOST, $FORGE_MASTER " +
      "or $MASTER_ADDR",
  );
}

/** Returns the first node of a Slurm list, such as `n07` of `n[07-12,15],gpu3`. */
export function firstNode(list: string): string {
  const [, prefix = "", first = "", suffix = ""] = /^([^,[]*)(?:\[([^\],-]*)[^\]]*\])?([^,[]*)/
    .exec(list)!;
  return prefix + first + suffix;
}

function readSecret(variable: Variable): string {
  const secret = variable(SECRET);
  const path = variable(SECRET_FILE);
  if (secret !== undefined) return secret;
  if (path === undefined) {
    throw new ForgeError(
      "usage",
      `--distributed: set ${SECRET}, or ${SECRET_FILE} to a file, to the same secret for all processes, ` +
        "such as: export FORGE_SECRET=$(openssl rand -hex 16)",
    );
  }
  try {
    return Deno.readTextFileSync(path).trim();
  } catch {
    throw new ForgeError("not_found", `${SECRET_FILE}: cannot read ${quote(path)}`);
  }
}
