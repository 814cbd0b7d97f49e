/**
 * Encoders: BERT, RoBERTa, XLM-R, Nomic, Jina 3 and ModernBERT. Each token sees the whole text.
 * They embed texts, and with a classification head they score pairs of texts.
 */
import type { Classifier, DenseLayer, Family, ModelSource, Pooling } from "../causal_lm.ts";
import type { ConfigReader } from "../config/config_reader.ts";
import { type DecoderConfig, decoderConfig } from "../config/decoder_config.ts";
import {
  biasRule,
  loadAttention,
  loadGatedMlp,
  loadLayerNorm,
  loadPlainMlp,
} from "../parts/blocks.ts";
import { loadRope } from "../parts/decoder.ts";
import { loadClassifier } from "../parts/classifier.ts";
import { loadEncoder, loadPostNormLayer } from "../parts/encoder.ts";

/** Key of the epsilon of BERT's norms. */
const NORM_EPS = ["layer_norm_eps", "attention.layer_norm_epsilon"] as const;

/** J. Devlin et al., arXiv:1810.04805. GGUF stores RoBERTa and XLM-R under the same name. */
export const bert: Family = {
  huggingFace: ["bert"],
  gguf: ["bert"],
  load: (source) => loadBert(source, 0, pooledHead(source)),
};

/** Y. Liu et al., arXiv:1907.11692; A. Conneau et al., arXiv:1911.02116. */
export const roberta: Family = {
  huggingFace: ["roberta", "xlm-roberta", "camembert"],
  gguf: [],
  // Positions count from the id of the padding token on, plus 1.
  load: (source) => {
    const padding = source.config.int(["pad_token_id", undefined], { min: 0, fallback: 1 });
    return loadBert(source, padding + 1, robertaHead(source));
  },
};

function loadBert(source: ModelSource, first: number, classifier: Classifier | undefined) {
  const { config } = source;
  const positions = config.raw(["position_embedding_type", undefined]) ?? "absolute";
  if (positions !== "absolute") {
    throw config.unsupported(["position_embedding_type", undefined], positions, `"absolute"`);
  }
  const c = decoderConfig(config, { normEps: NORM_EPS, activation: "gelu_erf" });
  return loadEncoder(
    source,
    { ...c, contextLength: c.contextLength - first },
    {
      firstPosition: first,
      classifier,
      layer: (weights, i) =>
        loadPostNormLayer(weights, c, i, {
          attention: () =>
            loadAttention(weights, c, i, {
              rope: undefined,
              causal: false,
              bias: "required",
              outputBias: "required",
            }),
          mlp: () => loadPlainMlp(weights, c, { bias: "required" }),
        }),
    },
  );
}

/** Nomic Embed: BERT with rotated heads and a gated MLP. Z. Nussbaum et al., arXiv:2402.01613. */
export const nomicBert: Family = {
  huggingFace: ["nomic_bert"],
  gguf: ["nomic-bert"],
  load(source) {
    const c = decoderConfig(source.config, { normEps: NORM_EPS, activation: "silu" });
    const rope = loadRope(source, c, { layout: "half" });
    return loadEncoder(source, c, {
      firstPosition: "none",
      classifier: pooledHead(source),
      layer: (weights, i) =>
        loadPostNormLayer(weights, c, i, {
          attention: () => loadAttention(weights, c, i, { rope, causal: false }),
          mlp: () => loadGatedMlp(weights, c),
        }),
    });
  },
};

/** Jina's text encoder without task adapters: XLM-R with rotated heads. arXiv:2409.10173. */
export const jinaBertV3: Family = {
  huggingFace: ["jina_embeddings_v3"],
  gguf: ["jina-bert-v3"],
  load(source) {
    const c = decoderConfig(source.config, { normEps: NORM_EPS, activation: "gelu_erf" });
    const rope = loadRope(source, c, { layout: "half" });
    return loadEncoder(source, c, {
      firstPosition: "none",
      classifier: robertaHead(source),
      layer: (weights, i) =>
        loadPostNormLayer(weights, c, i, {
          attention: () =>
            loadAttention(weights, c, i, {
              rope,
              causal: false,
              bias: "required",
              outputBias: "required",
            }),
          mlp: () => loadPlainMlp(weights, c, { bias: "required" }),
        }),
    });
  },
};

/**
 * ModernBERT: norms before blocks, rotated heads, a gated MLP, and in two of three layers a window.
 * B. Warner et al., arXiv:2412.13663.
 */
export const modernBert: Family = {
  huggingFace: ["modernbert"],
  gguf: ["modern-bert"],
  load(source) {
    const { config } = source;
    const c = decoderConfig(config, {
      normEps: ["norm_eps", "attention.layer_norm_epsilon"],
      activation: "gelu_erf",
    });
    const windows = modernBertWindows(source, c);
    const global = loadRope(source, c, { layout: "half", layerType: "full_attention" });
    const local = loadRope(source, c, { layout: "half", layerType: "sliding_attention" });
    const bias = biasRule(config, "attention_bias");
    const mlpBias = biasRule(config, "mlp_bias");
    const normBias = biasRule(config, "norm_bias");
    return loadEncoder(source, c, {
      firstPosition: "none",
      normBias,
      finalNorm: ["norm", "output_norm"],
      classifier: loadClassifier(source, c.hiddenSize, {
        names: {
          dense: ["head.dense", "cls"],
          norm: ["head.norm", "cls.norm"],
          out: ["classifier", "cls.output"],
        },
        pooling: classifierPooling(config),
        activation: classifierActivation(config),
        eps: c.normEps,
      }),
      layer: (layer, i) => {
        const window = windows[i];
        // The embeddings are normalised already.
        const before = i === 0
          ? undefined
          : loadLayerNorm(layer, c, ["attn_norm", "attn_norm"], { bias: normBias });
        const attention = loadAttention(layer, c, i, {
          rope: window === undefined ? global : local,
          window,
          causal: false,
          bias,
          outputBias: bias,
        });
        const beforeMlp = loadLayerNorm(layer, c, ["mlp_norm", "ffn_norm"], { bias: normBias });
        const mlp = loadGatedMlp(layer, c, { bias: mlpBias });
        return (pass, h) => {
          h = attention(pass, before?.(pass, h) ?? h, h);
          return mlp(pass, beforeMlp(pass, h), h);
        };
      },
    });
  },
};

/** Returns the pooling before ModernBERT's head. llama.cpp's files mean that of GTE, the mean. */
function classifierPooling(config: ConfigReader): Pooling {
  const key = ["classifier_pooling", undefined] as const;
  const pooling = config.string(key, "mean");
  if (pooling === "cls" || pooling === "mean") return pooling;
  throw config.invalid(key, pooling, `"cls" or "mean"`);
}

/** Activations of ModernBERT's head, which the host computes, by their names in config.json. */
const HEAD_ACTIVATIONS: Readonly<Record<string, DenseLayer["activation"]>> = {
  gelu: "gelu",
  relu: "relu",
  silu: "silu",
  swish: "silu",
  tanh: "tanh",
};

function classifierActivation(config: ConfigReader): DenseLayer["activation"] {
  const key = ["classifier_activation", undefined] as const;
  const name = config.string(key, "gelu");
  const known = Object.entries(HEAD_ACTIVATIONS).find(([own]) => own === name);
  if (known !== undefined) return known[1];
  throw config.unsupported(key, name, Object.keys(HEAD_ACTIVATIONS).join(", "));
}

/** Returns the window of each layer: half of `local_attention` on both sides of a token. */
function modernBertWindows({ config }: ModelSource, c: DecoderConfig): (number | undefined)[] {
  const window = Math.floor(config.int(["local_attention", "attention.sliding_window"]) / 2) + 1;
  const types = config.perLayer(["layer_types", undefined], c.nLayers);
  const every = config.int(
    ["global_attn_every_n_layers", "attention.sliding_window_pattern"],
    { fallback: 3 },
  );
  return Array.from({ length: c.nLayers }, (_, i) => {
    const isLocal = types === undefined ? i % every !== 0 : types[i] === "sliding_attention";
    return isLocal ? window : undefined;
  });
}

/** The head of BERT: its pooler, and a layer with a row for each label. */
function pooledHead(source: ModelSource): Classifier | undefined {
  return robertaHead(source, ["pooler.dense", "cls"], "classifier");
}

/** The head of RoBERTa. */
function robertaHead(
  source: ModelSource,
  dense: readonly [string, string] = ["classifier.dense", "cls"],
  out = "classifier.out_proj",
): Classifier | undefined {
  return loadClassifier(source, source.config.int(["hidden_size", "embedding_length"]), {
    names: { dense, out: [out, "cls.output"] },
    pooling: "cls",
    activation: "tanh",
  });
}
