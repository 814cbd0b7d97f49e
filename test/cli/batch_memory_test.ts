import { assert, assertEquals } from "@std/assert";
import { join } from "@std/path";
import { TempFolder } from "../support/temp_folder.ts";
import { writeRandomLlama } from "../support/tiny_llama.ts";
import { ROOT } from "./forge.ts";

const LINES = 10_000;

Deno.test("batch: what is held after 10,000 lines is what was held after 1,000", async () => {
  using folder = new TempFolder();
  writeRandomLlama(folder.at("model"));
  const line = (_: unknown, i: number) =>
    `{"id":"line-${i}","prompt":"prompt ${i}","max_tokens":2}\n`;
  const input = folder.write("in.jsonl", Array.from({ length: LINES }, line).join(""));
  const output = folder.write("out.jsonl", "");
  const { success, stdout } = await new Deno.Command(Deno.execPath(), {
    args: ["run", "--quiet", "--allow-all", "--v8-flags=--expose-gc"]
      .concat("--config", join(ROOT, "deno.json"), join(ROOT, "test", "cli", "batch_memory.ts"))
      .concat("-m", folder.at("model"), "--batch", input, "-o", output),
    stdin: "null",
    stderr: "inherit",
  }).output();
  assert(success);
  assertEquals(Deno.readTextFileSync(output).split("\n").length, LINES + 1);
  const { first, last } = JSON.parse(new TextDecoder().decode(stdout));
  assert(first > 0, "the batch was over before it could be measured");
  assert(last < first * 1.05, `${first} bytes after 1,000 lines, ${last} at the end`);
});
