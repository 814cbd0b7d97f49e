import { assertEquals, assertStringIncludes, assertThrows } from "@std/assert";
import {
  fileOptions,
  generationOptions,
  loadOptions,
  namedSources,
} from "../../../src/cli/options/library_options.ts";
import { OPTIONS } from "../../../src/cli/options/options.ts";
import { SAMPLING_NAMES } from "../../../src/cli/options/tables/generation.ts";
import { MODEL_OPTIONS } from "../../../src/cli/options/tables/model.ts";
import type { OptionSpec } from "../../../src/cli/options/types.ts";
import { parseOptionValue } from "../../../src/cli/options/value.ts";
import { ForgeError } from "../../../src/errors.ts";
import type { Tokenizer } from "../../../src/mod.ts";
import { TempFolder } from "../../support/temp_folder.ts";

type LoadFlags = Parameters<typeof loadOptions>[0];

const parse = (text: string) => parseOptionValue(MODEL_OPTIONS.kvMemory, text, undefined);

Deno.test("--kv-memory takes bytes with an optional binary unit", () => {
  for (
    const [text, bytes] of [
      ["1000", 1000],
      ["64k", 64 * 2 ** 10],
      ["512M", 512 * 2 ** 20],
      ["1.5G", 1.5 * 2 ** 30],
      ["8GiB", 8 * 2 ** 30],
      ["2 gb", 2 * 2 ** 30],
      ["1T", 2 ** 40],
    ] as const
  ) {
    assertEquals(parse(text), bytes, text);
  }
});

Deno.test("--kv-memory rejects invalid sizes", () => {
  for (const text of ["", "0", "-1G", "G", "8X", "1e9", "0.1", "9999999T", "half"]) {
    const error = assertThrows(() => parse(text), ForgeError);
    assertEquals(error.code, "usage");
    assertEquals(
      error.message,
      `--kv-memory is ${JSON.stringify(text)}; valid are sizes such as 512M, 1.5G or 8GiB`,
    );
  }
});

Deno.test("counts add up over several options, and 1 is not between 0 and 2", () => {
  const counts = (text: string, previous: unknown) =>
    parseOptionValue(OPTIONS.nPrompt, text, previous);
  assertEquals(counts("8-10", counts("1,4", undefined)), [1, 4, 8, 9, 10]);
  const mirostat = (text: string) => parseOptionValue(OPTIONS.mirostat, text, undefined);
  assertEquals([mirostat("0"), mirostat("2")], [0, 2]);
  assertThrows(() => mirostat("1"), ForgeError, '--mirostat is "1"; valid are 0 and 2');
  assertThrows(() => parseOptionValue(OPTIONS.stop, "", ["a"]), ForgeError, '--stop is ""');
});

Deno.test("each flag of a model or a generation becomes the option of the library", async () => {
  const loading = {
    ...{ device: "cpu", threads: 3, quantize: "Q8_0", kvType: "F32", kvMemory: 5, memory: 6 },
    ...{ attention: "tiled", products: "f32", numa: "off" },
    ...{ dataParallel: 2, tensorParallel: 4, pipelineParallel: 8 },
  };
  const flags = { ...loading, ctx: 70, devices: "cuda:0,cuda:1", lora: ["a=b:2"] };
  const none = {
    ...Object.fromEntries(Object.keys(loading).map((name) => [name, undefined])),
    ...{ processes: undefined, contextLength: undefined, devices: undefined, lora: undefined },
  };
  assertEquals<unknown>(loadOptions({} as LoadFlags), none);
  assertEquals<unknown>(loadOptions(flags as unknown as LoadFlags), {
    ...none,
    ...loading,
    contextLength: 70,
    devices: ["cuda:0", "cuda:1"],
    lora: [{ name: "a", path: "b", scale: 2 }],
  });

  using folder = new TempFolder();
  const files = { speculate: 4, draftTree: 3, kvDir: "d", kvDirSize: 9 };
  const template = folder.write("t.jinja", "{{ x }}");
  const { signal } = new AbortController();
  const named = { ...files, draftModel: folder.path, chatTemplate: template };
  type FileFlags = Parameters<typeof fileOptions>[0];
  assertEquals<unknown>(await fileOptions(named as FileFlags, signal), {
    ...files,
    draftModel: folder.path,
    chatTemplate: "{{ x }}",
  });
  assertEquals<unknown>(await fileOptions(files as FileFlags, signal), files);
  const sources = { ...named, lora: ["x=l:2", "m"], jsonSchema: "s", grammar: "g" };
  assertEquals(namedSources(sources as unknown as Parameters<typeof namedSources>[0]), [
    ...["l", "m", folder.path, template, "s", "g"],
  ]);
  assertEquals(namedSources({} as Parameters<typeof namedSources>[0]), []);

  const tokenizer = {} as Tokenizer;
  const generation = (given: object) =>
    generationOptions(given as Parameters<typeof generationOptions>[0], tokenizer);
  const sampling = Object.fromEntries(SAMPLING_NAMES.map((name, i) => [name, i]));
  const others = { seed: 7, maxTokens: 8, stop: ["a", "b"] };
  const plain = { ...sampling, ...others, logitBias: undefined, drySequenceBreakers: undefined };
  assertEquals<unknown>(generation({ ...sampling, ...others }), plain);
  for (
    const [given, breakers] of [
      [["none"], []],
      [["none", "x"], ["none", "x"]],
      [["x"], ["x"]],
      [[], []],
    ] as const
  ) {
    assertEquals(generation({ drySequenceBreakers: given }).drySequenceBreakers, breakers);
  }
});

Deno.test("--lora takes a path with an optional name and scale", () => {
  for (
    const [text, name, path, scale] of [
      ["a/b", undefined, "a/b", undefined],
      ["a/b:0.5", undefined, "a/b", 0.5],
      ["sql=b.gguf:-1e-1", "sql", "b.gguf", -0.1],
      ["C:\\a", undefined, "C:\\a", undefined],
      ["x=a:b:2", "x", "a:b", 2],
      ["a/b=c", undefined, "a/b=c", undefined],
    ] as const
  ) {
    const flags = { lora: [text] } as unknown as Parameters<typeof loadOptions>[0];
    assertEquals(loadOptions(flags).lora, [{ name, path, scale }], text);
  }
});

/** Smallest and largest value of each option with a number. */
const LIMITS: Readonly<Record<string, string>> = {
  "1 64": "dataParallel tensorParallel pipelineParallel numa",
  "1 1024": "threads benchThreads",
  "1 256": "batchParallel serveParallel",
  "1 512": "nBatch parallel",
  "1 128": "completions",
  "1 32": "speculate",
  "1 8": "draftTree",
  "1 86400": "joinTimeout",
  "1 10000": "repetitions",
  "0 65535": "port",
  "0 20": "logprobs",
  "1 2147483647": "ctx thinking top dimensions maxModels",
  "2 2147483647": "windowSize",
  "0 2147483647": "maxTokens nPrompt nGen nDepth maxQueue",
  "0 9007199254740991": "seed",
  "0 1073741824": "topK dryAllowedLength",
  "-1 1073741824": "repeatLastN dryPenaltyLastN",
  "0 100": "temperature dryMultiplier dynatempRange dynatempExponent mirostatTau",
  "1 100": "dryBase",
  "-1 100": "topNSigma",
  "-100 100": "presencePenalty frequencyPenalty",
  "0.01 100": "repeatPenalty",
  "0 1": "topP minP typicalP xtcProbability xtcThreshold mirostatEta",
  "0 2": "mirostat",
};

Deno.test("each number may have the ends of its range, and no value beyond them", () => {
  const seen = new Set<string>();
  for (const [range, names] of Object.entries(LIMITS)) {
    const [min, max] = range.split(" ").map(Number) as [number, number];
    for (const name of names.split(" ")) {
      seen.add(name);
      const spec = OPTIONS[name as keyof typeof OPTIONS] as OptionSpec;
      if (spec.kind === "flag") throw new Error(`${name} has no value`);
      const read = (text: string) => [parseOptionValue(spec, text, undefined)].flat()[0];
      const step = spec.kind === "number" ? 0.001 : 1;
      for (const value of [min, max]) assertEquals(read(`${value}`), value, name);
      for (const text of [`${min - step}`, `${max + step}`, "", "x", "1e", "0x1", "NaN"]) {
        const error = assertThrows(() => read(text), ForgeError);
        const flag = spec.flags.split(", ").at(-1)!;
        assertStringIncludes(error.message, `${flag} is ${JSON.stringify(text)}; valid are `);
        for (const end of [min, max]) assertStringIncludes(error.message, `${end}`);
      }
      if (spec.kind !== "number") assertThrows(() => read(`${min + 0.5}`), ForgeError);
    }
  }
  const numbers = Object.entries(OPTIONS).filter(([, spec]) => "min" in spec);
  assertEquals([...seen].sort(), numbers.map(([name]) => name).sort());
});

Deno.test("a choice is one of its names in any case, which an error lists", () => {
  for (const [name, spec] of Object.entries(OPTIONS) as [string, OptionSpec][]) {
    if (!("choices" in spec)) continue;
    for (const choice of spec.choices) {
      assertEquals(parseOptionValue(spec, choice.toUpperCase(), undefined), choice, name);
    }
    const error = assertThrows(() => parseOptionValue(spec, "none of them", undefined), ForgeError);
    assertStringIncludes(error.message, spec.choices.join(", "));
  }
});
