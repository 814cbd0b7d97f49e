/**
 * Runs tests of operations on an emulated GPU: `gpu_check.ts cuda|metal OPTIONS TEST...`, where
 * OPTIONS are the options of the fake driver as JSON. Fails unless all tests pass.
 */
import { emulatedGpu, runOnEmulatedGpu } from "../cuda/emulated_gpu.ts";
import { emulatedMetal, runOnEmulatedMetal } from "../metal/emulated_metal.ts";

const [gpu, text = "{}", ...tests] = Deno.args;
const options: Readonly<Record<string, number>> = JSON.parse(text);
const args = ["test", "--allow-all", "--fail-fast", "--quiet", "--no-check", ...tests];
if (gpu === "metal") await runOnEmulatedMetal(args, await emulatedMetal(options));
else await runOnEmulatedGpu(args, await emulatedGpu(options));
