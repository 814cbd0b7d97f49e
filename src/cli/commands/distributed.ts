/**
 * Commands with `--distributed`: process 0 runs the command, the others compute for it.
 */
import { ForgeError } from "../../errors.ts";
import { assist } from "../../mod.ts";
import type { Command, Context } from "../command.ts";
import { textOperands } from "../input/operands.ts";
import { withModelDefaults } from "../model/config_file.ts";
import { resolveModel } from "../model/model_path.ts";
import { ensureLibrary } from "../model/open_model.ts";
import { otherProcessLost, processOptions } from "../model/processes.ts";
import { loadOptions } from "../options/library_options.ts";
import type { OptionName, Options } from "../options/options.ts";
import { Progress } from "../output/progress.ts";

type AllOptions = Options<OptionName>;

/** Runs a command in process 0 until another process fails, or computes for that process. */
export async function runDistributed(
  command: Command,
  options: AllOptions,
  operands: readonly string[],
  context: Context,
): Promise<number> {
  const name = modelName(command, options, operands);
  const processes = processOptions(options);
  if (processes === undefined || processes.index === 0) {
    return await Promise.race([command.run(options, operands, context), otherProcessLost]);
  }
  // A signal goes to all processes; the others end when process 0 does.
  const signal = context.interruptSignal();
  context.terminateSignal();
  const own = withModelDefaults(options, name);
  const path = await resolveModel(name, signal);
  using progress = new Progress();
  await ensureLibrary(own.devices?.split(",", 1)[0] ?? own.device ?? "auto", progress);
  await assist(path, loadOptions(own));
  return 0;
}

/** Returns the model that a command loads. @throws {ForgeError} `usage` for several */
function modelName(
  { name }: Command,
  options: AllOptions,
  operands: readonly string[],
): string | undefined {
  const { model, serveModel = [], modelsDir, keepAlive, prompt, file, batch } = options;
  if (name === "run") {
    const hasText = [prompt, file, batch].some((given) => given !== undefined);
    return textOperands(operands, { model, hasText, noun: "prompt", takesWords: false }).model;
  }
  const names = [...operands, ...serveModel, ...(model === undefined ? [] : [model])];
  if (names.length > 1 || modelsDir !== undefined || keepAlive !== undefined) {
    throw new ForgeError(
      "usage",
      "--distributed serves a single model, which stays loaded: without --models-dir, --keep-alive " +
        "and a second model",
    );
  }
  return names[0];
}
