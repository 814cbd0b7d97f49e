"""
Generates config_sweep.json: the logits of transformers when one setting of a model's config.json is omitted,
null or changed, for a small model of every architecture. The weights are those of generated.ts: a function
of the names and shapes of tensors.

    python3 test/models/config/config_sweep.py > test/models/config/config_sweep.json

Needs transformers, torch, numpy and safetensors.
"""
import copy
import dataclasses
import json
import math
import os
import re
import sys
import tempfile
from pathlib import Path

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TRANSFORMERS_VERBOSITY"] = "critical"

import numpy as np
import torch
import transformers
from safetensors import safe_open
from safetensors.numpy import save_file
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForImageTextToText
from transformers.utils.logging import disable_progress_bar

disable_progress_bar()

HERE = Path(__file__).parent
PROMPT = [0, 5, 17, 33, 64, 9, 101, 77, 5, 17, 120, 3, 90, 42]

# Skips configurations that need more weights than this: they cannot share the weights of the base model.
MAX_WEIGHTS = 2_000_000

# Settings that do not affect the results of a text model.
SILENT = {
    "architectures", "dtype", "torch_dtype", "transformers_version", "model_type", "initializer_range",
    "use_cache", "attention_dropout", "hidden_dropout", "residual_dropout", "embedding_dropout",
    "embd_pdrop", "resid_pdrop", "pretraining_tp", "output_router_logits", "router_aux_loss_coef",
    "router_jitter_noise", "bos_token_id", "eos_token_id", "pad_token_id", "eod_token_id",
    "output_hidden_states", "return_dict", "chunk_size_feed_forward", "is_encoder_decoder", "id2label",
    "label2id", "problem_type", "num_mtp_layers", "vision_config", "image_token_id", "video_token_id",
    "vision_start_token_id", "vision_end_token_id", "time_step_limit", "mamba_chunk_size", "chunk_size",
    "num_logits_to_keep", "mamba_ssm_cache_dtype", "time_step_rank", "mtp_layers_block_type",
}

# Those of them that affect the results of one architecture.
EFFECTIVE = {"phimoe": {"router_jitter_noise"}}


# Tensors.

def fnv1a(text):
    value = 0x811C9DC5
    for char in text.encode():
        value = (value ^ char) * 0x01000193 & 0xFFFFFFFF
    return value


def uniform(name, count):
    """Returns numbers from -1 to 1, equal to `uniform` of generated.ts."""
    x = np.arange(count, dtype=np.uint32) * np.uint32(0x9E3779B9) + np.uint32(fnv1a(name))
    x = (x ^ x >> np.uint32(16)) * np.uint32(0x85EBCA6B)
    x = (x ^ x >> np.uint32(13)) * np.uint32(0xC2B2AE35)
    return ((x ^ x >> np.uint32(16)) >> np.uint32(8)).astype(np.float64) / 2**23 - 1


def values(name, shape):
    factor, offset = 0.2, 1 if "norm" in name or "scale" in name else 0
    if "layer_scalar" in name:
        factor, offset = 0.1, 0.9
    elif len(shape) > 1:
        factor, offset = 1.8 / math.sqrt(shape[-1]), 0
    return (uniform(name, math.prod(shape)) * factor + offset).astype(np.float32).reshape(shape)


# Names of models whose layers have a mixer, and the names that other decoders have for the same tensors.
MIXERS = [
    (r"^backbone\.embeddings\.", "model.embed_tokens."), (r"^backbone\.norm_f\.", "model.norm."), (r"^backbone\.", "model."),
    (r"\.mixer\.([qkvo]_proj)\.", r".self_attn.\1."),
    (r"\.mixer\.(?=(up|down)_proj\.|gate\.|experts\.|shared_experts\.|fc[12]_latent)", ".mlp."),
    (r"\.mixer\.", ".mamba."),
]


def text_name(name):
    """Returns the name of a multimodal model's tensor in a text model, as forge has it."""
    for pattern, replacement in MIXERS if name.startswith("backbone.") else []:
        name = re.sub(pattern, replacement, name)
    return name.replace("model.language_model.", "model.").replace("language_model.", "", 1)


def weights_of(config, folder):
    """Writes the weights of a config to a folder, under the names that transformers gives them."""
    model = auto_class(config).from_config(load_config(config, folder))
    model.save_pretrained(folder)
    file = folder / "model.safetensors"
    with safe_open(file, "np") as tensors:
        shapes = {name: tensors.get_slice(name).get_shape() for name in tensors.keys()}
        # Constants of an activation, which forge has as defaults.
        scalars = {name: tensors.get_tensor(name) for name, shape in shapes.items() if shape == []}
    made = {}
    for name, shape in shapes.items():
        if name in scalars:
            made[name] = scalars[name]
        elif config["model_type"] == "qwen3_next" and name.endswith((".in_proj_qkvz.weight", ".in_proj_ba.weight")):
            made[name] = grouped(config, name)
        elif name.endswith(FUSED) and len(shape) == 2:
            made[name] = fused(config, name, shape)
        else:
            made[name] = values(text_name(name), shape)
    save_file(made, file, {"format": "pt"})


# Matrices that Phi-3 and GLM-4 fuse.
FUSED = ("self_attn.qkv_proj.weight", "mlp.gate_up_proj.weight")


def fused(config, name, shape):
    """Concatenates the rows of matrices that other families store separately."""
    keys = config["num_key_value_heads"] * config["head_dim"]
    if name.endswith(FUSED[0]):
        rows = {"q": shape[0] - 2 * keys, "k": keys, "v": keys}
    else:
        rows = {"gate": shape[0] // 2, "up": shape[0] // 2}
    base = name.rsplit(".", 2)[0]
    return np.concatenate([values(f"{base}.{part}_proj.weight", [n, shape[1]]) for part, n in rows.items()])


def grouped(config, name):
    """Returns a matrix of Qwen3-Next: for each key head, the rows of several matrices of Qwen3.5."""
    base, hidden = name.rsplit("_", 1)[0], config["hidden_size"]
    n_keys, n_values = config["linear_num_key_heads"], config["linear_num_value_heads"]
    key, value = n_keys * config["linear_key_head_dim"], n_values * config["linear_value_head_dim"]
    if name.endswith("_ba.weight"):
        parts = [values(f"{base}_{part}.weight", [n_values, hidden]) for part in "ba"]
    else:
        qkv = values(f"{base}_qkv.weight", [2 * key + value, hidden])
        parts = [*np.split(qkv, [key, 2 * key]), values(f"{base}_z.weight", [value, hidden])]
    return np.concatenate([part.reshape(n_keys, -1, hidden) for part in parts], 1).reshape(-1, hidden)


# transformers.

def auto_class(config):
    return AutoModelForImageTextToText if "text_config" in config else AutoModelForCausalLM


def load_config(config, folder):
    (folder / "config.json").write_text(json.dumps(config))
    return AutoConfig.from_pretrained(folder)


def tying(config):
    """Returns the settings that tie the output matrix to the embedding."""
    parts = config, config.get("text_config", {})
    return [part.get(key, "absent") for part in parts for key in ("tie_word_embeddings", "tie_embedding")]


def untied(model):
    tied = set(model.all_tied_weights_keys)
    return {name: value for name, value in model.state_dict().items() if name not in tied}


class Weights:
    """The weights of a base model, for models of changed configs."""

    def __init__(self, config, folder):
        weights_of(config, folder)
        self.folder = folder
        model, info = self.from_file(config)
        assert not info["missing_keys"] and not info["mismatched_keys"], info
        self.tying = tying(config)
        self.state = untied(model)

    def from_file(self, config):
        return auto_class(config).from_pretrained(
            self.folder, config=load_config(config, self.folder), dtype=torch.float32,
            attn_implementation="eager", output_loading_info=True,
        )

    def model(self, config):
        """Returns the model of a config; None if the weights do not fit it."""
        with torch.device("meta"):
            shape = auto_class(config).from_config(load_config(config, self.folder))
        if sum(weight.numel() for weight in shape.parameters()) > MAX_WEIGHTS:
            return None
        if tying(config) != self.tying:
            # The tensors of the file decide which matrices are tied.
            model, info = self.from_file(config)
            return None if info["missing_keys"] or info["mismatched_keys"] else model
        model = auto_class(config).from_config(load_config(config, self.folder), attn_implementation="eager")
        wanted = untied(model)
        if any(name not in self.state or self.state[name].shape != value.shape for name, value in wanted.items()):
            return None
        model.load_state_dict({name: self.state[name] for name in wanted}, strict=False)
        return model


@torch.no_grad()
def logits_of(config, weights):
    """Returns the logits after the prompt; None if transformers rejects the config or the weights do not fit."""
    try:
        model = weights.model(config)
        if model is None:
            return None
        logits = model.eval()(torch.tensor([PROMPT])).logits[0, -1].double().numpy()
    except Exception as error:  # noqa: BLE001 - whatever transformers throws, it refuses
        if os.environ.get("VERBOSE"):
            print(type(error).__name__, str(error)[:200].replace("\n", " "), file=sys.stderr)
        return None
    return logits if np.isfinite(logits).all() and np.abs(logits).max() < 1e30 else None


# Cases.

STRINGS = {
    "hidden_act": ["gelu", "gelu_new", "gelu_pytorch_tanh", "relu2", "relu", "silu", "swish", "unknown"],
    "topk_method": ["greedy", "group_limited_greedy", "noaux_tc", "unknown"],
    "scoring_func": ["softmax", "sigmoid"],
    "position_embedding_type": ["rope", "nope", "unknown"],
    "rope_type": ["default", "linear", "dynamic", "yarn", "llama3", "longrope", "mrope", "unknown"],
}
STRINGS["hidden_activation"] = STRINGS["hidden_act"]


def changes(key, value):
    """Returns other values for a setting."""
    if isinstance(value, bool):
        return [not value]
    if isinstance(value, int):
        return [other for other in (0, value // 2, value + 1, 2 * value) if other != value]
    if isinstance(value, float):
        return [value * 1.5, 0.0]
    if isinstance(value, str):
        return [other for other in STRINGS.get(key, ["unknown"]) if other != value]
    if isinstance(value, list):
        return [[], value[:-1], value[::-1], value + value[-1:]]
    return []


ROPES = [
    {"rope_theta": 50000.0},
    {"rope_theta": 50000},
    {"rope_theta": 50000.0, "rope_scaling": None},
    {"rope_theta": None},
    {"rope_scaling": {"type": "linear", "factor": 2.0}},
    {"rope_theta": 50000.0, "rope_scaling": {"rope_type": "linear", "factor": 2.0}},
    {"rope_theta": 50000.0, "rope_scaling": {"type": "dynamic", "factor": 2.0}},
    {"rope_theta": 50000.0, "rope_scaling": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16}},
    {"rope_theta": 50000.0, "rope_scaling": {"type": "yarn", "factor": 4.0}},
    {"rope_theta": 50000.0, "rope_scaling": {
        "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 16}},
    {"rope_scaling": {
        "type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16, "mscale": 0.7,
        "mscale_all_dim": 0.5, "beta_fast": 16, "beta_slow": 2, "truncate": False}},
    {"rope_scaling": {"type": "default", "mrope_section": [1, 1, 1]}},
    {"rope_theta": 50000.0, "partial_rotary_factor": 0.5},
    {"partial_rotary_factor": 0.25},
    {"partial_rotary_factor": None},
    {"rope_parameters": {"rope_theta": 50000.0}},
    {"rope_parameters": {}},
    {"rope_parameters": {"rope_type": "default", "partial_rotary_factor": 0.5}},
    {"rope_parameters": {"rope_type": "default"}, "rope_theta": 50000.0},
    {"rope_parameters": {"rope_type": "default"}, "partial_rotary_factor": 0.5},
    {"rope_parameters": {"rope_type": "default", "rope_theta": 20000.0}, "rope_theta": 50000.0,
     "rope_scaling": {"type": "linear", "factor": 2.0}},
    {"rope_parameters": {"full_attention": {"rope_type": "default", "rope_theta": 50000.0}}},
    {"rope_parameters": {
        "full_attention": {"rope_type": "linear", "factor": 2.0, "rope_theta": 50000.0},
        "sliding_attention": {"rope_theta": 30000.0}}},
    {"rope_local_base_freq": 500.0},
    {"sliding_window_pattern": 2},
]


def cases(config, is_part):
    """
    Returns changes: each is a list of keys to remove, and an object of settings to add. In a multimodal config
    they apply to the text part, and those under `whole` to the config itself.
    """
    silent = SILENT - EFFECTIVE.get(config["model_type"], set())
    found = []

    def add(without=(), **settings):
        case = [list(without), settings]
        if case not in found:
            found.append(case)

    for key, value in config.items():
        if key in silent:
            continue
        add([key])
        add(**{key: None})
        if key != "rope_parameters":
            for other in changes(key, value):
                add(**{key: other})
            continue
        for path in paths(value):
            add(rope_parameters=edited(value, path, None, leave_out=True))
            add(rope_parameters=edited(value, path, None))
            for other in changes(path[-1], at(value, path)):
                add(rope_parameters=edited(value, path, other))
    for rope in ROPES:
        add(["rope_parameters"], **rope)
    if "rope_parameters" in config:
        add(rope_theta=50000.0)
        add(partial_rotary_factor=0.5)
        add(rope_scaling={"type": "linear", "factor": 2.0})
        add(rope_local_base_freq=500.0)
    # Settings of the class that the config omits.
    kind = type(AutoConfig.for_model(**copy.deepcopy(config)))
    for field in dataclasses.fields(kind):
        if field.name in config or field.name in silent or field.name == "rope_parameters":
            continue
        if field.name in getattr(kind, "attribute_map", {}) and kind.attribute_map[field.name] in config:
            continue
        add(**{field.name: None})
        for other in changes(field.name, field.default):
            add(**{field.name: other})
    if is_part:
        for tied in (None, True, False):
            for inner_tied in (True, False):
                add(whole={"tie_word_embeddings": tied}, tie_word_embeddings=inner_tied)
    # All settings that equal transformers' defaults.
    usual = [field.name for field in dataclasses.fields(kind)
             if field.name in config and field.name not in silent and field.default == config[field.name]]
    add(usual)
    return found


def paths(value, prefix=()):
    for key, inner in value.items():
        yield (*prefix, key)
        if isinstance(inner, dict):
            yield from paths(inner, (*prefix, key))


def at(value, path):
    for key in path:
        value = value[key]
    return value


def edited(value, path, other, leave_out=False):
    result = copy.deepcopy(value)
    inner = at(result, path[:-1])
    if leave_out:
        del inner[path[-1]]
    else:
        inner[path[-1]] = other
    return result


def with_case(config, case):
    without, settings = case
    if "text_config" in config:
        inner = {key: value for key, value in settings.items() if key != "whole"}
        text_config = with_case(config["text_config"], [without, inner])
        return {**config, **settings.get("whole", {}), "text_config": text_config}
    return {**{key: value for key, value in config.items() if key not in without}, **settings}


# Models.

def bases():
    """Returns a config for each architecture, from generated.json and config_sweep_bases.json."""
    generated = json.loads((HERE.parent / "families" / "generated.json").read_text())["models"]
    # One config for each architecture; AutoModel has no text-only Qwen3-VL-MoE.
    left_out = {"gemma4_moe", "gemma4_moe in the published spelling", "lfm2_bias", "qwen3_vl_moe_text"}
    configs = {name: model["config"] for name, model in generated.items() if name not in left_out}
    configs.update(json.loads((HERE / "config_sweep_bases.json").read_text()))
    return configs


def number(value):
    return float(f"{value:.7g}")


def digest(logits):
    """Returns the norm of the logits, and every 16th logit."""
    return [number(np.linalg.norm(logits)), *map(number, logits[::16])]


def sweep(config):
    with tempfile.TemporaryDirectory() as path:
        weights = Weights(config, Path(path))
        base = logits_of(config, weights)
        assert base is not None, config["model_type"]
        results = {"config": config, "logits": digest(base), "same": [], "refused": [], "other": []}
        for case in cases(config.get("text_config", config), "text_config" in config):
            logits = logits_of(with_case(config, case), weights)
            if logits is None:
                results["refused"].append(case)
            elif np.linalg.norm(logits - base) <= 1e-6 * np.linalg.norm(base):
                results["same"].append(case)
            else:
                results["other"].append([*case, digest(logits)])
        return results


def main():
    torch.set_num_threads(1)
    made_with = f"transformers {transformers.__version__}, torch {torch.__version__}, float32, eager attention"
    models = {}
    wanted = sys.argv[1:]
    for name, config in bases().items():
        if wanted and name not in wanted:
            continue
        models[name] = sweep(config)
        counts = ", ".join(f"{len(models[name][kind])} {kind}" for kind in ("same", "refused", "other"))
        print(f"{name}: {counts}", file=sys.stderr, flush=True)
    lines = ",\n".join(
        f"{json.dumps(name)}: {json.dumps(model, separators=(',', ':'))}" for name, model in models.items()
    )
    print(f'{{"made_with": {json.dumps(made_with)},\n"prompt_ids": {json.dumps(PROMPT)},\n"models": {{\n{lines}\n}}}}')


if __name__ == "__main__":
    main()
