/**
 * What the CUDA device does after a failure that it survives: `check_cuda_recovery.ts capture|stream`,
 * which the stand-in for the driver has been told to inject. A program of its own, for a process of its
 * own.
 */
import { assert, assertEquals, assertThrows } from "@std/assert";
import { ForgeError } from "../../src/errors.ts";
import { openDevice } from "./devices.ts";
import { LogitSampler } from "./logit_sampler.ts";
import { randomMatrix } from "./matrix.ts";
import { Random } from "./random.ts";

const gpu = { name: "cuda", kind: "cuda", selector: "" } as const;

/** A launch is refused while a step is captured: that run fails, and those after it do not. */
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

/** A device that cannot have a stream is not opened, and one that is opened later is whole. */
function checkStream(): void {
  assertThrows(() => openDevice(gpu), ForgeError, "cuStreamCreate");
  using device = openDevice(gpu);
  assertEquals(device.kind, "cuda");
}

const [failure] = Deno.args;
if (failure === "capture") await checkCapture();
else checkStream();
console.log("recovered");
