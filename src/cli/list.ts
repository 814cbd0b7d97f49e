/** `forge list`: the models downloaded from the hub. */
import { listModels, storeFolder } from "../hub/model_store.ts";
import { formatBytes, formatRows } from "./format.ts";
import type { Options } from "./options/options.ts";
import { writeStderr, writeStdout } from "./output.ts";

export async function run(options: Options<"json">): Promise<number> {
  const models = listModels();
  if (options.json) {
    await writeStdout(`${JSON.stringify(models)}\n`);
  } else if (models.length === 0) {
    await writeStderr(`no models in ${storeFolder()}; forge pull org/name downloads one\n`);
  } else {
    const rows = models.map(({ name, path, bytes }) =>
      [name, `${formatBytes(bytes).padStart(7)}  ${path}`] as const
    );
    await writeStdout(formatRows(rows));
  }
  return 0;
}
