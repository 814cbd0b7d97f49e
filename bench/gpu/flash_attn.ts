/**
 * Checks libflash_attn against PyTorch in float64, then times both: `flash_attn.ts [--emulated]`.
 * Prints the lines of `lines.ts`; exits with 77 without nvcc, or without PyTorch on a GPU.
 */
import { buildLibraries } from "../../build.ts";
import { findNvcc, howToInstallNvcc } from "../../ffi/build/nvcc.ts";
import { openBackend } from "../../src/engine/load/open_backend.ts";
import { isAccurate, race, type RaceLine } from "../flash_attn.ts";
import { type Line, say, type SpeedLine } from "./lines.ts";
import { SKIPPED } from "./parts.ts";
import { sayReadLimit } from "./timing.ts";

/** The contenders of the race by their names. */
const CONTENDERS: Readonly<Record<string, SpeedLine["by"]>> = {
  ours: "forge",
  ours_sm80: "forge, SM80",
  fa2: "FlashAttention-2",
  cudnn: "cuDNN",
};

async function main(args: readonly string[]): Promise<number> {
  if (args.includes("--emulated")) {
    console.log("PyTorch does not run on the emulator");
    return SKIPPED;
  }
  if (await findNvcc() === undefined) {
    console.log(howToInstallNvcc);
    return SKIPPED;
  }
  const { libraries } = await buildLibraries({ only: ["flash_attn"] });
  let count = 0, passed = true;
  const succeeded = await race(libraries[0]?.path ?? "", (result) => {
    for (const line of linesOfRace(result)) {
      count++;
      passed &&= line.kind !== "check" || line.passed;
      say(line);
    }
  });
  if (count === 0 && !succeeded) {
    console.log("the comparison needs python3 with PyTorch, and a GPU");
    return SKIPPED;
  }
  const backend = openBackend("cuda");
  sayReadLimit(backend);
  backend.close();
  return succeeded && passed ? 0 : 1;
}

/** Converts a result of the race to lines of the check. */
export function linesOfRace(line: RaceLine): Line[] {
  switch (line.kind) {
    case "check": {
      const detail = `error ${line.error}, of float32 ${line.float_error}`;
      return [{ kind: "check", name: line.name, passed: isAccurate(line), detail }];
    }
    case "limits":
      return [
        { kind: "limit", name: "copy GB/s", value: line.copy_gb_s },
        { kind: "limit", name: "matrix TFLOP/s", value: line.matmul_tflop_s },
      ];
    case "forward": {
      const { dtype, head_dim: dim, length, causal, layout, flops } = line;
      return contenders(line.tflop_s, (by, teraflops) => ({
        kind: "speed",
        group: "flash_attn forward",
        name: [`${dtype} ${dim}`, ...(causal ? ["causal"] : []), ...(layout ? [layout] : [])].join(
          " ",
        ) +
          `, ${length} tokens`,
        by,
        microseconds: flops / teraflops / 1e6,
        teraflops,
        of: { dim, length },
      }));
    }
    case "decode": {
      const { type, length, batch, kv_heads: kvHeads } = line;
      const bits = type === "Q8_0" ? 8.5 : 16;
      return contenders(line.gb_s, (by, gbPerSecond) => ({
        kind: "speed",
        group: "flash_attn decode",
        name: `${type}, ${batch} x ${length}, ${kvHeads} KV heads`,
        by,
        microseconds: batch * length * kvHeads * 128 * bits / 4 / gbPerSecond / 1e3,
        gbPerSecond,
        of: { batch, length, kvHeads, bits },
      }));
    }
  }
}

function contenders(
  speeds: Readonly<Record<string, number | null>>,
  line: (by: SpeedLine["by"], speed: number) => SpeedLine,
): SpeedLine[] {
  return Object.entries(speeds).flatMap(([name, speed]) => {
    const by = CONTENDERS[name];
    return by === undefined || speed === null ? [] : [line(by, speed)];
  });
}

if (import.meta.main) Deno.exit(await main(Deno.args));
