"""Writes adapters.json: tiny models with low-rank adapters, and the logits that peft computes with them.

The weights of models and adapters are a function of their names, as in ../families/generated.ts. Needs torch,
transformers and peft: python3 adapters.py
"""

import json
import pathlib
import sys
import tempfile

import peft
import torch
import transformers
from safetensors import safe_open
from safetensors.numpy import save_file

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / "families"))
from published import folded, values  # noqa: E402

PROMPT = [0, 5, 17, 33, 64, 9, 101, 77, 5, 17, 90, 3]
SIZES = dict(
    vocab_size=120, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
    num_key_value_heads=2, max_position_embeddings=64, tie_word_embeddings=False, pad_token_id=None,
    bos_token_id=0, eos_token_id=1,
)
ATTENTION = ["q_proj", "k_proj", "v_proj", "o_proj"]
EXPERTS = ["mlp.experts.gate_up_proj", "mlp.experts.down_proj"]

# For each model its configuration, and the settings of its adapters.
MODELS = {
    "llama": (
        transformers.LlamaConfig(**SIZES),
        {
            "all": dict(
                r=4, lora_alpha=6, target_modules="all-linear", rank_pattern={"down_proj": 2, "layers.1.self_attn.q_proj": 7},
                alpha_pattern={"k_proj": 5, "^model.layers.0.mlp.up_proj": 3},
            ),
            "some": dict(r=3, lora_alpha=12, use_rslora=True, target_modules=["q_proj", "v_proj", "lm_head"]),
        },
    ),
    "qwen2": (
        transformers.Qwen2Config(**{**SIZES, "tie_word_embeddings": True}),
        {
            "regex": dict(r=2, lora_alpha=4, target_modules=r".*layers\.1\.(mlp|self_attn)\.[a-z]+_proj"),
            "all": dict(r=5, lora_alpha=5, target_modules="all-linear"),
        },
    ),
    "phi3": (
        transformers.Phi3Config(**SIZES),
        {"fused": dict(r=4, lora_alpha=8, use_rslora=True, target_modules=["qkv_proj", "o_proj", "gate_up_proj", "down_proj"])},
    ),
    "starcoder2": (
        transformers.Starcoder2Config(**SIZES, use_bias=True, residual_dropout=0.0, embedding_dropout=0.0),
        {"activated": dict(r=4, lora_alpha=8, target_modules=[*ATTENTION, "c_fc", "c_proj"])},
    ),
    # The output matrix is the embedding.
    "gemma2": (
        transformers.Gemma2Config(
            **{**SIZES, "tie_word_embeddings": True}, head_dim=8, query_pre_attn_scalar=8, attn_logit_softcapping=None,
        ),
        {
            "ends": dict(
                r=4, lora_alpha=6, target_modules=["embed_tokens", "lm_head", "o_proj"], rank_pattern={r".*\.o_proj": 2},
                alpha_pattern={r"layers\.\d+\.self_attn\.(o|q)_proj": 3},
            ),
        },
    ),
    "nemotron_h": (
        transformers.NemotronHConfig(
            **{**SIZES, "num_hidden_layers": 3}, layers_block_type=["mamba", "attention", "moe"], head_dim=8,
            mamba_num_heads=8, mamba_head_dim=8, ssm_state_size=8, n_groups=2, n_routed_experts=4, num_experts_per_tok=2,
            n_group=1, topk_group=1, moe_intermediate_size=16, moe_shared_expert_intermediate_size=24,
        ),
        {
            "mixed": dict(
                r=4, lora_alpha=8, target_modules=["in_proj", *ATTENTION],
                target_parameters=["mixer.experts.up_proj", "mixer.experts.down_proj"],
            ),
        },
    ),
    # Experts in one tensor of a layer, which the saved model has one by one; the router is a parameter too.
    "qwen3_moe": (
        transformers.Qwen3MoeConfig(**SIZES, head_dim=8, num_experts=5, num_experts_per_tok=2, moe_intermediate_size=12, norm_topk_prob=True),
        {
            "experts": dict(
                r=3, lora_alpha=6, target_modules=ATTENTION, target_parameters=[*EXPERTS, "mlp.gate.weight"],
                rank_pattern={r"mlp\.experts\.gate_up_proj": 4}, alpha_pattern={"down_proj": 2},
            ),
            "other": dict(r=2, lora_alpha=6, use_rslora=True, target_modules=["q_proj"], target_parameters=[*EXPERTS, "mlp.gate.weight"]),
        },
    ),
    # The names of version 4, which peft turns into those of stacked experts.
    "mixtral": (
        transformers.MixtralConfig(**SIZES, num_local_experts=4, num_experts_per_tok=2),
        {"renamed": dict(r=2, lora_alpha=4, target_modules=["q_proj", "gate", "w1", "w2", "w3"])},
    ),
    # Rows of gate and up alternate, and tensors are transposed.
    "gpt_oss": (
        transformers.GptOssConfig(
            **SIZES, head_dim=8, num_local_experts=4, num_experts_per_tok=2, layer_types=["sliding_attention", "full_attention"],
        ),
        {"experts": dict(r=3, lora_alpha=6, target_modules=ATTENTION, target_parameters=EXPERTS)},
    ),
    # Transposed tensors that peft takes for upright ones.
    "llama4_text": (
        transformers.Llama4TextConfig(
            **SIZES, head_dim=8, num_local_experts=4, num_experts_per_tok=1, interleave_moe_layer_step=1,
            intermediate_size_mlp=48, attn_temperature_tuning=False,
        ),
        {"experts": dict(r=3, lora_alpha=6, target_modules=[], target_parameters=["feed_forward.experts.gate_up_proj", "feed_forward.experts.down_proj"])},
    ),
    "granitemoe": (
        transformers.GraniteMoeConfig(**SIZES, num_local_experts=4, num_experts_per_tok=2),
        {"experts": dict(r=3, lora_alpha=6, target_modules=["o_proj"], target_parameters=["experts.gate_up_proj", "router.weight"])},
    ),
    "deepseek_v3": (
        transformers.DeepseekV3Config(
            **{**SIZES, "num_key_value_heads": 4}, n_routed_experts=4, num_experts_per_tok=2, moe_intermediate_size=16,
            n_shared_experts=1, first_k_dense_replace=1, kv_lora_rank=16, q_lora_rank=24, qk_nope_head_dim=8,
            qk_rope_head_dim=4, v_head_dim=12, n_group=1, topk_group=1,
        ),
        {
            "all": dict(
                r=4, lora_alpha=8, target_modules=["q_a_proj", "q_b_proj", "kv_a_proj_with_mqa", "kv_b_proj", "o_proj"],
                target_parameters=EXPERTS,
            ),
            "latent": dict(r=2, lora_alpha=8, target_modules=["kv_b_proj", "kv_a_proj_with_mqa"], target_parameters=EXPERTS),
        },
    ),
    "granite": (
        transformers.GraniteConfig(**SIZES, residual_multiplier=0.3, attention_multiplier=0.2, logits_scaling=2.0),
        {"scaled": dict(r=4, lora_alpha=8, target_modules="all-linear")},
    ),
    "qwen3_5_text": (
        transformers.Qwen3_5TextConfig(
            **{**SIZES, "num_hidden_layers": 4}, head_dim=8, layer_types=["linear_attention", "full_attention"] * 2,
            linear_num_key_heads=2, linear_num_value_heads=4, linear_key_head_dim=8, linear_value_head_dim=8,
        ),
        {"gated": dict(r=4, lora_alpha=8, target_modules=[*ATTENTION, "gate_proj", "up_proj", "down_proj"])},
    ),
}


def refill(path, is_tied=False):
    """Replaces the tensors of a file by generated ones; returns their shapes."""
    with safe_open(path, "np") as file:
        shapes = {name: list(file.get_slice(name).get_shape()) for name in file.keys()}

    def source(name):
        # peft adds copies of the model's own output matrix and embedding.
        if not name.endswith(".base_layer.weight"):
            return name
        own = name.removeprefix("base_model.model.").replace(".base_layer", "")
        return "model.embed_tokens.weight" if is_tied and own == "lm_head.weight" else own

    save_file({name: values(source(name), shape) for name, shape in shapes.items()}, path, metadata={"format": "pt"})
    return shapes


def logits_of(model):
    with torch.no_grad():
        return [round(x, 6) for x in model(torch.tensor([PROMPT])).logits[0, -1].double().tolist()][::4]


def compute(config, adapters):
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        transformers.AutoModelForCausalLM.from_config(config).save_pretrained(folder / "model")
        tensors = refill(folder / "model" / "model.safetensors")
        saved = json.loads((folder / "model" / "config.json").read_text())
        result = {"config": saved, "tensors": folded(tensors), "adapters": {}, "logits": {}}
        load = lambda: transformers.AutoModelForCausalLM.from_pretrained(folder / "model", dtype=torch.float32).eval()
        result["logits"]["none"] = logits_of(load())
        for name, settings in adapters.items():
            model = peft.get_peft_model(load(), peft.LoraConfig(task_type="CAUSAL_LM", **settings))
            model.save_pretrained(folder / name)
            shapes = refill(folder / name / "adapter_model.safetensors", config.tie_word_embeddings)
            written = json.loads((folder / name / "adapter_config.json").read_text())
            written["base_model_name_or_path"] = "model"
            for key in ["target_modules", "target_parameters"]:
                written[key] = sorted(written[key]) if isinstance(written[key], list) else written[key]
            result["adapters"][name] = {"config": written, "tensors": folded(shapes)}
        model = load()
        for name in adapters:
            load_adapter = model.load_adapter if isinstance(model, peft.PeftModel) else None
            if load_adapter:
                load_adapter(folder / name, adapter_name=name)
            else:
                model = peft.PeftModel.from_pretrained(model, folder / name, adapter_name=name).eval()
        for name in adapters:
            model.set_adapter(name)
            result["logits"][name] = logits_of(model)
        if len(adapters) > 1:
            model.base_model.set_adapter(list(adapters))
            result["logits"]["+".join(adapters)] = logits_of(model)
        return result


def main():
    models = {}
    for name, (config, adapters) in MODELS.items():
        torch.manual_seed(0)
        models[name] = compute(config, adapters)
        print(name, {key: each[:2] for key, each in models[name]["logits"].items()})
    path = pathlib.Path(__file__).parent / "adapters.json"
    path.write_text(json.dumps({"prompt": PROMPT, "models": models}, indent=1) + "\n")


if __name__ == "__main__":
    main()
