/** `forge pull`: downloads a model from the hub. */
import { pull } from "../../hub/pull.ts";
import type { Context } from "../command.ts";
import { DownloadMeter } from "../model/download.ts";
import { writeStderr, writeStdout } from "../output/streams.ts";
import { Progress } from "../output/progress.ts";

/** Downloads the model unless it is complete, and prints its path. */
export async function run(
  _options: unknown,
  [name = ""]: readonly string[],
  context: Context,
): Promise<number> {
  const path = await pullWithProgress(name, context.interruptSignal());
  await writeStdout(`${path}\n`);
  return 0;
}

/** Downloads a model unless it is complete, and shows progress; returns its path. */
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
      notice ??= writeStderr(`forge: waiting for another process that is downloading ${name}\n`);
    },
  });
  await notice;
  return path;
}
