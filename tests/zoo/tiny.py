# tests/zoo/tiny.py: small configurations of any model type of transformers.
from __future__ import annotations

from typing import Any

HIDDEN, INNER, LAYERS, HEADS, KEY_HEADS, VOCABULARY = 64, 96, 2, 4, 2, 96

# What an attribute of a configuration, or of one inside it, becomes where it has the name.
SIZES = [
    (
        HIDDEN,
        """hidden_size d_model n_embd dim embed_dim hidden_dim model_dim projection_dim n_embed
        embedding_size decoder_hidden_size encoder_hidden_size word_embed_proj_dim
        text_hidden_size width conv_channels lm_hidden_size d_embed output_dim
        projector_hidden_size out_hidden_size q_hidden_size lru_width encoder_embed_dim
        decoder_embed_dim latent_dim d_hidden codebook_dim
        projection_size adapter_hidden_size perceiver_hidden_size qformer_hidden_size""",
    ),
    (
        INNER,
        """intermediate_size ffn_dim encoder_ffn_dim decoder_ffn_dim n_inner d_ff d_inner
        ffn_hidden_size mlp_dim intermediate_dim feed_forward_size inner_dim
        shared_expert_intermediate_size shared_intermediate_size mlp_hidden_size
        moe_shared_expert_intermediate_size prefix_dense_intermediate_size
        dense_intermediate_size intermediate_size_mlp text_intermediate_size
        encoder_intermediate_size decoder_intermediate_size projector_ffn_dim""",
    ),
    (
        LAYERS,
        """num_hidden_layers n_layer n_layers num_layers encoder_layers decoder_layers
        num_encoder_layers num_decoder_layers depth encoder_depth decoder_depth num_blocks
        conformer_layers encoder_num_hidden_layers decoder_num_hidden_layers""",
    ),
    (
        HEADS,
        """num_attention_heads n_head n_heads num_heads encoder_attention_heads
        decoder_attention_heads attention_heads encoder_num_attention_heads
        decoder_num_attention_heads num_experts num_local_experts n_routed_experts
        moe_num_experts linear_num_value_heads expert_num mamba_num_heads
        moe_num_primary_experts mamba_n_heads""",
    ),
    (
        KEY_HEADS,
        """num_key_value_heads num_kv_heads multi_query_group_num n_head_kv num_experts_per_tok
        moe_k top_k num_experts_per_token moe_topk moe_top_k linear_num_key_heads
        decoder_num_key_value_heads encoder_num_key_value_heads""",
    ),
    (
        HIDDEN // HEADS,
        """head_dim kv_channels d_kv attention_head_dim v_head_dim qk_nope_head_dim
        attention_head_size global_head_dim qk_rope_head_dim linear_key_head_dim
        linear_value_head_dim mamba_head_dim mamba_d_state state_size ssm_state_size
        attention_key_dim index_head_dim""",
    ),
    (
        VOCABULARY,
        """vocab_size text_vocab_size decoder_vocab_size src_vocab_size tgt_vocab_size
        unpadded_vocab_size""",
    ),
    (
        32,
        """moe_intermediate_size expert_dim q_lora_rank kv_lora_rank expert_intermediate_size
        max_position_embeddings image_size n_positions max_source_positions
        max_target_positions moe_ffn_hidden_size mamba_d_head o_lora_rank""",
    ),
    (
        1,
        """n_group topk_group n_groups mamba_n_groups num_expert_group n_shared_experts
        num_shared_experts first_k_dense_replace""",
    ),
    (8, "patch_size"),
    (0, "pad_token_id"),
]
SIZE_OF = {name: size for size, names in SIZES for name in names.split()}


def overrides(config: Any, extra: dict[str, Any]) -> dict[str, Any]:
    """Arguments that make a configuration of the class of `config` tiny; `extra` wins."""
    found: dict[str, Any] = {}
    own = vars(config)
    for name, value in own.items():
        if hasattr(value, "to_dict") and hasattr(value, "model_type"):
            inner = overrides(value, extra.get(name, {}))
            if value.model_type:
                inner["model_type"] = value.model_type
            found[name] = inner
        elif name in SIZE_OF and isinstance(value, int) and not isinstance(value, bool):
            found[name] = SIZE_OF[name]
        elif name == "rope_parameters" and isinstance(value, dict):
            found[name] = _rope(value)
    for name, value in extra.items():
        if name not in found or not isinstance(value, dict):
            found[name] = value
        elif not hasattr(own.get(name), "to_dict"):  # what is inside another one is there already
            found[name] = found[name] | value
    return found


def _rope(parameters: dict[str, Any]) -> dict[str, Any]:
    """Of a position among HIDDEN // HEADS numbers, and of few positions."""
    fitting = {"mrope_section": [4, 2, 2], "original_max_position_embeddings": 16}
    return {
        name: _rope(value) if isinstance(value, dict) else fitting.get(name, value)
        for name, value in parameters.items()
    }


def tiny_config(kind: type, extra: dict[str, Any]) -> Any:
    try:
        standard = kind()
    except Exception:  # a few have no standard values
        standard = kind(**extra)
    return kind(**overrides(standard, extra))
