# tests/zoo/extras.py: what a small model of a type needs besides small sizes.
from __future__ import annotations

from typing import Any

ROPE = {"rope_parameters": {"rope_type": "default", "rope_theta": 10000.0}}

MROPE = {"rope_parameters": ROPE["rope_parameters"] | {"mrope_section": [4, 2, 2]}}
HALF_MROPE = {"rope_parameters": ROPE["rope_parameters"] | {"mrope_section": [2, 1, 1]}}
# One layer of each kind of a hybrid model.
HYBRID = {"layer_types": ["linear_attention", "full_attention"]}
SWIN = {"window_size": 4, "embed_dim": 64, "depths": [1, 1], "num_heads": [2, 4]}

EXTRAS: dict[str, dict[str, Any]] = {
    "mamba2": {"num_heads": 8},
    "deepseek_v2": {"num_key_value_heads": 4, "num_experts_per_tok": 2},
    "deepseek_v32": {"num_key_value_heads": 4},
    "axk1": {"num_key_value_heads": 4},
    "sarvam_mla": {"num_key_value_heads": 4},
    "mistral4": {"num_key_value_heads": 4},
    "blt": {"encoder_hash_byte_group_vocab": 96},
    "perceiver": {
        "d_latents": 64,
        "num_latents": 8,
        "num_self_attends_per_block": 2,
        "num_self_attention_heads": 4,
        "num_cross_attention_heads": 4,
        "qk_channels": 64,
        "v_channels": 64,
    },
    "qwen2_5_omni": {
        "enable_audio_output": False,
        "thinker_config": {"text_config": MROPE},
    },
    "gptj": {"rotary_dim": 8},
    "codegen": {"rotary_dim": 8},
    "minicpm3": {"num_key_value_heads": 4},
    "youtu": {"num_key_value_heads": 4},
    "vibevoice": {
        "audio_config": {"num_filters": 2},
        "semantic_model_config": {"num_filters": 2},
    },
    "vibevoice_asr": {
        "acoustic_tokenizer_encoder_config": {"num_filters": 2},
        "semantic_tokenizer_encoder_config": {"num_filters": 2},
    },
    "xlm": {"emb_dim": 64, "n_heads": 4},
    "flaubert": {"emb_dim": 64, "n_heads": 4},
    "luke": {"entity_vocab_size": 96, "entity_emb_size": 32},
    "longcat_flash": {"zero_expert_num": 0, "expert_ffn_hidden_size": 32, "num_key_value_heads": 4},
    "llama4": {
        "vision_config": {
            "vision_output_dim": 64,
            "projector_input_dim": 64,
            "projector_output_dim": 64,
        }
    },
    "janus": {"vq_config": {"base_channels": 32, "channel_multiplier": [1, 1]}},
    "florence2": {
        "vision_config": {
            "depths": [1, 1],
            "patch_size": [7, 3],
            "patch_stride": [4, 2],
            "patch_padding": [3, 1],
            "patch_prenorm": [False, True],
            "embed_dim": [32, 64],
            "num_heads": [2, 4],
            "num_groups": [2, 4],
            "projection_dim": 64,
        }
    },
    "glm4_moe_lite": {"num_key_value_heads": 4},
    "glm_moe_dsa": {"num_key_value_heads": 4},
    "kimi_k25": {"text_config": {"num_key_value_heads": 4}},
    "axk2": {"num_key_value_heads": 4},
    "qwen2_vl": {"text_config": MROPE},
    "qwen2_5_vl": {"text_config": MROPE},
    "qwen2_5_omni_thinker": {"text_config": MROPE},
    "glm_ocr": {"text_config": MROPE},
    "glm4v": {"text_config": MROPE},
    "glmga": {"text_config": MROPE},
    "glm4v_moe": {"text_config": HALF_MROPE},
    "glm46v": {"text_config": HALF_MROPE},
    "colqwen2": {"vlm_config": {"text_config": MROPE}},
    "qwen3_next": HYBRID,
    "qwen3_5": {"text_config": HYBRID},
    "qwen3_5_text": HYBRID,
    "qwen3_5_moe": {"text_config": HYBRID},
    "qwen3_5_moe_text": HYBRID,
    "granitemoehybrid": HYBRID,
    "diffusion_gemma": {
        "text_config": {"num_experts": 4, "top_k_experts": 2, "moe_intermediate_size": 32}
    },
    "deepseek_v3": {"num_key_value_heads": 4},
    "whisper": {"max_source_positions": 32, "decoder_start_token_id": 1},
    "chameleon": {
        "vocabulary_map": {"<image>": 4},
        "vq_config": {"base_channels": 32, "channel_multiplier": [1, 1]},
    },
    "cohere_compass": {
        "text_config": {"rope_parameters": {"full_attention": MROPE["rope_parameters"]}}
    },
    "cohere_compass_text": {"rope_parameters": {"full_attention": MROPE["rope_parameters"]}},
    "granite4_vision": {
        "deepstack_layer_map": [[0, 0]],
        "spatial_target_layers": [0, 1, 0, 1],
        "downsample_rate": "1/2",
    },
    "dbrx": {"attn_config": {"rope_theta": 10000.0, "kv_n_heads": 2, "clip_qkv": 8.0}} | ROPE,
    "deepseek_ocr2": {
        "text_config": {"mlp_layer_types": ["dense", "sparse"], "num_experts_per_tok": 2}
    },
    "donut-swin": SWIN | {"num_layers": 2},
    "swin": SWIN,
    "swinv2": SWIN,
    "dots1": {"n_shared_experts": 1, "n_routed_experts": 4, "num_experts_per_tok": 2},
    "dots3_note": {"text_config": {"num_key_value_heads": 4, "per_layer_config": {}}},
    "emu3": {
        "vocabulary_map": {"<image>": 4, "<|extra_200|>": 5},
        "vq_config": {"base_channels": 32, "channel_multiplier": [1, 1], "attn_resolutions": []},
    },
    "dots3_note_text": {"num_key_value_heads": 4},
    "ernie4_5_vl_moe": {
        "text_config": {
            "moe_intermediate_size": [32, 32],
            "rope_parameters": {"rope_type": "default", "mrope_section": [2, 2, 4]},
        }
    },
    "esm": {"vocab_size": 96, "pad_token_id": 1, "mask_token_id": 2},
    "esmc": {"num_key_value_heads": 4},
    "falcon_h1": {"mamba_d_ssm": 128},
    "fun_asr_nano": {"adaptor_config": {"intermediate_size": 16}},
    "gemma3n_text": {
        "num_kv_shared_layers": 0,
        "vocab_size_per_layer_input": 96,
        "intermediate_size": [96, 96],
    },
    "gemma4": {"text_config": {"vocab_size_per_layer_input": 96}},
    "gemma4_text": {"vocab_size_per_layer_input": 96},
    "gemma4_assistant": {
        "text_config": {"hidden_size_per_layer_input": 0, "vocab_size_per_layer_input": 0}
    },
    "glm5_next": {
        "text_config": {"num_key_value_heads": 4, "qk_rope_head_dim": 0, "linear_num_heads": 4}
    },
    "gpt_neo": {"attention_types": [[["global", "local"], 1]]},
    "gradium_phonon_tts": {"flow_head_config": {"condition_dim": 64}},
    "pocket_tts": {"flow_head_config": {"condition_dim": 64}},
    "granite_speech5_ctc": {"encoder_config": {"context_size": 16}},
    "hunyuan_v1_dense": {"head_dim": 16} | ROPE,
    "hunyuan_v1_moe": {"head_dim": 16} | ROPE,
    "hunyuan_vl": {"text_config": {"head_dim": 16} | ROPE},
    "lfm2_moe": {"layer_types": ["conv", "full_attention"]},
    "ministral": {"head_dim": 16},
    "moonshine_streaming": {"num_key_value_heads": 4},
    "muse_spark": {
        "audio_config": {"patch_sizes": [16, 6], "hidden_sizes": [64, 64], "depths": [1, 1]}
    },
    "paddleocr_vl": {"text_config": MROPE},
    "step3p7": {"text_config": {"sliding_window": 8}},
    "molmo2": {"adapter_config": {"vision_feature_layer": [1, 0]}},
    "nemotron": {"num_key_value_heads": 2},
    "nemo_speechlm": {"audio_config": {"head_config": {"audio_hidden_size": 64}}},
    "nemotron_h_omni": {"vision_config": {"video_temporal_patch_size": 2}},
    "qwen3_omni_moe": {
        "talker_config": {"text_config": {"shared_expert_intermediate_size": 96}},
    },
    "reformer": {"axial_pos_shape": [4, 8], "axial_pos_embds_dim": [32, 32]},
    "wav2vec2-bert": {"vocab_size": 96},
    "wav2vec2-conformer": {"vocab_size": 96},
    "zamba": {
        "num_hidden_layers": 4,
        "layers_block_type": ["linear_attention", "hybrid", "linear_attention", "hybrid"],
    },
    "zamba2": {"layers_block_type": ["linear_attention", "hybrid"]},
    "zaya": {"num_experts_per_tok": 1},
}
