/** `forge rm`: removes a model that was downloaded from the hub. */
import { ForgeError } from "../../errors.ts";
import { quote } from "../../formats/quote.ts";
import { listModels, removeModel } from "../../hub/model_store.ts";
import { nearestName } from "../../formats/suggest.ts";
import { formatBytes } from "../output/format.ts";
import { writeStderr } from "../output/streams.ts";

/** Removes it and says on stderr what became free; a name that is not there is refused, with one near it. */
export async function run(
  _options: unknown,
  [name = ""]: readonly string[],
): Promise<number> {
  const removed = removeModel(name);
  if (removed === undefined) {
    const similar = nearestName(name, listModels().map((model) => model.name));
    throw new ForgeError(
      "not_found",
      `no downloaded model is called ${quote(name)}; ` +
        (similar === undefined ? "forge list names them" : `did you mean ${similar}?`),
    );
  }
  await writeStderr(`forge: removed ${removed.name} (${formatBytes(removed.bytes)})\n`);
  return 0;
}
