/**
 * Runs tests of operations on an emulated GPU: `gpu_check.ts cuda|metal OPTIONS TEST...`, where OPTIONS
 * are those of the stand-in for the driver as JSON. Fails unless all pass.
 */
import { emulatedGpu, runOnEmulatedGpu } from "../cuda/emulated_gpu.ts";
import { emulatedMetal, runOnEmulatedMetal } from "../metal/emulated_metal.ts";

const [gpu, text = "{}", ...tests] = Deno.args;
const options: Readonly<Record<string, number>> = JSON.parse(text);
const args = ["test", "--allow-all", "--quiet", "--no-check", ...tests];
if (gpu === "metal") await runOnEmulatedMetal(args, await emulatedMetal(options));
else await runOnEmulatedGpu(args, await emulatedGpu(options));
