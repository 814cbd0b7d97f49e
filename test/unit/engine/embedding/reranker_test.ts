/** Tests the tokens and scores of reranking with a model whose tokens are the letters of texts. */
import { assertAlmostEquals, assertEquals, assertRejects } from "@std/assert";
import { Reranker, type RerankOptions } from "../../../../src/engine/embedding/reranker.ts";
import { ForgeError } from "../../../../src/errors.ts";

type Parts = ConstructorParameters<typeof Reranker>[0];

interface FakeParts {
  readonly modelType?: string;
  readonly contextLength?: number;
  /** Rows of the classification head; without it the model generates. */
  readonly labels?: number | undefined;
  readonly labelNames?: readonly string[];
  readonly hasHead?: boolean;
  readonly hasTokenTypes?: boolean;
  /** Tokens that the vocabulary has. */
  readonly words?: Readonly<Record<string, number>>;
}

const VOCABULARY = 1000;
const [FIRST, BETWEEN, LAST] = [901, 902, 903];

const spell = (text: string) => Array.from(text, (letter) => letter.charCodeAt(0));

/** A reranker that keeps the tokens of all pairs. The n-th row of a head scores n times them. */
function rerankerOf(fake: FakeParts) {
  const { modelType = "bert", contextLength = 20, labels, hasHead = false } = fake;
  const { labelNames, hasTokenTypes = false, words = {} } = fake;
  const pairs: number[][] = [];
  const tokenizer = {
    encode: (text: string, { addSpecial }: Record<string, unknown>) => {
      assertEquals(addSpecial, false);
      return Int32Array.from(spell(text));
    },
    *encodeInSlices(text: string, { addSpecial, parseSpecial }: Record<string, unknown>) {
      assertEquals([addSpecial, parseSpecial], [false, false]);
      return yield* [], Int32Array.from(spell(text));
    },
    decode: (ids: Int32Array) => String.fromCharCode(...ids),
    idOf: (word: string) => words[word],
    pair: [
      { ids: [FIRST], type: 0 },
      { ids: "first", type: 0 },
      { ids: [BETWEEN, BETWEEN], type: 0 },
      { ids: "second", type: 1 },
      { ids: [LAST], type: 1 },
    ],
  };
  const layer = {
    rows: labels,
    cols: 1,
    weight: () => Float32Array.from({ length: labels ?? 0 }, (_, row) => row + 1),
    activation: "identity",
  };
  const classifier = labels === undefined ? undefined : { pooling: "cls", layers: [layer] };
  const pool = (texts: readonly Int32Array[], pooling: string) => {
    assertEquals(pooling, "cls");
    pairs.push(...texts.map((ids) => [...ids]));
    return Promise.resolve(texts.map(({ length }) => Float32Array.of(length / 10)));
  };
  const submit = (task: Parameters<Parts["scheduler"]["submit"]>[0]) => {
    const ids = [...task.tokens.view(0)];
    pairs.push(ids);
    const readLogits = () => Float32Array.from({ length: VOCABULARY }, (_, id) => id * ids.length);
    const rest = { ahead: [], drafted: 0, pages: [], began: 0, ended: 0, readState: () => [] };
    const results = [{ token: 0, logprob: 0, top: [] }];
    task.accept({ computed: ids.length, results, readLogits, ...rest });
  };
  const name = `${modelType}.classifier.output_labels`;
  const reranker = new Reranker({
    scheduler: { submit },
    embedder: { pool },
    tokenizer,
    lm: { classifier, hasHead, hasTokenTypes, vocabSize: VOCABULARY },
    checkpoint: { path: "m", modelType, metadata: labelNames && new Map([[name, labelNames]]) },
    contextLength,
  } as unknown as Parts);
  return {
    pairs,
    rank: (query: string, documents: readonly string[], options: RerankOptions = {}) =>
      reranker.rerank(query, documents, options),
  };
}

async function assertRefused(work: () => Promise<unknown>, code: string, message: string) {
  const error = await assertRejects(work, ForgeError);
  assertEquals([error.code, error.message], [code, message]);
}

Deno.test("a pair has the tokens that the tokenizer adds, and the types of its texts", async () => {
  for (const hasTokenTypes of [false, true]) {
    const { pairs, rank } = rerankerOf({ labels: 1, hasTokenTypes });
    const scores = await rank("abc", ["xy", "z".repeat(13)]);
    const second = hasTokenTypes ? VOCABULARY : 0;
    assertEquals(
      pairs,
      ["xy", "z".repeat(13)].map((document) => [
        ...[FIRST, ...spell("abc"), BETWEEN, BETWEEN],
        ...[...spell(document), LAST].map((id) => id + second),
      ]),
    );
    assertEquals(scores.map(({ index, tokens }) => [index, tokens]), [[0, 9], [1, 20]]);
    for (const { logit, score, tokens } of scores) {
      assertAlmostEquals(logit, tokens / 10, 1e-6);
      assertAlmostEquals(score, 1 / (1 + Math.exp(-tokens / 10)), 1e-6);
    }
  }
});

Deno.test("a document is cut where asked, or at the end of the context", async () => {
  const { pairs, rank } = rerankerOf({ labels: 1 });
  const cases: [query: number, document: number, RerankOptions, kept: number][] = [
    [3, 5, { maxDocumentTokens: 2 }, 2],
    [3, 5, { maxDocumentTokens: 5 }, 5],
    [3, 14, { truncate: true }, 13],
    [3, 14, { truncate: true, maxDocumentTokens: 12 }, 12],
    [3, 14, { maxDocumentTokens: 13 }, 13],
    [15, 3, { truncate: true }, 1],
  ];
  for (const [query, document, options, kept] of cases) {
    await rank("q".repeat(query), ["d".repeat(document)], options);
    assertEquals(pairs.at(-1)!.filter((id) => id === spell("d")[0]).length, kept);
  }
  const long = (query: number, document: number, options?: RerankOptions) => () =>
    rank("q".repeat(query), ["d", "d".repeat(document)], options);
  const holds = "tokens; the context holds 20";
  await assertRefused(long(3, 14), "bad_input", `the query with document 2 has 21 ${holds}`);
  await assertRefused(
    long(16, 1, { truncate: true }),
    "bad_input",
    `the query has 21 ${holds}`,
  );
  for (const maxDocumentTokens of [0, 1.5]) {
    await assertRefused(
      () => rank("q", ["d"], { maxDocumentTokens }),
      "usage",
      `maxDocumentTokens is ${maxDocumentTokens}; valid are whole numbers from 1`,
    );
  }
});

// From the model card of Qwen3-Reranker.
const BEFORE = "<|im_start|>system\nJudge whether the Document meets the requirements based on " +
  'the Query and the Instruct provided. Note that the answer can only be "yes" or "no".' +
  "<|im_end|>\n<|im_start|>user\n";
const AFTER = "<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n";
const INSTRUCTION = "Given a web search query, retrieve relevant passages that answer the query";

Deno.test("Qwen3-Reranker's prompt holds the instruction, the query and the document", async () => {
  const body = (instruction: string, document: string) =>
    `<Instruct>: ${instruction}\n<Query>: q {document}\n<Document>: ${document}`;
  const room = body("Do", "docs").length;
  const contextLength = BEFORE.length + AFTER.length + room;
  const words = { yes: 7, no: 4 };
  const fake = { modelType: "qwen3", hasHead: true, words };
  const large = rerankerOf({ ...fake, contextLength: 500 });
  const small = rerankerOf({ ...fake, contextLength });
  const rank = async (
    { pairs, rank }: typeof small,
    document: string,
    options?: RerankOptions,
  ) => {
    const [scored] = await rank("q {document}", [document], options);
    const text = String.fromCharCode(...pairs.at(-1)!);
    assertEquals([scored!.tokens, scored!.logit], [text.length, 3 * text.length]);
    assertEquals(text.startsWith(BEFORE) && text.endsWith(AFTER), true);
    return text.slice(BEFORE.length, -AFTER.length);
  };
  const instruction = "Do";
  assertEquals(await rank(large, "docs"), body(INSTRUCTION, "docs"));
  assertEquals(await rank(small, "docs", { instruction }), body("Do", "docs"));
  for (const maxDocumentTokens of [3, 4, 5]) {
    assertEquals(
      await rank(small, "docs", { instruction, maxDocumentTokens }),
      body("Do", "docs".slice(0, maxDocumentTokens)),
    );
  }
  assertEquals(await rank(small, "docs too", { instruction, truncate: true }), body("Do", "docs"));
  const refused = (context: number, options: RerankOptions, what: string) =>
    assertRefused(
      () =>
        rerankerOf({ ...fake, contextLength: context }).rank("q {document}", ["docs!"], options),
      "bad_input",
      `${what} tokens; the context holds ${context}`,
    );
  const whole = contextLength + 1;
  await refused(contextLength, { instruction }, `the query with document 1 has ${whole}`);
  const full = BEFORE.length + AFTER.length;
  await refused(full, { truncate: true }, `the prompt has ${full + 1}`);
  const least = rerankerOf({ ...fake, contextLength: full + 1 });
  assertEquals(await rank(least, "docs", { truncate: true }), "<");
});

Deno.test("a reranker has one label, yes and no, or their tokens", async () => {
  const { rank } = rerankerOf({ labels: 3, labelNames: ["no", "maybe", "yes"] });
  const [scored] = await rank("abc", ["xy"]);
  assertAlmostEquals(scored!.logit, (3 - 1) * 9 / 10, 1e-6);
  const many = '"m" classifies texts into 2 labels; a reranker has one';
  const no = (what: string) =>
    `"m" ${what} and has no classification head; rerankers are cross-encoders, such as ` +
    "bge-reranker, and Qwen3-Reranker";
  const words = { yes: 7, no: 4 }, hasHead = true;
  const cases: [FakeParts, string][] = [
    [{ labels: 2 }, many],
    [{ labels: 2, labelNames: ["yes", "maybe"] }, many],
    [{ labels: 2, labelNames: ["maybe", "no"] }, many],
    [{}, no("embeds texts")],
    [{ modelType: "qwen3", words }, no("embeds texts")],
    [{ modelType: "llama", hasHead, words }, no("generates text")],
    [{ modelType: "qwen3", hasHead, words: { yes: 7 } }, no("generates text")],
    [{ modelType: "qwen3", hasHead, words: { no: 4 } }, no("generates text")],
  ];
  for (const [fake, message] of cases) {
    await assertRefused(() => rerankerOf(fake).rank("a", ["b"]), "unsupported", message);
  }
});
