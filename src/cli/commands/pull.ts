/** `forge pull`: downloads a model from the hub. */
import { ForgeError } from "../../errors.ts";
import { pull } from "../../hub/pull.ts";
import type { Context } from "../command.ts";
import { DownloadMeter } from "../model/download.ts";
import { writeStderr, writeStdout } from "../output/streams.ts";
import { Progress } from "../output/progress.ts";

/** Prints the path of the model, whether it was just downloaded or was there before. */
export async function run(
  _options: unknown,
  operands: readonly string[],
  context: Context,
): Promise<number> {
  const [name] = operands;
  if (name === undefined) throw new ForgeError("usage", "which model? name it as org/name");
  const path = await pullWithProgress(name, context.interruptSignal());
  await writeStdout(`${path}\n`);
  return 0;
}

/** Downloads a model unless it is there already, showing how far it is; returns its path. */
export async function pullWithProgress(name: string, signal: AbortSignal): Promise<string> {
  using progress = new Progress();
  const meter = new DownloadMeter();
  let notice: Promise<void> | undefined;
  const { path } = await pull(name, {
    signal,
    onProgress(file, bytes, total) {
      notice ??= writeStderr(`forge: downloading ${name}\n`);
      progress.update(meter.line(file, bytes, total));
    },
    onWait() {
      notice ??= writeStderr(`forge: waiting for another process that downloads ${name}\n`);
    },
  });
  await notice;
  return path;
}
