/** Tests `forge embed`: sources of texts, forms of output and errors by line. */
import { assert, assertAlmostEquals, assertEquals, assertStringIncludes } from "@std/assert";
import { load } from "../../src/mod.ts";
import { TempFolder } from "../support/temp_folder.ts";
import { writeRandomLlama } from "../support/tiny_llama.ts";
import { forge } from "./forge.ts";

Deno.test("embed: a text, a file, stdin and lines give the vectors of the library", async () => {
  using folder = new TempFolder();
  writeRandomLlama(folder.at("model"));
  await using model = await load(folder.at("model"), { device: "cpu" });
  const args = ["embed", "-m", folder.at("model"), "--device", "cpu"];
  const fox = (await model.embed(["a fox"]))[0]!;
  const expected = { tokens: 6, embedding: [...fox.vector] };
  for (
    const [more, stdin] of [
      [["a fox"]],
      [["-f", folder.write("fox.txt", "a fox\n")]],
      [["-"], "a fox\n"],
      [["--lines", "-"], "\n  \na fox\r\n\n"],
    ] as const
  ) {
    const { code, stdout, stderr } = await forge([...args, ...more], { stdin: stdin ?? "" });
    assertEquals([code, stderr], [0, ""]);
    const { line, tokens, embedding } = JSON.parse(stdout);
    assertEquals(line, more[0] === "--lines" ? 3 : undefined);
    const vector = [...Float32Array.from(embedding)];
    assertEquals({ tokens, embedding: vector }, expected);
    assert(stdout.endsWith("}\n") && !stdout.slice(0, -1).includes("\n"), stdout);
  }
});

Deno.test("embed: lines keep their order, with the given dimensions and pooling", async () => {
  using folder = new TempFolder();
  writeRandomLlama(folder.at("model"));
  const lines = Array.from({ length: 80 }, (_, i) => "sea ".repeat(1 + (i * 7) % 40));
  const file = folder.write("lines.txt", lines.join("\n"));
  const args = ["-m", folder.at("model"), "--device", "cpu", "--dimensions", "5"];
  const more = ["--pooling", "mean", "--normalize", "no", "-o", "json"];
  const embed = (replicas: number) => {
    const division = ["-t", "2", "--data-parallel", `${replicas}`];
    return forge(["embed", ...args, ...more, ...division, "--lines", file]);
  };
  const { code, stdout } = await embed(2);
  assertEquals([code, (await embed(1)).stdout], [0, stdout]);
  const objects: { line: number; tokens: number; embedding: number[] }[] = JSON.parse(stdout);
  assertEquals(objects.map(({ line }) => line), lines.map((_, i) => i + 1));
  await using model = await load(folder.at("model"), { device: "cpu" });
  const whole = await model.embed(lines, { pooling: "mean", normalize: false });
  for (const [i, { tokens, embedding }] of objects.entries()) {
    assertEquals([tokens, embedding.length], [whole[i]!.tokens, 5]);
    embedding.forEach((value, at) => assertAlmostEquals(value, whole[i]!.vector[at]!, 1e-6));
  }
  const none = await forge(["embed", ...args, "-o", "json", "--lines", "-"], { stdin: "" });
  assertEquals([none.code, none.stdout], [0, "[]\n"]);
});

Deno.test("embed: text that cannot be embedded is named, and earlier vectors are kept", async () => {
  using folder = new TempFolder();
  writeRandomLlama(folder.at("model"));
  const args = ["embed", "-m", folder.at("model"), "--device", "cpu"];
  const stdin = `a fox\n${"sea ".repeat(100)}\nb\n`;
  const long = await forge([...args, "--lines", "-"], { stdin });
  assertEquals([long.code, JSON.parse(long.stdout).line], [1, 1]);
  assertStringIncludes(long.stderr, "line 2: the text has 401 tokens; the context holds 256");
  const alone = await forge([...args, "sea ".repeat(100)]);
  assertStringIncludes(alone.stderr, "forge: error: the text has 401 tokens; the context holds");
  for (
    const [more, code, message] of [
      [["a", "-f", "b"], 2, "give the text once"],
      [["--pooling", "max", "a"], 2, "max"],
      [["--dimensions", "65", "a"], 2, "dimensions is 65; valid is a whole number from 1 to 64"],
      [
        ["--dimensions", "65", "--lines", folder.write("line", "a")],
        2,
        "error: dimensions is 65; valid is a whole number from 1 to 64",
      ],
      [["-f", folder.write("empty", "\n")], 2, `no text: "${folder.at("empty")}" is empty`],
      [["--lines", folder.at("none")], 1, "no such file"],
    ] as const
  ) {
    const outcome = await forge([...args, ...more]);
    assertEquals([outcome.code, outcome.stdout], [code, ""], outcome.stderr);
    assertStringIncludes(outcome.stderr, message);
  }
});
