"""Writes encoders.json: tiny encoders and rerankers, with the vectors and scores that transformers computes.

Each model is saved by transformers, with a tokenizer of the kind that the published models have, and its weights are
replaced by a function of their names, as in ../families/generated.ts. Needs torch, transformers and tokenizers:
python3 encoders.py
"""

import json
import pathlib
import sys
import tempfile

import torch
import transformers
from safetensors import safe_open
from safetensors.numpy import save_file
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / "families"))
from published import folded, values  # noqa: E402

TEXTS = [
    "the quick brown fox jumps over the lazy dog while yes or no remain the answers of many questions",
    "plants make sugar from light, water and air; animals eat plants or other animals",
    "a model of language reads tokens and writes tokens, one after another, until it ends",
]
QUERY = "how do plants make sugar"
DOCUMENTS = [TEXTS[1], TEXTS[0], "sugar", "A naïve question: yes, or no? " + TEXTS[2]]

SIZES = dict(
    vocab_size=160, hidden_size=32, intermediate_size=48, num_hidden_layers=3, num_attention_heads=4,
    max_position_embeddings=96,
)
DECODER = {**SIZES, "num_key_value_heads": 2, "head_dim": 8}


def word_piece():
    """Returns BERT's tokenizer."""
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    specials = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    tokenizer.train_from_iterator(TEXTS, trainers.WordPieceTrainer(vocab_size=150, special_tokens=specials))
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    tokenizer.decoder = decoders.WordPiece()
    return tokenizer


def unigram():
    """Returns XLM-R's tokenizer."""
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Replace("  ", " ")])
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    specials = ["<s>", "<pad>", "</s>", "<unk>"]
    tokenizer.train_from_iterator(
        TEXTS, trainers.UnigramTrainer(vocab_size=150, special_tokens=specials, unk_token="<unk>")
    )
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", pair="<s> $A </s> </s> $B </s>", special_tokens=[("<s>", 0), ("</s>", 2)]
    )
    tokenizer.decoder = decoders.Metaspace()
    return tokenizer


def byte_level(specials, post, size):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(
        vocab_size=size, special_tokens=specials, initial_alphabet=pre_tokenizers.ByteLevel.alphabet()
    )
    tokenizer.train_from_iterator([*TEXTS, "yes", "yes", "no", "no"], trainer)
    tokenizer.post_processor = post
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def roberta_bytes():
    post = processors.RobertaProcessing(("</s>", 2), ("<s>", 0), True, False)
    return byte_level(["<s>", "<pad>", "</s>", "<unk>"], post, 320)


def modern():
    """Returns ModernBERT's tokenizer."""
    post = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B [SEP]", special_tokens=[("[CLS]", 0), ("[SEP]", 1)]
    )
    return byte_level(["[CLS]", "[SEP]", "[PAD]", "[UNK]"], post, 320)


def qwen():
    post = processors.ByteLevel(trim_offsets=False)
    return byte_level(["<|endoftext|>", "<|im_start|>", "<|im_end|>"], post, 400)


def model(kind, model_type, config, tokenizer, **more):
    return dict(kind=kind, model_type=model_type, config=config, tokenizer=tokenizer, more=more)


HEAD = dict(num_labels=1)
XLMR = dict(type_vocab_size=1, layer_norm_eps=1e-5, pad_token_id=1)
NOMIC = dict(rope_parameters=dict(rope_type="default", rope_theta=1000.0))
MODERN = dict(
    vocab_size=320, local_attention=8, pad_token_id=2, num_hidden_layers=4, cls_token_id=0, sep_token_id=1,
    bos_token_id=0, eos_token_id=1,
)
GEMMA = {**DECODER, "sliding_window": 12, "query_pre_attn_scalar": 8, "use_bidirectional_attention": True}
MODELS = {
    "bert": model("embed", "bert", SIZES, word_piece),
    "bert, cross-encoder": model("rerank", "bert", {**SIZES, **HEAD}, word_piece),
    "roberta, cross-encoder": model(
        "rerank", "roberta", {**SIZES, **XLMR, **HEAD, "vocab_size": 320}, roberta_bytes
    ),
    "xlm-roberta": model("embed", "xlm-roberta", {**SIZES, **XLMR}, unigram),
    "xlm-roberta, cross-encoder": model("rerank", "xlm-roberta", {**SIZES, **XLMR, **HEAD}, unigram),
    "modernbert": model("embed", "modernbert", {**SIZES, **MODERN}, modern),
    "modernbert, cross-encoder": model(
        "rerank", "modernbert", {**SIZES, **MODERN, **HEAD, "classifier_activation": "silu"}, modern,
    ),
    "modernbert, cross-encoder of the mean": model(
        "rerank", "modernbert",
        {**SIZES, **MODERN, **HEAD, "classifier_pooling": "mean", "classifier_bias": True, "norm_bias": True,
         "mlp_bias": True, "attention_bias": True},
        modern,
    ),
    "nomic_bert": model("embed", "nomic_bert", {**SIZES, **NOMIC}, word_piece),
    "jina_embeddings_v3": model("embed", "jina_embeddings_v3", {**SIZES, **XLMR}, unigram),
    "jina_embeddings_v3, cross-encoder": model(
        "rerank", "jina_embeddings_v3", {**SIZES, **XLMR, **HEAD}, unigram
    ),
    "embeddinggemma": model("embed", "gemma3_text", GEMMA, unigram),
    "qwen3, cross-encoder": model(
        "prompt", "qwen3", {**DECODER, **HEAD, "vocab_size": 400, "pad_token_id": 0, "max_position_embeddings": 512},
        qwen,
    ),
    "qwen3, yes or no": model(
        "answer", "qwen3", {**DECODER, "vocab_size": 400, "max_position_embeddings": 512, "tie_word_embeddings": True},
        qwen,
    ),
}
AUTO = dict(
    embed=transformers.AutoModel, rerank=transformers.AutoModelForSequenceClassification,
    prompt=transformers.AutoModelForSequenceClassification, answer=transformers.AutoModelForCausalLM,
)

# The prompt of Qwen3-Reranker's model card.
BEFORE = (
    '<|im_start|>system\nJudge whether the Document meets the requirements based on the Query and the Instruct '
    'provided. Note that the answer can only be "yes" or "no".<|im_end|>\n<|im_start|>user\n'
)
AFTER = "<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n"
INSTRUCTION = "Given a web search query, retrieve relevant passages that answer the query"


def prompted(tokenizer, document):
    text = f"<Instruct>: {INSTRUCTION}\n<Query>: {QUERY}\n<Document>: {document}"
    return [id for part in (BEFORE, text, AFTER) for id in tokenizer.encode(part, add_special_tokens=False).ids]


def run(kind, loaded, tokenizer):
    """Returns the expected results of one model."""
    def ids(numbers):
        return torch.tensor([numbers])

    if kind == "embed":
        results = []
        for text in DOCUMENTS:
            encoded = tokenizer.encode(text)
            states = loaded(input_ids=ids(encoded.ids)).last_hidden_state[0]
            results.append(dict(tokens=encoded.ids, mean=rounded(states.mean(0)), cls=rounded(states[0]), last=rounded(states[-1])))
        return results
    results = []
    for document in DOCUMENTS:
        if kind == "rerank":
            encoded = tokenizer.encode(QUERY, document)
            types = {} if "modernbert" in loaded.config.model_type else {"token_type_ids": ids(encoded.type_ids)}
            logit = loaded(input_ids=ids(encoded.ids), **types).logits[0, 0]
            length = len(encoded.ids)
        else:
            tokens = prompted(tokenizer, document)
            logits = loaded(input_ids=ids(tokens)).logits[0]
            yes, no = (tokenizer.token_to_id(word) for word in ("yes", "no"))
            logit = logits[0] if kind == "prompt" else logits[-1, yes] - logits[-1, no]
            length = len(tokens)
        results.append(dict(tokens=length, logit=float(f"{logit.item():.7g}")))
    return results


def rounded(vector):
    return [float(f"{value:.7g}") for value in vector.tolist()]


def made(entry):
    config = transformers.CONFIG_MAPPING[entry["model_type"]](**entry["config"])
    auto, tokenizer = AUTO[entry["kind"]], entry["tokenizer"]()
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder)
        auto.from_config(config).float().save_pretrained(path)
        saved = json.loads((path / "config.json").read_text())
        with safe_open(path / "model.safetensors", "pt") as file:
            shapes = {name: list(file.get_slice(name).get_shape()) for name in file.keys()}
        tensors = {name: values(name, shape) for name, shape in shapes.items()}
        save_file(tensors, path / "model.safetensors", metadata={"format": "pt"})
        loaded, info = auto.from_pretrained(
            path, attn_implementation="eager", dtype=torch.float32, output_loading_info=True
        )
        assert not info["missing_keys"] and not info["unexpected_keys"], info
        with torch.no_grad():
            results = run(entry["kind"], loaded.eval(), tokenizer)
    return dict(
        kind=entry["kind"], config=saved, tokenizer=json.loads(tokenizer.to_str()), tensors=folded(shapes),
        results=results,
    )


if __name__ == "__main__":
    transformers.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    torch.manual_seed(0)
    made_with = f"transformers {transformers.__version__}, torch {torch.__version__}, float32, eager attention"
    result = dict(
        made_with=made_with, query=QUERY, documents=DOCUMENTS,
        models={name: made(entry) for name, entry in MODELS.items()},
    )
    pathlib.Path(__file__).with_name("encoders.json").write_text(json.dumps(result, ensure_ascii=False) + "\n")
