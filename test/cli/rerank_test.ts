/** Tests `forge rerank`: the order of documents, and models and arguments that cannot rerank. */
import { assertEquals, assertStringIncludes } from "@std/assert";
import { load } from "../../src/mod.ts";
import { writeEncoder } from "../models/encoders/encoders.ts";
import { TempFolder } from "../support/temp_folder.ts";
import { writeRandomLlama } from "../support/tiny_llama.ts";
import { forge } from "./forge.ts";

const QUERY = "how do plants make sugar";
const DOCUMENTS = ["plants make sugar", "the lazy dog", "animals eat plants"];

Deno.test("rerank: lines are printed best first, with the scores of the library", async () => {
  using folder = new TempFolder();
  writeEncoder(folder.at("model"), "bert, cross-encoder");
  await using model = await load(folder.at("model"), { device: "cpu" });
  const scores = await model.rerank(QUERY, DOCUMENTS);
  const lines = folder.write(
    "documents.txt",
    `${DOCUMENTS[0]}\n\n${DOCUMENTS[1]}\n${DOCUMENTS[2]}`,
  );
  const args = ["rerank", "-m", folder.at("model"), "--device", "cpu", QUERY, "--lines", lines];
  const { code, stdout, stderr } = await forge(args);
  assertEquals([code, stderr], [0, ""]);
  const best = scores.toSorted((a, b) => b.logit - a.logit);
  const expected = best.map(({ index, score, logit, tokens }) => {
    return { line: [1, 3, 4][index], score, logit, tokens, text: DOCUMENTS[index] };
  });
  assertEquals(stdout.trimEnd().split("\n").map((line) => JSON.parse(line)), expected);
  const one = await forge([...args, "--top", "1", "-o", "json"]);
  assertEquals(JSON.parse(one.stdout), expected.slice(0, 1));
});

Deno.test("rerank: long documents are errors, or cut by the library", async () => {
  using folder = new TempFolder();
  writeEncoder(folder.at("model"), "xlm-roberta, cross-encoder");
  const long = "sugar ".repeat(200);
  const args = ["rerank", "-m", folder.at("model"), "--device", "cpu", QUERY, "--lines", "-"];
  const { code, stderr } = await forge(args, { stdin: long });
  assertEquals(code, 1);
  assertStringIncludes(stderr, "the query with document 1 has ");
  assertStringIncludes(stderr, "tokens; the context holds 94");
  await using model = await load(folder.at("model"), { device: "cpu" });
  const [cut] = await model.rerank(QUERY, [long], { truncate: true });
  assertEquals(cut!.tokens, 94);
});

Deno.test("tasks that a model cannot do end in an error that says what it does", async () => {
  using folder = new TempFolder();
  writeEncoder(folder.at("encoder"), "bert");
  writeEncoder(folder.at("reranker"), "bert, cross-encoder");
  writeRandomLlama(folder.at("generator"));
  const lines = folder.write("documents.txt", "a fox\n");
  for (
    const [args, expected] of [
      [
        ["run", "-m", folder.at("encoder"), "-p", "a"],
        "embeds or scores texts and does not generate",
      ],
      [["chat", "-m", folder.at("encoder")], "the model does not generate; forge embed"],
      [["bench", "-m", folder.at("encoder")], "measured are models that generate"],
      [["embed", "-m", folder.at("reranker"), "a"], "scores texts with its classification head"],
      [["rerank", "-m", folder.at("encoder"), "a", "--lines", lines], "embeds texts and has no"],
      [
        ["rerank", "-m", folder.at("generator"), "a", "--lines", lines],
        "generates text and has no",
      ],
    ] as const
  ) {
    const { code, stdout, stderr } = await forge([...args, "--device", "cpu"], { stdin: "" });
    assertEquals([code, stdout], [1, ""]);
    assertStringIncludes(stderr, expected);
    assertEquals(stderr.trimEnd().split("\n").length, 1);
  }
  const missing = await forge(["rerank", "-m", folder.at("reranker"), "a"]);
  assertEquals(missing.code, 2);
  assertStringIncludes(missing.stderr, "no documents; give a file");
});
