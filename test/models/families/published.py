"""Writes published.json: the logits of transformers for tiny models in the spellings of published models.

Each model is saved by transformers. Its config.json and the layout of its tensors are then changed to those of the
published models, and its weights are replaced by a function of their names, as in generated.ts. The reference is what
transformers computes from that folder. Needs torch and transformers: python3 published.py, with the names of models to
leave the others as they are.
"""

import itertools
import json
import math
import pathlib
import re
import sys
import tempfile

import numpy as np
import torch
import transformers
from safetensors import safe_open
from safetensors.numpy import save_file

PROMPT = [0, 5, 17, 33, 64, 9, 101, 77, 5, 17, 120, 3, 90, 42]

TEXT = dict(
    vocab_size=128, hidden_size=32, intermediate_size=48, num_hidden_layers=3, num_attention_heads=4,
    num_key_value_heads=2, head_dim=8, max_position_embeddings=64, bos_token_id=0, eos_token_id=1,
    pad_token_id=None, tie_word_embeddings=False,
)
EXPERTS = dict(num_experts=4, num_experts_per_tok=2, moe_intermediate_size=20)
VISION = dict(hidden_size=32, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2, image_size=28, patch_size=14)
QWEN_VISION = dict(
    hidden_size=32, intermediate_size=32, depth=1, num_heads=2, num_position_embeddings=16, out_hidden_size=32,
    patch_size=14, spatial_merge_size=2, deepstack_visual_indexes=[0],
)
QWEN_VL_MOE = dict(
    vision_config=QWEN_VISION,
    text_config={
        **TEXT, **EXPERTS, "num_hidden_layers": 2,
        "rope_parameters": dict(rope_type="default", mrope_section=[2, 1, 1], rope_theta=10000.0),
    },
    image_token_id=100, video_token_id=100, vision_start_token_id=100, vision_end_token_id=100,
)
DELTA_NET = dict(
    num_hidden_layers=4, head_dim=16, partial_rotary_factor=0.25, linear_num_key_heads=2, linear_num_value_heads=4,
    linear_key_head_dim=8, linear_value_head_dim=8, linear_conv_kernel_dim=4, shared_expert_intermediate_size=24,
)
LATENT = dict(
    n_routed_experts=4, num_experts_per_tok=2, moe_intermediate_size=16, n_shared_experts=1, first_k_dense_replace=1,
    kv_lora_rank=16, q_lora_rank=24, qk_nope_head_dim=8, qk_rope_head_dim=4, v_head_dim=8, n_group=1, topk_group=1,
    head_dim=4, num_key_value_heads=4,
)
SHARED_MOE = dict(num_local_experts=4, num_experts_per_tok=2, shared_intermediate_size=24)
MULTIPLIERS = dict(
    attention_multiplier=0.3, embedding_multiplier=2.0, residual_multiplier=0.5, logits_scaling=2.0
)
# Time steps around 0.7, of which the limits hold back both ends.
LIMITS = dict(time_step_limit=(0.65, 0.75))
MAMBA = dict(
    mamba_n_heads=4, mamba_d_head=16, mamba_n_groups=2, mamba_d_state=16, mamba_d_conv=4, mamba_expand=2,
    mamba_chunk_size=8,
)
FALCON_H1 = dict(
    **MAMBA, mamba_d_ssm=64, lm_head_multiplier=0.7, embedding_multiplier=1.3, mlp_multipliers=[0.6, 1.4],
    key_multiplier=0.5, attention_out_multiplier=0.9, attention_in_multiplier=1.2,
    ssm_multipliers=[0.8, 1.1, 0.6, 1.3, 0.7], ssm_in_multiplier=1.5, ssm_out_multiplier=0.4,
)
FALCON_H1_BIASES = dict(attention_bias=True, mlp_bias=True, mamba_proj_bias=True, projectors_bias=True)
NEMOTRON_H = dict(
    mamba_num_heads=4, mamba_head_dim=16, n_groups=2, ssm_state_size=16, conv_kernel=4, chunk_size=8,
    layers_block_type=["linear_attention", "mlp", "full_attention", "linear_attention"],
)
NEMOTRON_H_MOE = dict(
    n_routed_experts=4, num_experts_per_tok=2, moe_intermediate_size=16, moe_shared_expert_intermediate_size=24,
    routed_scaling_factor=1.5, n_group=2, topk_group=1,
    layers_block_type=["linear_attention", "moe", "full_attention", "moe", "linear_attention"],
)
MAMBA2 = dict(
    vocab_size=128, hidden_size=32, num_hidden_layers=2, num_heads=4, head_dim=16, n_groups=2, state_size=16,
    chunk_size=8, bos_token_id=0, eos_token_id=1, pad_token_id=None,
)
ERNIE_MOE = dict(moe_num_experts=4, moe_k=2, moe_intermediate_size=16, moe_num_shared_experts=2)


def tied_at_the_top(config):
    """Removes `tie_word_embeddings` from the text part of a config."""
    del config["text_config"]["tie_word_embeddings"]


def published_llama4(config):
    """Changes a config to the spelling of the published Llama 4 Scout and Maverick."""
    text = config["text_config"]
    for key in ("rope_parameters", "layer_types", "attn_temperature_tuning"):
        text.pop(key, None)
    text.update(
        rope_theta=500000.0,
        rope_scaling=dict(
            factor=16.0, low_freq_factor=1.0, high_freq_factor=1.0, original_max_position_embeddings=16,
            rope_type="llama3",
        ),
        no_rope_layers=[],
        attn_temperature_tuning=4,
    )


def published_nemotron_h(config):
    """Changes a config to the spelling of the published Nemotron-H."""
    letters = dict(linear_attention="M", mlp="-", full_attention="*", moe="E")
    types = config.pop("layers_block_type", None) or config.pop("layer_types")
    config.pop("layer_types", None)
    config.update(hybrid_override_pattern="".join(letters[kind] for kind in types), num_hidden_layers=len(types))


def published_granite4(config):
    """Changes a config to the spelling of the published Granite 4 hybrids."""
    names = dict(linear_attention="mamba", full_attention="attention")
    config["layer_types"] = [names[kind] for kind in config["layer_types"]]
    config["position_embedding_type"] = "nope"


def published_phimoe(config):
    """Changes a config to the spelling of the published Phi-3.5-MoE."""
    scaling = config.pop("rope_parameters")
    config["rope_theta"] = scaling.pop("rope_theta")
    scaling["type"] = scaling.pop("rope_type")
    config.update(rope_scaling=scaling, original_max_position_embeddings=scaling["original_max_position_embeddings"])


def columns_first(name, shape):
    """Returns the published shape of a Qwen3-VL-MoE tensor: transformers 5 saves experts transposed."""
    return [shape[0], shape[2], shape[1]] if ".mlp.experts." in name else shape


def model(model_type, config, change=None, layout=None):
    return dict(model_type=model_type, config=config, change=change, layout=layout)


MODELS = {
    "internvl, tied at the top only": model(
        "internvl",
        dict(
            vision_config={**VISION, "model_type": "internvl_vision", "image_size": [28, 28], "patch_size": [14, 14]},
            text_config={**TEXT, "model_type": "qwen3", "num_hidden_layers": 2}, tie_word_embeddings=True,
        ),
        tied_at_the_top,
    ),
    "qwen3_vl_moe as transformers 5 saves it": model("qwen3_vl_moe", QWEN_VL_MOE),
    "qwen3_vl_moe as published": model("qwen3_vl_moe", QWEN_VL_MOE, layout=columns_first),
    "voxtral as transformers 5 saves it": model(
        "voxtral",
        dict(
            audio_config={**VISION, "model_type": "voxtral_encoder"},
            text_config={**TEXT, "model_type": "llama", "num_hidden_layers": 2}, audio_token_id=100,
        ),
    ),
    "llama4 as published": model(
        "llama4",
        dict(
            vision_config={
                **VISION, "vision_output_dim": 32, "projector_input_dim": 32, "projector_output_dim": 32,
            },
            text_config={
                **TEXT, "num_hidden_layers": 4, "intermediate_size": 16, "intermediate_size_mlp": 48,
                "num_local_experts": 4, "num_experts_per_tok": 1, "interleave_moe_layer_step": 2,
            },
        ),
        published_llama4,
    ),
    "llama4 beyond its chunks": model(
        "llama4_text",
        {
            **TEXT, "num_hidden_layers": 4, "intermediate_size": 16, "intermediate_size_mlp": 48,
            "num_local_experts": 4, "num_experts_per_tok": 1, "interleave_moe_layer_step": 2,
            "attention_chunk_size": 5,
        },
    ),
    "llama4 beyond its floor scale": model(
        "llama4_text",
        {
            **TEXT, "num_hidden_layers": 4, "intermediate_size": 16, "intermediate_size_mlp": 48,
            "num_local_experts": 4, "num_experts_per_tok": 1, "interleave_moe_layer_step": 2,
            "floor_scale": 4, "attn_scale": 0.7,
        },
    ),
    "ministral3 beyond its original length": model(
        "ministral3",
        {
            **TEXT,
            "rope_parameters": dict(
                rope_type="yarn", factor=16.0, original_max_position_embeddings=4, rope_theta=10000.0,
                beta_fast=32.0, beta_slow=1.0, llama_4_scaling_beta=0.6, mscale=1.0, mscale_all_dim=1.0,
            ),
        },
    ),
    "cohere with norms of heads": model("cohere", {**TEXT, "tie_word_embeddings": True, "use_qk_norm": True}),
    "ernie4_5 with biases": model("ernie4_5", {**TEXT, "use_bias": True}),
    "ernie4_5_moe with biases": model("ernie4_5_moe", {**TEXT, **ERNIE_MOE, "use_bias": True}),
    "granitemoeshared": model("granitemoeshared", {**TEXT, **SHARED_MOE, **MULTIPLIERS}),
    "granitemoehybrid as published": model(
        "granitemoehybrid",
        {
            **TEXT, **MAMBA, **MULTIPLIERS, "num_local_experts": 0, "shared_intermediate_size": 24,
            "mamba_n_groups": 1, "layer_types": ["mamba", "attention", "mamba"],
        },
        published_granite4,
    ),
    "granitemoehybrid with experts, positions and biases": model(
        "granitemoehybrid",
        {
            **TEXT, **MAMBA, **MULTIPLIERS, **SHARED_MOE, "position_embedding_type": "rope",
            "mamba_proj_bias": True, "mamba_conv_bias": False, "attention_bias": True,
            "layer_types": ["mamba", "mamba", "attention"],
        },
    ),
    "bamba": model("bamba", {**TEXT, **MAMBA, "attn_layer_indices": [1]}),
    "bamba with biases and limits": model(
        "bamba",
        {
            **TEXT, **MAMBA, **LIMITS, "attn_layer_indices": [0, 2], "attention_bias": True, "mlp_bias": True,
            "mamba_proj_bias": True,
        },
    ),
    "falcon_h1": model("falcon_h1", {**TEXT, **FALCON_H1}),
    "falcon_h1 with biases and limits": model(
        "falcon_h1", {**TEXT, **FALCON_H1, **FALCON_H1_BIASES, **LIMITS, "mamba_d_ssm": None, "mamba_d_head": "auto"}
    ),
    "falcon_h1 with a norm before the gate": model("falcon_h1", {**TEXT, **FALCON_H1, "mamba_rms_norm": True}),
    "falcon_h1 with a norm after the gate": model(
        "falcon_h1", {**TEXT, **FALCON_H1, "mamba_rms_norm": True, "mamba_norm_before_gate": False}
    ),
    "nemotron_h as published": model(
        "nemotron_h", {**TEXT, **NEMOTRON_H}, published_nemotron_h
    ),
    "nemotron_h with biases and limits": model(
        "nemotron_h",
        {**TEXT, **NEMOTRON_H, "time_step_min": 0.65, "use_bias": True, "mlp_bias": True, "use_conv_bias": False},
    ),
    "nemotron_h with experts": model(
        "nemotron_h", {**TEXT, **NEMOTRON_H, **NEMOTRON_H_MOE}, published_nemotron_h
    ),
    "nemotron_h with experts of latent vectors": model(
        "nemotron_h",
        {**TEXT, **NEMOTRON_H, **NEMOTRON_H_MOE, "moe_latent_size": 20, "norm_topk_prob": False, "mlp_bias": True},
    ),
    "mamba2": model("mamba2", MAMBA2),
    "mamba2 with biases and limits": model("mamba2", {**MAMBA2, **LIMITS, "use_bias": True}),
    "hunyuan_v1_dense with YaRN": model(
        "hunyuan_v1_dense",
        {
            **TEXT, "rms_norm_eps": 1e-3,
            "rope_parameters": dict(
                rope_type="yarn", factor=4.0, original_max_position_embeddings=16, rope_theta=10000.0
            ),
        },
    ),
    "phimoe": model("phimoe", {**TEXT, "num_local_experts": 8, "attention_bias": True, "lm_head_bias": True}),
    "phimoe as published": model(
        "phimoe",
        {
            # transformers combines the short list with the long factor beyond the original length.
            **TEXT, "max_position_embeddings": 16,
            "num_local_experts": 4, "sliding_window": 8, "router_jitter_noise": 0.2,
            "rope_parameters": dict(
                rope_type="longrope", rope_theta=10000.0, original_max_position_embeddings=16,
                short_factor=[1.0, 1.5, 2.0, 3.0], long_factor=[2.0, 3.0, 5.0, 8.0],
                short_mscale=1.243, long_mscale=1.41,
            ),
        },
        published_phimoe,
    ),
    "llama with biases of the MLP": model("llama", {**TEXT, "mlp_bias": True}),
    "llama with YaRN's attention factor": model(
        "llama",
        {
            **TEXT,
            "rope_parameters": dict(
                rope_type="yarn", factor=4.0, original_max_position_embeddings=16, rope_theta=10000.0,
                attention_factor=1.7,
            ),
        },
    ),
    "qwen3 with biases": model("qwen3", {**TEXT, "attention_bias": True}),
    "qwen3_moe with biases": model("qwen3_moe", {**TEXT, **EXPERTS, "attention_bias": True}),
    "smollm3 with windows but without use_sliding_window": model(
        "smollm3",
        {
            **TEXT, "sliding_window": 4, "use_sliding_window": False,
            "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
        },
    ),
    "olmoe with limits": model(
        "olmoe", {**TEXT, "num_experts": 4, "num_experts_per_tok": 2, "clip_qkv": 0.5}
    ),
    "qwen2_moe": model("qwen2_moe", {**TEXT, **EXPERTS, "shared_expert_intermediate_size": 24}),
    "qwen3_next": model("qwen3_next", {**TEXT, **EXPERTS, **DELTA_NET}),
    "qwen3_5_moe_text": model("qwen3_5_moe_text", {**TEXT, **EXPERTS, **DELTA_NET}),
    "ernie4_5_moe": model("ernie4_5_moe", {**TEXT, **ERNIE_MOE}),
    "apertus": model("apertus", {**TEXT, "rms_norm_eps": 1e-5}),
    "apertus with biases and SiLU": model(
        "apertus",
        {
            **TEXT, "attention_bias": True, "hidden_act": "silu",
            "rope_parameters": dict(
                rope_type="llama3", factor=8.0, original_max_position_embeddings=16, low_freq_factor=1.0,
                high_freq_factor=4.0, rope_theta=10000.0,
            ),
        },
    ),
    "glm4": model("glm4", {**TEXT, "attention_bias": True}),
    "glm4_moe_lite": model("glm4_moe_lite", {**TEXT, **LATENT}),
    "glm4_moe_lite, weights of experts as they are": model(
        "glm4_moe_lite", {**TEXT, **LATENT, "norm_topk_prob": False}
    ),
}


def fnv1a(text):
    value = 0x811C9DC5
    for char in text:
        value = (value ^ ord(char)) * 0x01000193 & 0xFFFFFFFF
    return value


def values(name, shape):
    """Returns the numbers of a tensor, equal to those of generated.ts."""
    count = math.prod(shape)
    x = np.arange(count, dtype=np.uint32) * np.uint32(0x9E3779B9) + np.uint32(fnv1a(name))
    x = (x ^ (x >> np.uint32(16))) * np.uint32(0x85EBCA6B)
    x = (x ^ (x >> np.uint32(13))) * np.uint32(0xC2B2AE35)
    uniform = ((x ^ (x >> np.uint32(16))) >> np.uint32(8)).astype(np.float64) / 2**23 - 1
    if len(shape) > 1:
        factor, offset = 1.8 / math.sqrt(shape[-1]), 0
    else:
        factor, offset = 0.2, 1 if re.search("norm|scale", name) else 0
    return (uniform * factor + offset).astype(np.float32).reshape(shape)


def folded(shapes):
    """Returns shapes by name; names that differ in layer numbers become one: `layers.{0,1}.mlp`."""
    groups = {}
    for name, shape in shapes.items():
        parts = re.split(r"(?<=\.)(\d+)(?=\.)", name)
        groups.setdefault((tuple(parts[::2]), tuple(shape)), []).append(tuple(map(int, parts[1::2])))
    result = {}
    for (texts, shape), numbers in groups.items():
        for first in sorted({each[:1] for each in numbers}):
            own = [each for each in numbers if each[:1] == first]
            lists = [sorted(set(places)) for places in zip(*own)]
            assert sorted(own) == list(itertools.product(*lists)) or not lists
            name = texts[0] + "".join(
                "{" + ",".join(map(str, places)) + "}" + text for places, text in zip(lists, texts[1:])
            )
            result[name] = list(shape)
    return merged_layers(result)


def merged_layers(shapes):
    """Joins entries that differ only in the layer number."""
    groups = {}
    for name, shape in shapes.items():
        first = re.search(r"\{(\d+)\}", name)
        key = (name.replace(first[0], "{#}", 1) if first else name, tuple(shape))
        groups.setdefault(key, []).append(first[1] if first else "")
    return {name.replace("{#}", "{" + ",".join(layers) + "}", 1): list(shape)
            for (name, shape), layers in groups.items()}


def made(entry):
    config = transformers.CONFIG_MAPPING[entry["model_type"]](**entry["config"])
    auto = transformers.AutoModelForMultimodalLM if hasattr(config, "text_config") else transformers.AutoModelForCausalLM
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder)
        auto.from_config(config).float().save_pretrained(path)
        saved = json.loads((path / "config.json").read_text())
        if entry["change"]:
            entry["change"](saved)
            # transformers 5 wants a boolean, where Llama 4 is published with a number.
            text = json.dumps(saved).replace('"attn_temperature_tuning": 4', '"attn_temperature_tuning": true')
            (path / "config.json").write_text(text)
        with safe_open(path / "model.safetensors", "pt") as file:
            shapes = {name: list(file.get_slice(name).get_shape()) for name in file.keys()}
        if entry["layout"]:
            shapes = {name: entry["layout"](name, shape) for name, shape in shapes.items()}
        tensors = {name: values(name, shape) for name, shape in shapes.items()}
        save_file(tensors, path / "model.safetensors", metadata={"format": "pt"})
        loaded, info = auto.from_pretrained(
            path, attn_implementation="eager", dtype=torch.float32, output_loading_info=True
        )
        assert not info["missing_keys"] and not info["unexpected_keys"], info
        with torch.no_grad():
            logits = loaded.eval()(input_ids=torch.tensor([PROMPT]), use_cache=False).logits[0, -1]
    return dict(
        config=saved, tensors=folded(shapes), logits=[float(f"{value:.7g}") for value in logits[::4].tolist()]
    )


if __name__ == "__main__":
    transformers.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    torch.manual_seed(0)
    made_with = f"transformers {transformers.__version__}, torch {torch.__version__}, float32, eager attention; " \
        "every fourth of the logits after the prompt"
    file = pathlib.Path(__file__).with_name("published.json")
    named = sys.argv[1:]
    kept = json.loads(file.read_text())["models"] if named else {}
    models = {name: made(entry) if not named or name in named else kept[name] for name, entry in MODELS.items()}
    result = dict(made_with=made_with, prompt_ids=PROMPT, models=models)
    file.write_text(json.dumps(result) + "\n")
