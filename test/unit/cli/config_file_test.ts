/** Values that the config file gives to flags. */
import { assertEquals } from "@std/assert";
import { configuredModel, withModelDefaults } from "../../../src/cli/model/config_file.ts";
import { TempFolder } from "../../support/temp_folder.ts";

const MODELS = {
  one: {
    model: "./m.gguf",
    ctx: 64,
    temp: 0.5,
    "max-tokens": 5,
    stop: ["x", "y"],
    device: "cpu",
    "data-parallel": 2,
    "draft-model": "../d",
    "chat-template": "~/t.jinja",
    "kv-dir": ".kv",
    lora: ["tune=./l", "~/n:0.5", "plain"],
    system: "./s",
    thinking: "off",
    numa: 2,
  },
  two: { model: "org/name", devices: ["cuda:0", "cuda:1"] },
};

/** Flags of which none is given. */
const NONE = {
  ...{ ctx: undefined, temperature: undefined, maxTokens: undefined, stop: undefined },
  ...{ device: undefined, devices: undefined, dataParallel: undefined, draftModel: undefined },
  ...{ chatTemplate: undefined, kvDir: undefined, lora: undefined, system: undefined },
  ...{ thinking: undefined, threads: undefined, numa: undefined, json: false },
};

Deno.test("config file: values become flags, paths are resolved, and given flags win", () => {
  using folder = new TempFolder();
  folder.write("forge/config.json", { models: MODELS });
  const before = ["XDG_CONFIG_HOME", "HOME"].map((name) => [name, Deno.env.get(name)] as const);
  try {
    Deno.env.set("XDG_CONFIG_HOME", folder.path);
    Deno.env.set("HOME", "/home");
    assertEquals(configuredModel("one")?.model, folder.at("forge", "m.gguf"));
    assertEquals(configuredModel("two")?.model, "org/name");
    assertEquals(configuredModel("three"), undefined);
  } finally {
    for (const [name, value] of before) {
      if (value === undefined) Deno.env.delete(name);
      else Deno.env.set(name, value);
    }
  }
  const values = {
    ...NONE,
    ...{ ctx: 64, temperature: 0.5, maxTokens: 5, stop: ["x", "y"], system: "./s", numa: 2 },
    ...{
      thinking: "off",
      device: "cpu",
      dataParallel: 2,
      draftModel: folder.at("d"),
      kvDir: folder.at("forge/.kv"),
    },
    chatTemplate: "/home/t.jinja",
    lora: [`tune=${folder.at("forge", "l")}`, "/home/n:0.5", "plain"],
  };
  const defaults = (given: object, name?: string): unknown =>
    withModelDefaults({ ...NONE, ...given }, name);
  assertEquals(defaults({}, "one"), values);
  for (const name of ["three", undefined]) assertEquals(defaults({}, name), NONE);
  const given = { temperature: 0, stop: ["z"], json: true };
  assertEquals(defaults(given, "one"), { ...values, ...given });
  // Flags that only other commands have stay away.
  assertEquals<unknown>(withModelDefaults({ ctx: undefined }, "one"), { ctx: 64 });
  // Devices that are given replace the file's, of either kind.
  const devices = "cuda:0,cuda:1";
  assertEquals(defaults({}, "two"), { ...NONE, devices });
  assertEquals(defaults({ device: "cpu" }, "two"), { ...NONE, device: "cpu" });
  assertEquals(defaults({ dataParallel: 3 }, "two"), { ...NONE, dataParallel: 3 });
  assertEquals(defaults({ devices: "cpu" }, "one"), {
    ...values,
    ...{ devices: "cpu", device: undefined, dataParallel: undefined },
  });
});
