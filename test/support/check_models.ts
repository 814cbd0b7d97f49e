/**
 * Compares models on a device with results of independent programs: `check_models.ts DEVICE KV_TYPE
 * FOLDER...`. Run in a separate process.
 */
import {
  assertEmbeds,
  assertMatchesReference,
  EMBEDDED,
  readJson,
  type Reference,
} from "../models/reference_check.ts";

const [device = "", kvType, ...folders] = Deno.args;
if (kvType !== "F32" && kvType !== "F16") throw new Error(`unknown type of KV cache ${kvType}`);
for (const folder of folders) {
  const reference = readJson<Reference>(`${folder}/reference.json`);
  const tolerance = kvType === "F32" ? 1e-3 : 5e-3;
  await assertMatchesReference(folder, { device, kvType }, reference, {
    logits: tolerance,
    logLikelihood: 2 * tolerance,
  });
  if (EMBEDDED.some((name) => folder.endsWith(`/${name}`))) {
    await assertEmbeds(folder, { device, kvType }, 2 * tolerance);
  }
  console.log(folder);
}
