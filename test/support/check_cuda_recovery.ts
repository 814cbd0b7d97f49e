/**
 * The CUDA device after a failure that it survives: `check_cuda_recovery.ts capture|stream`,
 * injected by the stand-in for the driver. Run in a separate process.
 */
import { assert, assertEquals, assertThrows } from "@std/assert";
import { ForgeError } from "../../src/errors.ts";
import { openDevice } from "./devices.ts";
import { LogitSampler } from "./logit_sampler.ts";
import { randomMatrix } from "./matrix.ts";
import { Random } from "./random.ts";

const gpu = { name: "cuda", kind: "cuda", selector: "" } as const;

/** A launch fails while a step is captured: that run fails, later runs succeed. */
async function checkCapture(): Promise<void> {
  using device = openDevice(gpu);
  const sampler = await LogitSampler.record(device, randomMatrix(new Random("logits"), 1, 300), {
    maxTop: 2,
  });
  const outcomes: string[] = [];
  for (let run = 0; run < 6; run++) {
    try {
      outcomes.push(JSON.stringify(await sampler.sample([{ nTop: 2 }])));
    } catch (error) {
      assert(
        error instanceof ForgeError && /CUDA_ERROR_INVALID_VALUE/.test(error.message),
        `${error}`,
      );
      outcomes.push("refused");
    }
  }
  const [first, ...rest] = outcomes;
  assertEquals(rest.filter((outcome) => outcome === "refused").length, 1, outcomes.join("\n"));
  assert(rest.every((outcome) => outcome === first || outcome === "refused"), outcomes.join("\n"));
  assertEquals(rest.at(-1), first);
  sampler.release();
}

/** A device without a stream cannot be opened; opening one later succeeds. */
function checkStream(): void {
  assertThrows(() => openDevice(gpu), ForgeError, "cuStreamCreate");
  using device = openDevice(gpu);
  assertEquals(device.kind, "cuda");
}

const [failure] = Deno.args;
if (failure === "capture") await checkCapture();
else checkStream();
console.log("recovered");
