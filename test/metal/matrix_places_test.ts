/**
 * Metal does not specify which numbers of a SIMD group matrix a lane holds, and the tiled attention
 * kernels rely on the layout of Apple's GPUs. forge must detect a GPU with another layout.
 */
import { assertRejects, assertStringIncludes } from "@std/assert";
import { forge } from "../cli/forge.ts";
import { buildFakeMetal } from "../emulator/fake_metal/build.ts";
import { sharedAvailable, sharedPath } from "../support/shared.ts";
import { emulatedMetal, emulatedMetalUnavailable, runOnEmulatedMetal } from "./emulated_metal.ts";

const unavailable = emulatedMetalUnavailable() !== undefined;
const withoutTiny = unavailable || !sharedAvailable("models", "tiny");

/** Compares a model that uses the tiled kernels with its reference, in an environment. */
async function checkModel(env: Readonly<Record<string, string>>): Promise<string> {
  const program = ["run", "-A", "test/support/check_models.ts", "metal", "F16"];
  return await runOnEmulatedMetal([...program, sharedPath("models", "tiny", "qwen2")], env);
}

Deno.test({
  name: "a GPU with another layout of matrices computes the same",
  ignore: withoutTiny,
  fn: async () => {
    await checkModel(await emulatedMetal({ matrix_places: 1 }));
  },
});

Deno.test({
  name: "the tiled kernels are wrong on a GPU with another layout of matrices",
  ignore: withoutTiny,
  fn: async () => {
    const library = await buildFakeMetal({
      file: "matrix_places.cpp",
      from: "return false;",
      to: "return true;",
    });
    const env = { ...await emulatedMetal({ matrix_places: 1 }), FORGE_LIBRARY_PATH: library };
    await assertRejects(() => checkModel(env), Error, "relative error");
  },
});

Deno.test({
  name: "doctor says which kernels compute attention, and how much memory is free",
  ignore: unavailable,
  fn: async () => {
    const said = async (options: Readonly<Record<string, number>>) =>
      (await forge(["doctor"], { env: await emulatedMetal(options) })).stdout;
    assertStringIncludes(await said({}), "attention tiled for F16, Q8_0 and Q4_0 caches");
    // 16 bytes are taken.
    for (
      const [memory_mib, sizes] of [[1, "1024.0 KiB of the 1.0 MiB"], [
        1024,
        "1024.0 MiB of the 1.0 GiB",
      ]] as const
    ) {
      assertStringIncludes(
        await said({ memory_mib }),
        `${sizes} that Metal recommends to use are free`,
      );
    }
    assertStringIncludes(await said({ matrix_places: 1 }), "attention naive, which is slow: SIMD");
  },
});
