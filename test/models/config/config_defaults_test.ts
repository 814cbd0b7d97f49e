/**
 * Compares the tables of defaults with transformers' configuration classes. Needs Python with
 * transformers 5.18; elsewhere only changes since the last comparison are noticed.
 */
import { assertEquals } from "@std/assert";
import { join } from "@std/path";
import type { JsonObject } from "../../../src/formats/json.ts";
import { configDefaults, DEFAULTS_BY_TYPE } from "../../../src/models/config/config_defaults.ts";

const VERSION = /^5\.18\./;

/**
 * SHA-256 of the tables, as JSON, that were last compared with transformers. After a change run
 * this test where transformers is installed; if it passes, write the new digest here.
 */
const COMPARED = "8c2791b98e4f64d09c133fef972a7252ec2184aa73631cd1e2070d09a6216f0b";

interface Printed {
  readonly version: string;
  readonly defaults: Readonly<Record<string, JsonObject>>;
}

/** Runs Python. Returns its output, or the reason why it could not run. */
function python(...args: readonly string[]): string | { readonly stdout: string } {
  try {
    const command = new Deno.Command("python3", { args: [...args], stderr: "null" });
    const { success, stdout } = command.outputSync();
    return success ? { stdout: new TextDecoder().decode(stdout) } : "python3 has no transformers";
  } catch (error) {
    if (error instanceof Deno.errors.NotFound) return "python3 is missing";
    throw error;
  }
}

/** Reason why the tables cannot be compared; `undefined` if they can. */
function obstacle(): string | undefined {
  const found = python(
    "-c",
    "from importlib.metadata import version; print(version('torch') and version('transformers'))",
  );
  if (typeof found === "string") return found;
  const version = found.stdout.trim();
  return VERSION.test(version) ? undefined : `transformers is ${version}, not 5.18`;
}

const reason = obstacle();
if (reason !== undefined) console.log(`tables of defaults are not compared: ${reason}`);

/** Settings with a default in transformers that forge has in code instead of a table. */
const IN_CODE: Readonly<Record<string, readonly string[]>> = {
  gemma2: ["sliding_window_pattern"],
  gemma4_text: ["sliding_window_pattern"],
  gpt_oss: ["sliding_window_pattern"],
  llama4_text: ["sliding_window_pattern"],
  olmo3: ["sliding_window_pattern"],
};

Deno.test("the tables of defaults are those that were compared with transformers", async () => {
  const tables = JSON.stringify(Array.from(DEFAULTS_BY_TYPE));
  const digest = await crypto.subtle.digest("SHA-256", new TextEncoder().encode(tables));
  assertEquals(new Uint8Array(digest).toHex(), COMPARED);
});

Deno.test({
  name: "the tables of defaults equal transformers' configuration classes",
  ignore: reason !== undefined,
  fn: () => {
    const script = join(import.meta.dirname ?? ".", "config_defaults.py");
    const found = python(script, ...DEFAULTS_BY_TYPE.keys());
    if (typeof found === "string") throw new Error(found);
    const { defaults }: Printed = JSON.parse(found.stdout);
    for (const modelType of DEFAULTS_BY_TYPE.keys()) {
      const expected = Object.entries(defaults[modelType]!)
        .filter(([name]) => !IN_CODE[modelType]?.includes(name));
      assertEquals({ modelType, ...configDefaults(modelType) }, {
        modelType,
        ...Object.fromEntries(expected),
      });
    }
  },
});
