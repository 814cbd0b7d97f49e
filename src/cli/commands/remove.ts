/** `forge rm`: removes a downloaded model. */
import { ForgeError } from "../../errors.ts";
import { quote } from "../../formats/quote.ts";
import { hubName } from "../../hub/model_reference.ts";
import { listModels, removeModel } from "../../hub/model_store.ts";
import { nearestName } from "../../formats/suggest.ts";
import { formatBytes } from "../output/format.ts";
import { writeStderr } from "../output/streams.ts";

export async function run(
  _options: unknown,
  [name = ""]: readonly string[],
): Promise<number> {
  const removed = removeModel(hubName(name));
  if (removed === undefined) {
    const similar = nearestName(name, listModels().map((model) => model.name));
    throw new ForgeError(
      "not_found",
      `no downloaded model has the name ${quote(name)}; ` +
        (similar === undefined ? "forge list shows the names" : `did you mean ${similar}?`),
    );
  }
  await writeStderr(`forge: removed ${removed.name} (${formatBytes(removed.bytes)})\n`);
  return 0;
}
