/** Programs that leave models open, or write to a model's file while it is in use. */
import { assertRejects } from "@std/assert";
import { ForgeError, load } from "../../../src/mod.ts";
import { TempFolder } from "../../support/temp_folder.ts";
import { writeRandomLlama } from "../../support/tiny_llama.ts";
import {
  assertEndsCleanly,
  CARELESS,
  type CarelessProgram,
} from "../../support/careless_program.ts";

for (const device of ["cpu", "reference"]) {
  for (const name of Object.keys(CARELESS) as CarelessProgram[]) {
    Deno.test(`a program on ${device} that ${name} ends without a signal`, () =>
      assertEndsCleanly(name, device));
  }
}

Deno.test("a model whose file is replaced during loading is rejected", async () => {
  using folder = new TempFolder();
  const { folder: path } = writeRandomLlama(folder.at("model"), {}, 1);
  const other = writeRandomLlama(folder.at("other"), {}, 2);
  const loading = load(path, { device: "reference" });
  Deno.renameSync(`${other.folder}/model.safetensors`, `${path}/model.safetensors`);
  await assertRejects(() => loading, ForgeError, "while it was being loaded");
});
