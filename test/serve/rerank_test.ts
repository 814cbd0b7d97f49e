/** Tests reranking over HTTP: the order of documents, and rejected requests. */
import { assertEquals, assertStringIncludes } from "@std/assert";
import { RequestError } from "../../src/requests/values.ts";
import { encoders, writeEncoder } from "../models/encoders/encoders.ts";
import { TempFolder } from "../support/temp_folder.ts";
import { writeRandomLlama } from "../support/tiny_llama.ts";
import { Client, DEMO } from "./client.ts";

const { query, documents } = encoders;

Deno.test("serve: documents come best first, as Jina and Cohere answer", async () => {
  using folder = new TempFolder();
  writeEncoder(folder.path, "xlm-roberta, cross-encoder");
  await using client = await Client.open(folder.path, { names: ["ranker"] });
  const scores = await client.model.rerank(query, documents);
  const order = scores.toSorted((a, b) => b.logit - a.logit);
  const results = order.map(({ index, score }) => ({ index, relevance_score: score }));
  const tokens = scores.reduce((sum, score) => sum + score.tokens, 0);
  for (const path of ["/v1/rerank", "/v2/rerank", "/rerank"]) {
    const response = await client.post(path, { model: "ranker", query, documents });
    const { id, ...answer } = await response.json();
    assertEquals([response.status, typeof id], [200, "string"]);
    assertEquals(answer, {
      object: "list",
      model: "ranker",
      usage: { prompt_tokens: tokens, total_tokens: tokens },
      results,
    });
  }
  const body = {
    query,
    documents: documents.map((text) => ({ text })),
    top_n: 2,
    return_documents: true,
  };
  const best = await (await client.post("/v1/rerank", body)).json();
  assertEquals(
    best.results,
    results.slice(0, 2).map((result) => ({
      ...result,
      document: { text: documents[result.index] },
    })),
  );
});

for (const name of ["xlm-roberta, cross-encoder", "qwen3, yes or no"]) {
  Deno.test(`serve: documents are cut after max_tokens_per_doc tokens for ${name}`, async () => {
    using folder = new TempFolder();
    writeEncoder(folder.path, name);
    await using client = await Client.open(folder.path);
    const scoresOf = async (body: Readonly<Record<string, unknown>>) => {
      const { results } = await (await client.post("/v2/rerank", { query, ...body })).json();
      return results.map(({ relevance_score: score }: { relevance_score: number }) => score);
    };
    const { length } = client.model.tokenizer.encode("sugar", { addSpecial: false });
    const cut = { max_tokens_per_doc: length, priority: 1 };
    const short = await scoresOf({ documents: ["sugar"], max_tokens_per_doc: 100 });
    assertEquals(short, await scoresOf({ documents: ["sugar"] }));
    assertEquals(await scoresOf({ documents: ["sugar sugar"], ...cut }), short);
    assertEquals(
      await scoresOf({ documents: ["sugar " + "and so on ".repeat(20)], ...cut }),
      short,
    );
    const { message } = await client.refusal("/v2/rerank", {
      query,
      documents,
      max_tokens_per_doc: 0,
    });
    assertStringIncludes(message, "max_tokens_per_doc is 0");
  });
}

Deno.test("serve: what cannot be reranked is rejected by name", async () => {
  using folder = new TempFolder();
  writeEncoder(folder.at("ranker"), "xlm-roberta, cross-encoder");
  writeRandomLlama(folder.at("llama"));
  await using client = await Client.open(folder.at("ranker"));
  const long = "sugar ".repeat(200);
  for (
    const [body, message, param] of [
      [{ documents }, "query is missing", "query"],
      [{ query }, "documents is missing; valid is a list of texts", "documents"],
      [{ query, documents: [] }, "documents is an empty array", "documents"],
      [{ query, documents: ["a", 1] }, "documents[1] is 1; valid is a text", "documents[1]"],
      [{ query, documents: Array(1001).fill("a") }, "documents has 1001 texts", "documents"],
      [{ query, documents, top_n: 0 }, "top_n is 0", "top_n"],
      [{ query, documents, texts: [] }, 'unknown key "texts"', "texts"],
      [{ query, documents: [long] }, "tokens; the context holds 94", null],
    ] as const
  ) {
    const error = await client.refusal("/v1/rerank", body);
    assertStringIncludes(error.message, message);
    assertEquals(error.param, param);
  }
  const cut = await client.post("/v1/rerank", { query, documents: [long], truncate: true });
  assertEquals((await cut.json()).usage.total_tokens, 94);
  await using generator = await Client.open(folder.at("llama"));
  const error = await generator.refusal("/v1/rerank", { query, documents });
  assertStringIncludes(error.message, "generates text and has no classification head");
});

interface Signalled {
  readonly signal?: AbortSignal | undefined;
}

Deno.test("serve: the options of embeddings and rankings reach the model", async () => {
  await using client = await Client.open(DEMO, { defaults: { lora: "d" } });
  const { model } = client;
  let asked: { inputs: unknown[]; options: Record<string, unknown> } | undefined;
  const note = async (inputs: unknown[], { signal: _, ...options }: Signalled) => {
    asked = { inputs, options: JSON.parse(JSON.stringify(options)) };
    const { answers } = await (await client.get("/health")).json();
    assertEquals(answers, 1, "it takes the place of an answer");
    throw new RequestError("it is known what is asked");
  };
  model.embed = (texts, options = {}) => note([texts], options);
  model.rerank = (query, documents, options = {}) => note([query, documents], options);
  const many = (count: number) => Array<string>(count).fill("a");
  const rank = { query: "q", documents: ["a", { text: "b" }] };
  const cases: readonly (readonly [path: string, body: object, inputs: unknown[], object])[] = [
    ["/v1/rerank", rank, ["q", ["a", "b"]], { lora: "d" }],
    [
      "/v1/rerank",
      { ...rank, truncate: true, instruction: "i", max_tokens_per_doc: 3, lora: "l" },
      ["q", ["a", "b"]],
      { truncate: true, instruction: "i", maxDocumentTokens: 3, lora: "l" },
    ],
    ["/v1/rerank", { ...rank, documents: many(1000) }, ["q", many(1000)], { lora: "d" }],
    ["/v1/embeddings", { input: "a" }, [["a"]], { lora: "d" }],
    ["/v1/embeddings", { input: many(2048), dimensions: 4, lora: "l" }, [many(2048)], {
      dimensions: 4,
      lora: "l",
    }],
    ["/api/embed", { input: ["a"] }, [["a"]], { truncate: true, lora: "d" }],
    ["/api/embed", { input: ["a"], truncate: false, dimensions: 4 }, [["a"]], {
      truncate: false,
      dimensions: 4,
      lora: "d",
    }],
    ["/api/embeddings", { prompt: "a" }, [["a"]], { truncate: true, lora: "d" }],
  ];
  for (const [path, body, inputs, options] of cases) {
    asked = undefined;
    const answer = await (await client.post(path, body)).text();
    assertStringIncludes(answer, "it is known what is asked");
    assertEquals<unknown>(asked, { inputs, options }, path);
  }
  for (
    const [path, body, message] of [
      ["/v1/rerank", { ...rank, documents: many(1001) }, "documents has 1001 texts; at most 1000"],
      ["/v1/embeddings", { input: many(2049) }, "input has 2049 texts; at most 2048"],
    ] as const
  ) assertStringIncludes((await client.refusal(path, body)).message, message);
});
