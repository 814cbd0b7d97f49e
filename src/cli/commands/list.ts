/** `forge list`: lists the downloaded models. */
import { listModels, type StoredModel, storeFolder } from "../../hub/model_store.ts";
import { formatBytes, formatRows } from "../output/format.ts";
import type { Options } from "../options/options.ts";
import { writeStderr, writeStdout } from "../output/streams.ts";

/** Returns the path of a model, or the command that completes it. */
function placeOf({ name, path, total_bytes: total, complete }: StoredModel): string {
  if (complete) return path;
  const size = total === null ? "" : `of ${formatBytes(total)}, `;
  return `${size}incomplete; forge pull ${name} downloads the rest`;
}

export async function run(options: Options<"json">): Promise<number> {
  const models = listModels();
  if (options.json) {
    await writeStdout(`${JSON.stringify(models)}\n`);
  } else if (models.length === 0) {
    await writeStderr(`no models in ${storeFolder()}; forge pull org/name downloads one\n`);
  } else {
    const rows = models.map((model) =>
      [model.name, `${formatBytes(model.bytes).padStart(7)}  ${placeOf(model)}`] as const
    );
    await writeStdout(formatRows(rows));
  }
  return 0;
}
