/**
 * Compares encoders and rerankers with transformers, and their tokenizers with `tokenizers`:
 * `encoders.py` writes the results.
 */
import { assert, assertEquals, assertRejects, assertStringIncludes } from "@std/assert";
import { InputFile } from "../../../src/formats/file.ts";
import { type GgufField, writeGguf } from "../../../src/formats/gguf/writer.ts";
import type { JsonObject } from "../../../src/formats/json.ts";
import { float32Tensor, type TensorData } from "../../../src/formats/tensor_data.ts";
import {
  ForgeError,
  load,
  type LoadOptions,
  openCheckpoint,
  type TensorInfo,
} from "../../../src/mod.ts";
import { writeModelFolder } from "../../support/safetensors_writer.ts";
import { TempFolder } from "../../support/temp_folder.ts";
import { assertClose } from "../reference_check.ts";
import { encoders, type Score, type Vectors, writeEncoder } from "./encoders.ts";

const { query, documents, models } = encoders;

const DEVICES: readonly LoadOptions[] = [
  { device: "reference" },
  { device: "cpu", kvType: "F32" },
];

for (const [name, { kind, results }] of Object.entries(models)) {
  Deno.test(`${name} agrees with transformers`, async () => {
    using folder = new TempFolder();
    writeEncoder(folder.path, name);
    for (const options of DEVICES) {
      await using model = await load(folder.path, options);
      if (kind === "embed") {
        const vectors = results as readonly Vectors[];
        assertEquals(
          documents.map((text) => [...model.tokenizer.encode(text)]),
          vectors.map(({ tokens }) => tokens),
        );
        for (const pooling of ["mean", "cls", "last"] as const) {
          const embedded = await model.embed(documents, { pooling, normalize: false });
          embedded.forEach(({ vector }, i) => assertClose(vector, vectors[i]![pooling], 1e-4));
        }
      } else {
        const scores = results as readonly Score[];
        const ranked = await model.rerank(query, documents);
        assertEquals(ranked.map(({ tokens }) => tokens), scores.map(({ tokens }) => tokens));
        assertClose(ranked.map(({ logit }) => logit), scores.map(({ logit }) => logit), 1e-4);
        for (const { score, logit } of ranked) {
          assert(Math.abs(score - 1 / (1 + Math.exp(-logit))) < 1e-12);
        }
        const byScore = (list: readonly { readonly logit: number }[]) =>
          list.map(({ logit }, i) => ({ logit, i })).sort((a, b) => b.logit - a.logit)
            .map(({ i }) => i);
        assertEquals(byScore(ranked), byScore(scores));
      }
    }
  });
}

/** GGUF's names of the tensors of encoders. */
const GGUF_NAMES: readonly (readonly [RegExp, string])[] = [
  [/^model\.embeddings\.word_embeddings/, "token_embd"],
  [/^model\.embeddings\.token_type_embeddings/, "token_types"],
  [/^model\.embeddings\.position_embeddings/, "position_embd"],
  [/^model\.embeddings\.LayerNorm/, "token_embd_norm"],
  [/^model\.layers\./, "blk."],
  [/self_attn\.(q|k|v|qkv)_proj/, "attn_$1"],
  [/self_attn\.o_proj/, "attn_output"],
  [/post_attention_layernorm/, "attn_output_norm"],
  [/mlp\.gate_proj/, "ffn_gate"],
  [/mlp\.(?:gate_)?up_proj/, "ffn_up"],
  [/mlp\.down_proj/, "ffn_down"],
  [/post_mlp_layernorm/, "layer_output_norm"],
  [/mlp_norm/, "ffn_norm"],
  [/^model\.norm\./, "output_norm."],
  [/^(?:classifier|head)\.dense/, "cls"],
  [/^head\.norm/, "cls.norm"],
  [/^classifier(?:\.out_proj)?/, "cls.output"],
];

/** Returns the tensors of a folder with GGUF's names, as llama.cpp's converter writes them. */
function ggufTensors(folder: string, firstPosition: number, names = GGUF_NAMES): TensorData[] {
  const bytesOf = ({ file, offset, bytes }: TensorInfo) => {
    using input = InputFile.open(file);
    const data = new Uint8Array(bytes);
    input.readAt(offset, data);
    return data;
  };
  const tensors = [...openCheckpoint(folder).tensors].filter(([name]) => !name.includes("pooler"));
  return tensors.map(([stored, tensor]) => {
    const name = names.reduce((name, [from, to]) => name.replace(from, to), stored);
    const [rows = 0, cols = 0] = tensor.shape;
    const first = name.startsWith("position_embd") ? firstPosition : 0;
    const shape = first > 0 ? [rows - first, cols] : tensor.shape;
    return { name, type: "F32", shape, data: bytesOf(tensor).subarray(4 * first * cols) };
  });
}

/** Returns the tokenizer of a tokenizer.json as fields of GGUF. */
function ggufTokenizer({ model, added_tokens }: JsonObject): Record<string, GgufField> {
  const { type, vocab, merges } = model as JsonObject;
  const special = new Set((added_tokens as JsonObject[]).map(({ content }) => content));
  const pieces: (readonly [string, number])[] = Array.isArray(vocab)
    ? vocab as [string, number][]
    : Object.entries(vocab as Record<string, number>).sort((a, b) => a[1] - b[1]);
  const texts = pieces.map(([text]) => text);
  const id = (text: string): GgufField => ["u32", texts.indexOf(text)];
  const kind = { WordPiece: "bert", Unigram: "t5", BPE: "gpt2" }[type as string]!;
  const [bos, eos] = texts.includes("[CLS]") ? ["[CLS]", "[SEP]"] : ["<s>", "</s>"];
  const phantom = (text: string) =>
    special.has(text) ? text : text.startsWith("##") ? text.slice(2) : `▁${text}`;
  return {
    "tokenizer.ggml.model": ["string", kind],
    "tokenizer.ggml.pre": ["string", kind === "gpt2" ? "gpt-2" : "default"],
    "tokenizer.ggml.tokens": ["array", "string", kind === "bert" ? texts.map(phantom) : texts],
    "tokenizer.ggml.token_type": ["array", "i32", texts.map((text) => special.has(text) ? 3 : 1)],
    "tokenizer.ggml.bos_token_id": id(bos),
    "tokenizer.ggml.eos_token_id": id(eos),
    "tokenizer.ggml.seperator_token_id": id(eos),
    "tokenizer.ggml.unknown_token_id": id(texts.includes("[UNK]") ? "[UNK]" : "<unk>"),
    "tokenizer.ggml.add_bos_token": ["bool", true],
    "tokenizer.ggml.add_eos_token": ["bool", true],
    "tokenizer.ggml.add_space_prefix": ["bool", true],
    ...(kind === "t5"
      ? { "tokenizer.ggml.scores": ["array", "f32", pieces.map(([, score]) => score)] }
      : {}),
    ...(kind === "gpt2"
      ? {
        "tokenizer.ggml.merges": [
          "array",
          "string",
          (merges as [string, string][]).map((pair) => pair.join(" ")),
        ],
      }
      : {}),
  };
}

/** Fields of the architectures in addition to those of every encoder. */
const GGUF_FIELDS: Readonly<Record<string, Record<string, GgufField>>> = {
  "nomic-bert": { "rope.freq_base": ["f32", 1000] },
  "jina-bert-v3": { "rope.freq_base": ["f32", 20_000] },
  "modern-bert": {
    "rope.freq_base": ["f32", 160_000],
    "rope.freq_base_swa": ["f32", 10_000],
    "attention.sliding_window": ["u32", 8],
    "attention.sliding_window_pattern": ["u32", 3],
  },
};

/** Writes a model of encoders.json as a GGUF file. */
function writeGgufModel(folder: TempFolder, name: string, arch: string): string {
  const { config, tokenizer, kind } = models[name]!;
  const sizes: Record<string, GgufField> = {
    block_count: ["u32", config.num_hidden_layers as number],
    context_length: ["u32", 94],
    embedding_length: ["u32", 32],
    feed_forward_length: ["u32", 48],
    "attention.head_count": ["u32", 4],
    "attention.layer_norm_epsilon": ["f32", (config.layer_norm_eps ?? config.norm_eps) as number],
    "attention.causal": ["bool", false],
    pooling_type: ["u32", kind === "rerank" ? 4 : 1],
    ...GGUF_FIELDS[arch],
  };
  writeEncoder(folder.at("model"), name);
  const path = folder.at("model.gguf");
  writeGguf(path, {
    metadata: {
      "general.architecture": ["string", arch],
      ...Object.fromEntries(Object.entries(sizes).map(([key, field]) => [`${arch}.${key}`, field])),
      ...ggufTokenizer(tokenizer),
    },
    tensors: ggufTensors(folder.at("model"), name.includes("roberta") ? 2 : 0),
  });
  return path;
}

for (
  const [name, arch] of [
    ["bert", "bert"],
    ["roberta, cross-encoder", "bert"],
    ["xlm-roberta", "bert"],
    ["xlm-roberta, cross-encoder", "bert"],
    ["nomic_bert", "nomic-bert"],
    ["jina_embeddings_v3", "jina-bert-v3"],
    ["modernbert", "modern-bert"],
    ["modernbert, cross-encoder of the mean", "modern-bert"],
  ] as const
) {
  Deno.test(`${name} from GGUF agrees with transformers`, async () => {
    using folder = new TempFolder();
    const path = writeGgufModel(folder, name, arch);
    await using model = await load(path, { device: "cpu", kvType: "F32" });
    const { kind, results } = models[name]!;
    if (kind === "embed") {
      const embedded = await model.embed(documents, { normalize: false });
      embedded.forEach(({ vector }, i) =>
        assertClose(vector, (results as readonly Vectors[])[i]!.mean, 1e-4)
      );
      return;
    }
    const scores = results as readonly Score[];
    const ranked = await model.rerank(query, documents);
    assertEquals(ranked.map(({ tokens }) => tokens), scores.map(({ tokens }) => tokens));
    assertClose(ranked.map(({ logit }) => logit), scores.map(({ logit }) => logit), 1e-4);
  });
}

Deno.test("the context of an encoder ends with its table of positions, or before", async () => {
  for (const name of ["bert", "xlm-roberta", "roberta, cross-encoder"]) {
    const { config, tensors } = encoders.models[name]!;
    const [, [rows]] = Object.entries(tensors).find(([key]) => /position_emb/.test(key)) as [
      string,
      [number],
    ];
    // The first rows of RoBERTa's table belong to no position of a text.
    const most = rows - (name === "bert" ? 0 : Number(config.pad_token_id) + 1);
    for (const max_position_embeddings of [rows, 4 * rows, 16]) {
      using folder = new TempFolder();
      writeEncoder(folder.path, name, { max_position_embeddings });
      await using model = await load(folder.path, { device: "cpu" });
      assert(model.contextLength <= Math.min(most, max_position_embeddings), name);
      if (max_position_embeddings >= rows) assertEquals(model.contextLength, most);
    }
  }
});

Deno.test("a BERT reranker whose GGUF file lacks the pooler is rejected", async () => {
  using folder = new TempFolder();
  const path = writeGgufModel(folder, "bert, cross-encoder", "bert");
  const error = await assertRejects(() => load(path, { device: "cpu" }), ForgeError);
  assertStringIncludes(error.message, `without the first ("cls.weight")`);
});

/** Writes a dense layer of sentence-transformers. */
function writeDense(path: string, rows: number, cols: number, values: Float32Array): void {
  const config = {
    in_features: cols,
    out_features: rows,
    bias: false,
    activation_function: "x.Tanh",
  };
  writeModelFolder(path, { "config.json": config }, [
    float32Tensor("linear.weight", [rows, cols], values),
  ]);
}

Deno.test("dense layers after the pooling are computed", async () => {
  using folder = new TempFolder();
  const path = folder.at("model");
  writeEncoder(path, "embeddinggemma");
  await using plain = await load(path, { device: "cpu", kvType: "F32" });
  const [pooled] = await plain.embed(["sugar"], { pooling: "mean", normalize: false });
  const { vector } = pooled!;
  const values = Float32Array.from({ length: 5 * 32 }, (_, i) => Math.sin(i));
  writeDense(folder.at("model", "2_Dense"), 5, 32, values);
  const modules = ["Transformer", "Pooling", "Dense", "Normalize"].map((name, i) => ({
    type: `sentence_transformers.models.${name}`,
    path: i === 0 ? "" : `${i}_${name}`,
  }));
  Deno.writeTextFileSync(folder.at("model", "modules.json"), JSON.stringify(modules));
  const dense = Array.from(
    { length: 5 },
    (_, row) => Math.tanh(vector.reduce((sum, x, i) => sum + x * values[32 * row + i]!, 0)),
  );
  const length = Math.hypot(...dense);
  await using model = await load(path, { device: "cpu", kvType: "F32" });
  const [embedded] = await model.embed(["sugar"], { pooling: "mean" });
  assertClose(embedded!.vector, dense.map((x) => x / length), 1e-6);
  await assertRejects(() => model.embed(["sugar"], { dimensions: 6 }), ForgeError, "1 to 5");
});

/** GGUF's names of the tensors of Qwen3. */
const QWEN_NAMES: readonly (readonly [RegExp, string])[] = [
  [/^model\.embed_tokens/, "token_embd"],
  [/^model\.norm/, "output_norm"],
  [/^model\.layers\./, "blk."],
  [/input_layernorm/, "attn_norm"],
  [/self_attn\.(q|k)_norm/, "attn_$1_norm"],
  [/self_attn\.(q|k|v)_proj/, "attn_$1"],
  [/self_attn\.o_proj/, "attn_output"],
  [/post_attention_layernorm/, "ffn_norm"],
  [/mlp\.(gate|up|down)_proj/, "ffn_$1"],
];

/** Writes Qwen3-Reranker as llama.cpp's converter does: the rows of "yes" and "no" are its head. */
function writeQwenReranker(folder: TempFolder, labels: readonly string[]): string {
  const { tokenizer } = models["qwen3, yes or no"]!;
  writeEncoder(folder.at("model"), "qwen3, yes or no");
  const tensors = ggufTensors(folder.at("model"), 0, QWEN_NAMES);
  const { vocab } = tokenizer.model as { vocab: Record<string, number> };
  const embedding = tensors.find(({ name }) => name === "token_embd.weight")!.data as Uint8Array;
  const row = (
    word: string,
  ) => [...embedding.subarray(128 * vocab[word]!, 128 * vocab[word]! + 128)];
  const head = Uint8Array.from(["yes", "no"].flatMap(row));
  const path = folder.at("reranker.gguf");
  const { "tokenizer.ggml.bos_token_id": _, "tokenizer.ggml.seperator_token_id": __, ...words } =
    ggufTokenizer(tokenizer);
  const sizes: Record<string, GgufField> = {
    block_count: ["u32", 3],
    context_length: ["u32", 512],
    embedding_length: ["u32", 32],
    feed_forward_length: ["u32", 48],
    "attention.head_count": ["u32", 4],
    "attention.head_count_kv": ["u32", 2],
    "attention.key_length": ["u32", 8],
    "attention.value_length": ["u32", 8],
    "attention.layer_norm_rms_epsilon": ["f32", 1e-6],
    "rope.freq_base": ["f32", 10_000],
    pooling_type: ["u32", 4],
    "classifier.output_labels": ["array", "string", labels],
  };
  writeGguf(path, {
    metadata: {
      "general.architecture": ["string", "qwen3"],
      ...Object.fromEntries(Object.entries(sizes).map(([key, field]) => [`qwen3.${key}`, field])),
      ...words,
      "tokenizer.ggml.eos_token_id": ["u32", 2],
      "tokenizer.ggml.unknown_token_id": ["u32", 0],
      "tokenizer.ggml.add_bos_token": ["bool", false],
      "tokenizer.ggml.add_eos_token": ["bool", false],
    },
    tensors: [...tensors, { name: "cls.output.weight", type: "F32", shape: [2, 32], data: head }],
  });
  return path;
}

Deno.test("Qwen3-Reranker from GGUF scores as transformers does", async () => {
  using folder = new TempFolder();
  const options = { device: "cpu", kvType: "F32" } as const;
  await using model = await load(writeQwenReranker(folder, ["yes", "no"]), options);
  const ranked = await model.rerank(query, documents);
  const scores = models["qwen3, yes or no"]!.results as readonly Score[];
  assertEquals(ranked.map(({ tokens }) => tokens), scores.map(({ tokens }) => tokens));
  assertClose(ranked.map(({ logit }) => logit), scores.map(({ logit }) => logit), 1e-4);
  await assertRejects(() => model.complete("a"), ForgeError, "embeds or scores texts");
  await using other = await load(writeQwenReranker(folder, ["good", "bad"]), options);
  await assertRejects(() => other.rerank(query, documents), ForgeError, "classifies texts into 2");
});
