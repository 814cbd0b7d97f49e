/** Opening of the devices of several processes, in process 0 and in the others. */
import { createHash } from "node:crypto";
import { DeviceGroup } from "../../backend.ts";
import { ForgeError } from "../../errors.ts";
import { type Checkpoint, openCheckpoint } from "../../formats/checkpoint.ts";
import type { JsonObject } from "../../formats/json.ts";
import { modelIdentity } from "../cache/prompt_cache_key.ts";
import { DEFAULT_CONTEXT } from "../limits.ts";
import { fetchLibraries, type LocalDevices, openLocalDevices } from "../load/open_backend.ts";
import { asLoaded, type LoadOptions, resolveDivision } from "../load/options.ts";
import { Adapters } from "../request/adapters.ts";
import { type GroupMessage, reportOf } from "./messages.ts";
import { RemoteDevice, RemoteProcess } from "./remote_device.ts";
import {
  checkProcessOptions,
  connect,
  type Facts,
  gather,
  type ProcessOptions,
} from "./rendezvous.ts";
import { serveDevices } from "./serve_devices.ts";

/** Options of a process that is one of several. */
type GroupOptions = LoadOptions & { readonly processes: ProcessOptions };

/**
 * Variables by which a process exchanges values: sums that only some devices capture in graphs, or
 * that they compute by different algorithms of NCCL, never end.
 */
const EXCHANGE_VARIABLES = [
  "FORGE_CUDA_GRAPHS",
  "FORGE_CUDA_SYNC",
  "NCCL_ALGO",
  "NCCL_PROTO",
  "NCCL_BUFFSIZE",
] as const;

/** Returns what all processes must agree in. */
function factsOf(checkpoint: Checkpoint, options: GroupOptions, adapters: Adapters): Facts {
  const { ranks, stages } = resolveDivision(options);
  const { version = "", count } = options.processes;
  return {
    "version of forge": version,
    "number of processes": count,
    "tensor parallelism": ranks,
    "pipeline parallelism": stages,
    "context length": sessionLength(options),
    "quantisation": options.quantize ?? "none",
    "model": modelIdentity(checkpoint).slice(0, 16),
    "low-rank adapters": identityOf(adapters),
    ...Object.fromEntries(
      EXCHANGE_VARIABLES.map((name) => [`value of ${name}`, Deno.env.get(name) ?? "unset"]),
    ),
  };
}

/** Returns a hash of adapters in their order. */
function identityOf(adapters: Adapters): string {
  if (adapters.files.length === 0) return "none";
  const hash = createHash("sha256");
  adapters.files.forEach((_, i) => {
    const scales = Float32Array.from(adapters.files, (_, other) => Number(other === i));
    hash.update(adapters.identity({ scales, key: "" }));
  });
  return hash.digest("hex").slice(0, 16);
}

/** @throws {ForgeError} `usage` or `unsupported` for options that processes do not take */
function check({ processes, dataParallel, draftModel, kvDir }: GroupOptions): void {
  checkProcessOptions(processes);
  if ((dataParallel ?? 1) !== 1) {
    throw new ForgeError(
      "usage",
      "several processes divide one replica; for replicas, start forge for each of them",
    );
  }
  const refused = [
    [draftModel !== undefined, "draft models"],
    [kvDir !== undefined, "saved keys and values"],
  ] as const;
  const found = refused.find(([isGiven]) => isGiven);
  if (found === undefined) return;
  throw new ForgeError("unsupported", `${found[1]} are not divided among processes`);
}

/**
 * Opens the devices of all processes as a group, in process 0. The last devices of the group are
 * its own: the last one samples, by what only this process knows of the requests.
 *
 * @throws {ForgeError} as {@linkcode gather} and as opening the devices; `unsupported` for options
 * that do not go together with several processes
 */
export async function openGroup(
  stored: Checkpoint,
  options: GroupOptions,
): Promise<DeviceGroup> {
  check(options);
  const { processes } = options;
  if (processes.index !== 0) {
    throw new ForgeError("usage", `process ${processes.index} cannot load the model; it assists`);
  }
  const local = openLocalDevices(options);
  const { stages: nStages } = resolveDivision(options);
  let others: RemoteProcess[] = [];
  const end = async (reason: unknown) => {
    const error = reason instanceof ForgeError ? reason : new ForgeError("device", String(reason));
    local.abort(error.message);
    await Promise.all(others.map((other) => other.end(error)));
  };
  try {
    const keys = local.devices[0]!.makeGroupKeys(nStages);
    const facts = factsOf(asLoaded(stored, options), options, new Adapters(options.lora));
    const lose = async (error: ForgeError) => {
      await end(error);
      processes.onLost?.(error);
    };
    others = (await gather(processes, facts)).map((guest) => new RemoteProcess(guest, lose));
    const remote = others.flatMap((other) =>
      local.devices.map((reader, i) => new RemoteDevice(other, i, reader))
    );
    const group = new DeviceGroup([...remote, ...local.devices], nStages, end);
    const { length: own } = local.devices;
    const shared = { nDevices: group.devices.length, nStages, stageMemory: group.stageMemory() };
    await Promise.all([
      ...others.map((other, i) => {
        const message: GroupMessage = { ...shared, first: i * own };
        return other.call({ op: "group", group: message as unknown as JsonObject }, keys);
      }),
      local.join({ ...shared, first: remote.length, keys }),
    ]);
    return group;
  } catch (error) {
    await end(error);
    local.close();
    throw error;
  }
}

/**
 * Computes a part of the model that process 0 loads, in another process: returns when process 0
 * closes the model.
 *
 * @param path the model, which must be the one of process 0
 * @throws {ForgeError} as {@linkcode connect}; `device` if process 0 ends or fails
 */
export async function assist(path: string, options: LoadOptions): Promise<void> {
  const { processes } = options;
  if (processes === undefined || processes.index === 0) {
    throw new ForgeError("usage", "only a process other than process 0 of several can assist");
  }
  const own = { ...options, processes };
  check(own);
  const checkpoint = asLoaded(openCheckpoint(path), options);
  const adapters = new Adapters(options.lora);
  await fetchLibraries();
  const local: LocalDevices = openLocalDevices(own);
  try {
    const devices = local.devices.map(reportOf);
    const link = await connect(
      processes,
      factsOf(checkpoint, own, adapters),
      devices as unknown as JsonObject[],
    );
    await serveDevices(link, local, checkpoint, {
      sessionLength: sessionLength(options),
      adapters: adapters.files,
    });
  } finally {
    local.close();
  }
}

function sessionLength({ contextLength }: LoadOptions): number {
  return contextLength ?? DEFAULT_CONTEXT;
}
