"""
Prints, as JSON, the defaults of transformers' configuration classes; config_defaults.ts stores them.

    python3 test/models/config/config_defaults.py llama gemma3_text ...
"""
import dataclasses
import json
import os
import sys

os.environ["TRANSFORMERS_VERBOSITY"] = "critical"

import transformers
from transformers import AutoConfig, PretrainedConfig

# Settings that do not affect the results of a text model.
SILENT = {
    "initializer_range", "use_cache", "attention_dropout", "residual_dropout", "embedding_dropout",
    "embd_pdrop", "resid_pdrop", "pretraining_tp", "output_router_logits", "router_aux_loss_coef",
    "router_jitter_noise", "input_jitter_noise", "bos_token_id", "eos_token_id", "pad_token_id",
    "eod_token_id",
    "num_mtp_layers", "time_step_limit", "hidden_dropout_prob", "attention_probs_dropout_prob", "is_decoder",
    "add_cross_attention", "embedding_dropout", "mlp_dropout", "classifier_dropout", "decoder_bias",
    # Settings of kernels, of initial weights, and of layers that forge does not run.
    "mamba_chunk_size", "chunk_size", "use_mamba_kernels", "mamba_ssm_cache_dtype", "time_step_max",
    "time_step_floor", "time_step_rank", "rescale_prenorm_residual", "residual_in_fp32", "num_logits_to_keep",
    "moe_shared_expert_overlap", "hidden_dropout", "num_nextn_predict_layers", "z_loss_coefficient",
    "deterministic_flash_attn", "sparse_prediction", "sparse_pred_ignore_index", "initializer_cutoff_factor", *(field.name for field in dataclasses.fields(PretrainedConfig)),
}


def defaults(model_type):
    config = AutoConfig.for_model(model_type)
    kind = type(config)
    table = {
        field.name: field.default
        for field in dataclasses.fields(kind)
        if field.default is not None and (
            # Phi-MoE routes by the jitter of its training.
            field.name not in SILENT or model_type == "phimoe" and field.name == "router_jitter_noise"
        )
    }
    if not hasattr(config, "rope_parameters"):
        return table
    # Defaults that __post_init__ sets are visible in an instance.
    theta = kind.default_theta
    if isinstance(theta, dict):
        table.update(rope_theta=theta["global"], rope_local_base_freq=theta["local"])
    elif "full_attention" not in config.rope_parameters or model_type == "olmo3":
        table["rope_theta"] = theta
    scaled = {**config.rope_parameters}
    if "partial_rotary_factor" in scaled:
        table["partial_rotary_factor"] = scaled["partial_rotary_factor"]
    types = getattr(config, "layer_types", None) or []
    if len(set(types)) == 2 and types[0] != "full_attention" and "sliding_window_pattern" not in table:
        name = "full_attention_interval" if "linear_attention" in types else "sliding_window_pattern"
        table[name] = types.index("full_attention") + 1
    if scaled.get("rope_type", "default") != "default":
        # Omits the settings that transformers adds when it loads a config.
        filled = {"max_position_embeddings": scaled.get("max_position_embeddings")}
        # Some classes ignore a `rope_theta` without other parameters.
        if kind(rope_theta=2.0).rope_parameters["rope_theta"] == 2.0:
            filled["rope_theta"] = theta
        if "type" in scaled:
            filled["rope_type"] = scaled["type"]
        table["rope_parameters"] = {key: value for key, value in scaled.items() if filled.get(key) != value}
    elif "full_attention" in scaled and "rope_theta" not in table:
        table["rope_parameters"] = scaled
        layer = types.index("full_attention")
        table["global_head_dim"] = config.per_layer_config[layer].head_dim
    return table


print(json.dumps({
    "version": transformers.__version__,
    "defaults": {model_type: defaults(model_type) for model_type in sys.argv[1:]},
}))
