import { assertEquals, assertThrows } from "@std/assert";
import { ForgeError } from "../../../src/errors.ts";
import { isModelReference, parseModelReference } from "../../../src/hub/model_reference.ts";
import { selectFiles } from "../../../src/hub/select_files.ts";

const files = (...paths: string[]) =>
  paths.map((path) => ({ path, bytes: undefined, checksum: undefined }));

function entryOf(paths: string[], selector?: string): string {
  return selectFiles("org/name", files(...paths), selector).entry;
}

Deno.test("a hub name has an organization, a name, and optionally a revision and a file", () => {
  assertEquals(parseModelReference("org/name"), {
    hub: "huggingface",
    repository: "org/name",
    revision: "main",
    selector: undefined,
  });
  assertEquals(parseModelReference("modelscope:o-1/n.2").revision, "master");
  assertEquals(parseModelReference("modelscope:o-1/n.2@v3:Q4_K_M"), {
    hub: "modelscope",
    repository: "o-1/n.2",
    revision: "v3",
    selector: "Q4_K_M",
  });
  for (
    const text of ["name", "../name", "org/..", "a/b/c", "/a/b", "org/", "org/name:", "hub:a/b"]
  ) {
    assertEquals(isModelReference(text), false, text);
    assertThrows(() => parseModelReference(text), ForgeError, "is not a hub name");
  }
});

Deno.test("without a selector the preferred quantization is chosen", () => {
  assertEquals(entryOf(["m-F16.gguf", "m-Q4_0.gguf", "m-Q4_K_M.gguf"]), "m-Q4_K_M.gguf");
  assertEquals(entryOf(["m-f16.gguf", "m-q8_0.gguf"]), "m-q8_0.gguf");
  assertEquals(entryOf(["mmproj-F16.gguf", "sub/mmproj-F16.gguf", "odd.gguf"]), "odd.gguf");
  const preferred = ["Q4_K_M", "Q4_0", "Q5_K_M", "Q8_0", "Q6_K", "Q4_K_S", "F16", "BF16", "F32"];
  for (const [i, type] of preferred.entries()) {
    const paths = preferred.slice(i).map((type) => `m-${type}.gguf`);
    assertEquals(entryOf(["m-Q2_K.gguf", ...paths.reverse()]), `m-${type}.gguf`);
  }
});

Deno.test("a selector prefers whole words", () => {
  const paths = ["m-Q4_K_M.gguf", "m-Q4_K.gguf", "m-IQ4_XS.gguf"];
  assertEquals(entryOf(paths, "q4_k"), "m-Q4_K.gguf");
  assertEquals(entryOf(paths, "iq4"), "m-IQ4_XS.gguf");
  assertEquals(entryOf(paths, "m-Q4_K_M.gguf"), "m-Q4_K_M.gguf");
  assertEquals(entryOf(["sub/m-Q8_0.gguf", "m-Q8_0.gguf"], "m-Q8_0.gguf"), "m-Q8_0.gguf");
  assertThrows(() => entryOf(paths, "Q4.K"), ForgeError, 'a GGUF file "Q4.K"');
});

Deno.test("a split file is downloaded with all its parts and opened by its first", () => {
  const paths = [
    "m-Q8_0-00002-of-00002.gguf",
    "m-Q8_0-00001-of-00002.gguf",
    "m-Q4_0.gguf",
    // Other models in as many parts.
    ...["m-Q4_0", "m-Q8_0-long"].map((name) => `${name}-00001-of-00002.gguf`),
    // The same model in more parts.
    ...[1, 2, 3].map((part) => `m-Q8_0-0000${part}-of-00003.gguf`),
  ];
  const selection = selectFiles("org/name", files(...paths), "Q8_0");
  assertEquals(selection.entry, "m-Q8_0-00001-of-00002.gguf");
  assertEquals(selection.files.map(({ path }) => path).sort(), paths.slice(0, 2).sort());
});

Deno.test("a folder includes its tokenizer and embedding settings", () => {
  const wanted = [
    ...["config.json", "modules.json", "1_Pooling/config.json", "2_Normalize/config.json"],
    ...["tokenizer.json", "tokenizer_config.json", "generation_config.json"],
    ...["chat_template.jinja", "chat_template.json", "hf_quant_config.json"],
    ...["model.safetensors.index.json", "model.safetensors"],
  ];
  const paths = [...wanted, "README.md", "onnx/config.json", "a/1_Pooling/config.json", "x.bin"]
    .concat("original/model.safetensors", "model.safetensors.part", "adapter_model.safetensors");
  const selection = selectFiles("org/name", files(...paths), undefined);
  assertEquals(selection.files.map(({ path }) => path).sort(), wanted.toSorted());
});

Deno.test("a configuration without safetensors files is not a folder", () => {
  assertEquals(entryOf(["config.json", "m-Q8_0.gguf"]), "m-Q8_0.gguf");
  assertEquals(entryOf(["m-Q8_0.gguf", "model.safetensors"]), "m-Q8_0.gguf");
  assertEquals(entryOf(["config.json", "m-Q8_0.gguf", "model.safetensors"]), "");
});

Deno.test("a missing file is an error that lists the available ones", () => {
  assertThrows(() => entryOf(["m-Q8_0.gguf"], "Q2_K"), ForgeError, 'it holds "m-Q8_0.gguf"');
  assertThrows(() => entryOf(["\x1b[31m.gguf"], "Q2_K"), ForgeError, "\\u001b[31m.gguf");
  assertThrows(() => entryOf(["pytorch_model.bin"]), ForgeError, "neither GGUF");
  assertThrows(
    () => entryOf(["config.json", "model.safetensors"], "Q8_0"),
    ForgeError,
    "leave out the part after the colon",
  );
});
