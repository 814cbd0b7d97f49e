"""Writes hugging_face.json: small tokenizers of many kinds, texts, and the ids and decoded texts of the
`tokenizers` package. Needs `tokenizers` and `sentencepiece`.

    python hugging_face.py [texts per shape] [seed] > hugging_face.json
"""

import base64
import io
import json
import random
import sys
import tempfile

import sentencepiece
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers
from tokenizers import pre_tokenizers as pre
from tokenizers import processors, trainers

TEXTS = int(sys.argv[1]) if len(sys.argv) > 1 else 12
chance = random.Random(int(sys.argv[2]) if len(sys.argv) > 2 else 1)

CORPUS = [
    "the quick brown fox jumps over the lazy dog, then it's 1234 o'clock!",
    "Hello world. Don't you know that the year 2024 has 366 days?",
    "naïve café déjà vu, ﬁne ½ ² Ünïcödé Straße résumé",
    "中文字日本語 русский язык हिन्दी ไทย 한국어 العربية",
    "def main(args):\n    return [x + 1 for x in args]\n\n",
    "low lower lowest new newer newest wide wider widest",
]
ALPHABET = list("abcdefghijklmnoprstuvwxyzABCDEFIOSTÉ0123456789      \n\t.,!?'\"()<>|/-_$€+=^") + list(
    "éäöñßΣςİ中文字日本語русскийहिन्दीไทย한국어العربية😀👩\u200d👧🏽𐐀𝟘½²٣ſ\u0085\u00a0\u2003\u3000\ufeff"
    "\u200b\u200c\u0301\u0300\u0000\r▁ﬁ㎏ａ①̈"
)
WORDS = " ".join(CORPUS).split(" ")
ADDED = [
    ("<s>", dict(special=True, normalized=False)),
    ("</s>", dict(special=True, normalized=False)),
    ("<left>", dict(lstrip=True, normalized=False)),
    ("<right>", dict(rstrip=True, normalized=False)),
    ("ab", dict(single_word=True, normalized=False)),
    ("Fox", dict(normalized=True)),
    ("<both>", dict(lstrip=True, rstrip=True, normalized=True)),
    ("<mask>", dict(lstrip=True, special=True, normalized=False)),
]


def text():
    parts = []
    for _ in range(chance.randrange(14)):
        kind = chance.random()
        if kind < 0.45:
            parts.append(chance.choice(ALPHABET))
        elif kind < 0.75:
            parts.append(chance.choice(WORDS))
        elif kind < 0.9:
            parts.append(chance.choice([" ", " ", "  ", "\n"]))
        else:
            parts.append(chance.choice(ADDED)[0])
    return "".join(parts)


def tsv_charsmap():
    """Returns a character map of a few rules, compiled by SentencePiece."""
    rules = [("ﬁ", "fi"), ("①", "1"), ("ａ", "a"), ("e\u0301", "é"), ("\t", " "), ("\n", " "), ("\r", " ")]
    rules += [("\u3000", " "), ("\u00a0", " "), ("½", "1/2"), ("㎏", "kg"), ("\u200b", "")]
    with tempfile.NamedTemporaryFile("w", suffix=".tsv") as file:
        for source, target in rules:
            hexes = lambda t: " ".join(f"{ord(c):X}" for c in t)
            file.write(f"{hexes(source)}\t{hexes(target)}\n")
        file.flush()
        model = io.BytesIO()
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(CORPUS),
            model_writer=model,
            vocab_size=140,
            hard_vocab_limit=False,
            normalization_rule_tsv=file.name,
            minloglevel=2,
        )
    normalizer_spec = protobuf_field(model.getvalue(), 3)
    return protobuf_field(normalizer_spec, 2)


def protobuf_field(message, wanted):
    """Returns the bytes of a length-delimited field of a protobuf message."""

    def varint(at):
        value = shift = 0
        while True:
            byte = message[at]
            value |= (byte & 127) << shift
            at, shift = at + 1, shift + 7
            if byte < 128:
                return value, at

    at = 0
    while at < len(message):
        key, at = varint(at)
        kind = key & 7
        if kind == 2:
            size, at = varint(at)
            if key >> 3 == wanted:
                return message[at : at + size]
            at += size
        elif kind == 0:
            _, at = varint(at)
        else:
            at += 4 if kind == 5 else 8
    raise KeyError(wanted)


def train(tokenizer, trainer):
    tokenizer.train_from_iterator(CORPUS * 3, trainer)
    return tokenizer


def byte_level(pattern=None, normalizer=None, prefix=False):
    tokenizer = Tokenizer(models.BPE())
    steps = [pre.Split(Regex(pattern), "isolated")] if pattern else []
    tokenizer.pre_tokenizer = pre.Sequence(
        [*steps, pre.ByteLevel(add_prefix_space=prefix, use_regex=not pattern)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    if normalizer:
        tokenizer.normalizer = normalizer
    alphabet = pre.ByteLevel.alphabet()
    return train(tokenizer, trainers.BpeTrainer(vocab_size=340, initial_alphabet=alphabet, show_progress=False))


def missing_bytes():
    tokenizer = json.loads(byte_level().to_str())
    merged = {part for merge in tokenizer["model"]["merges"] for part in merge}
    vocab = [t for t in tokenizer["model"]["vocab"] if t in merged or len(t) > 1 or ord(t) < 0xB0]
    tokenizer["model"]["vocab"] = {t: i for i, t in enumerate(vocab)}
    return Tokenizer.from_str(json.dumps(tokenizer))


def byte_fallback(metaspace=None):
    model = models.BPE(unk_token="<unk>", byte_fallback=True, fuse_unk=True)
    tokenizer = Tokenizer(model)
    tokenizer.pre_tokenizer = pre.Metaspace(prepend_scheme="always")
    specials = ["<unk>"] + [f"<0x{byte:02X}>" for byte in range(256)]
    train(tokenizer, trainers.BpeTrainer(vocab_size=380, special_tokens=specials, show_progress=False))
    tokenizer = json.loads(tokenizer.to_str())
    tokenizer["added_tokens"] = tokenizer["added_tokens"][:1]
    tokenizer = Tokenizer.from_str(json.dumps(tokenizer))
    if metaspace:
        tokenizer.pre_tokenizer = metaspace
        spaces = decoders.Metaspace(prepend_scheme=metaspace.prepend_scheme)
        tokenizer.decoder = decoders.Sequence([decoders.ByteFallback(), spaces])
    else:
        tokenizer.pre_tokenizer = None
        tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
        tokenizer.decoder = decoders.Sequence(
            [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
        )
    return tokenizer


def unigram(normalizer, pre_tokenizer, decoder, bytes=False):
    tokenizer = Tokenizer(models.Unigram())
    if normalizer:
        tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = pre_tokenizer or pre.Metaspace()
    specials = ["<unk>", "<s>", "</s>"] + ([f"<0x{byte:02X}>" for byte in range(256)] if bytes else [])
    train(
        tokenizer,
        trainers.UnigramTrainer(vocab_size=200 + len(specials), unk_token="<unk>", special_tokens=specials, show_progress=False),
    )
    if pre_tokenizer is None:
        tokenizer.pre_tokenizer = None
    saved = json.loads(tokenizer.to_str())
    saved["added_tokens"] = saved["added_tokens"][:3]
    saved["model"]["byte_fallback"] = bytes
    for entry in saved["model"]["vocab"]:
        entry[1] = round(entry[1], 4)
    tokenizer = Tokenizer.from_str(json.dumps(saved))
    if decoder:
        tokenizer.decoder = decoder
    return tokenizer


def word_piece(normalizer, pre_tokenizer=None, cleanup=True):
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]", max_input_chars_per_word=12))
    tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = pre_tokenizer or pre.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece(cleanup=cleanup)
    specials = ["[UNK]", "[CLS]", "[SEP]"]
    train(tokenizer, trainers.WordPieceTrainer(vocab_size=260, special_tokens=specials, show_progress=False))
    return tokenizer


def characters(pre_tokenizer, decoder=None, normalizer=None):
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=False))
    tokenizer.pre_tokenizer = pre_tokenizer
    if decoder:
        tokenizer.decoder = decoder
    if normalizer:
        tokenizer.normalizer = normalizer
    return train(tokenizer, trainers.BpeTrainer(vocab_size=220, special_tokens=["<unk>"], show_progress=False))


QWEN = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
CHARSMAP = base64.b64encode(tsv_charsmap()).decode()


def precompiled():
    return normalizers.Precompiled(base64.b64decode(CHARSMAP))


SHAPES = {
    "GPT-2": lambda: byte_level(prefix=True),
    "Qwen 2": lambda: byte_level(QWEN, normalizers.NFC()),
    "Cohere 2": lambda: byte_level(r"\d{1,3}(?=(?:\d{3})*\b)", normalizers.NFC()),
    "words of Oniguruma": lambda: byte_level(r"\b|[[:punct:]]+|\w+"),
    "Falcon without some bytes": missing_bytes,
    "Llama 2": byte_fallback,
    "Metaspace, first": lambda: byte_fallback(pre.Metaspace(prepend_scheme="first", split=False)),
    "Metaspace, never": lambda: byte_fallback(pre.Metaspace(prepend_scheme="never")),
    "Metaspace, always": lambda: byte_fallback(pre.Metaspace(prepend_scheme="always")),
    "XLM-RoBERTa": lambda: unigram(
        normalizers.Sequence([precompiled(), normalizers.Replace(Regex(" {2,}"), " ")]),
        pre.Metaspace(),
        decoders.Metaspace(),
    ),
    "T5": lambda: unigram(
        precompiled(), pre.Sequence([pre.WhitespaceSplit(), pre.Metaspace()]), decoders.Metaspace()
    ),
    "ALBERT": lambda: unigram(
        normalizers.Sequence(
            [normalizers.Replace("``", '"'), normalizers.NFKD(), normalizers.StripAccents(), normalizers.Lowercase(), precompiled()]
        ),
        pre.Metaspace(),
        decoders.Metaspace(),
    ),
    "Unigram with bytes": lambda: unigram(
        None, pre.Metaspace(), decoders.Sequence([decoders.ByteFallback(), decoders.Metaspace()]), bytes=True
    ),
    "Unigram of whole texts": lambda: unigram(
        normalizers.Sequence([normalizers.Nmt(), normalizers.Replace(" ", "▁")]), None, None
    ),
    "BERT uncased": lambda: word_piece(normalizers.BertNormalizer()),
    "BERT cased": lambda: word_piece(normalizers.BertNormalizer(lowercase=False), cleanup=False),
    "BERT, accents kept": lambda: word_piece(normalizers.BertNormalizer(strip_accents=False, handle_chinese_chars=False)),
    "WordPiece of words": lambda: word_piece(normalizers.Strip(), pre.Whitespace()),
    "characters": lambda: characters(pre.Sequence([pre.Digits(individual_digits=True), pre.Punctuation()])),
    "decoder strips": lambda: characters(pre.Metaspace(split=False), decoders.Strip("▁", 1, 0), normalizers.Lowercase()),
}


def case(name, make):
    tokenizer = make()
    for content, flags in ADDED:
        if tokenizer.token_to_id(content) is None:
            tokenizer.add_tokens([AddedToken(content, **flags)])
    first, last = ("[CLS]", "[SEP]") if tokenizer.token_to_id("[CLS]") is not None else ("<s>", "</s>")
    pair = [(first, tokenizer.token_to_id(first)), (last, tokenizer.token_to_id(last))]
    for token in (first, last, "[UNK]", "<unk>"):
        if tokenizer.token_to_id(token) is not None:
            tokenizer.add_special_tokens([token])
    if name.startswith("BERT"):
        tokenizer.post_processor = processors.BertProcessing(pair[1], pair[0])
    elif name == "GPT-2":
        tokenizer.post_processor = processors.RobertaProcessing(pair[1], pair[0])
    else:
        tokenizer.post_processor = processors.TemplateProcessing(single=f"{first} $A {last}", special_tokens=pair)
    encoded, decoded = [], []
    while len(encoded) < TEXTS:
        source = text()
        ids = tokenizer.encode(source).ids
        if ids[0] == ids[1]:
            continue  # forge does not double a BOS
        encoded.append([source, ids, tokenizer.decode(ids)])
        size = tokenizer.get_vocab_size()
        some = [chance.randrange(size) for _ in range(chance.randrange(8))]
        decoded.append([some, tokenizer.decode(some), tokenizer.decode(some, skip_special_tokens=False)])
    return dict(name=name, tokenizer=json.loads(tokenizer.to_str()), encoded=encoded, decoded=decoded)


if __name__ == "__main__":
    cases = [case(name, make) for name, make in SHAPES.items()]
    print(json.dumps(cases, ensure_ascii=False, separators=(",", ":")))
