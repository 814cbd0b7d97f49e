/** `forge quantize`: writes a model with quantised weights as a GGUF file. */
import { quantize } from "../../mod.ts";
import { ForgeError } from "../../errors.ts";
import type { Context } from "../command.ts";
import { ensureLibrary } from "../model/open_model.ts";
import { resolveModel } from "../model/model_path.ts";
import type { Options } from "../options/options.ts";
import { formatBytes, formatRows, plural } from "../output/format.ts";
import { Progress } from "../output/progress.ts";
import { writeStdout } from "../output/streams.ts";

type QuantizeFlags = Options<
  "quantizedType" | "importance" | "replace" | "threads" | "json" | "verbose"
>;

const MEGA = 1e6;

/** Writes the file and prints what it holds. */
export async function run(
  options: QuantizeFlags,
  operands: readonly string[],
  context: Context,
): Promise<number> {
  // The table of commands requires both.
  const [model, path] = operands as readonly [string, string];
  if (path === "-") throw new ForgeError("usage", "the GGUF file must be a file, not stdout");
  // Either signal removes the unfinished file.
  const signal = AbortSignal.any([context.interruptSignal(), context.terminateSignal()]);
  const source = await resolveModel(model, signal);
  using progress = new Progress();
  await ensureLibrary("cpu", progress);
  const { quantizedType: type = "Q4_K_M", replace, threads } = options;
  const written = await quantize(source, path, {
    type,
    threads,
    importance: options.importance,
    overwrite: replace,
    signal,
    onProgress: (done, total) =>
      progress.update(
        "quantising million weights",
        Math.floor(done / MEGA),
        Math.ceil(total / MEGA),
      ),
  });
  progress.clear();
  const { bytes, sourceBytes, weights } = written;
  const types = Object.entries(written.types)
    .map(([name, count]) => `${name} in ${plural(count ?? 0, "tensor")}`);
  const result = { path, type, bytes, source_bytes: sourceBytes, weights, types: written.types };
  await writeStdout(
    options.json ? `${JSON.stringify(result)}\n` : formatRows([
      ["written", path],
      ["size", `${formatBytes(bytes)} of ${formatBytes(sourceBytes)}`],
      ["bits per weight", (8 * bytes / weights).toFixed(2)],
      ["types", types.join(", ")],
    ]),
  );
  return 0;
}
