# mxkern/checkpoints/rules.py: which layers of a checkpoint are quantized, by their names.
from __future__ import annotations

import re

from mxkern.checkpoints.transformers_names import TransformersNames, leaf_of

# Parts of a model that see or hear, and what connects them to the rest.
TOWER = (
    r"(vision|visual|image|video|audio|speech|sound|vit)"
    r"(_(tower|model|encoder|backbone|embedder|adapter|proj|projection|projector|resampler))?"
    r"|embed_(vision|audio)|multi_modal_projector|multimodal_projector|mm_projector|connector"
    r"|aligner|resampler|qformer|vision_language_adapter|patch_merger"
)
IN_TOWER = re.compile(rf"(^|\.)({TOWER})(\.|$)")
HEAD = re.compile(r"(^|\.)(lm_head|decoder)$")  # a decoder is one where a matrix has that name
ROUTER = re.compile(r"(^|\.)(gate|router|shared_expert_gate)(\.|$)")
NO_LINEAR_LAYER = re.compile(r"norm|emb|weight$|^(wte|wpe|shared)$", re.IGNORECASE)
# Heads that are quantized, which the result names.
TASK_HEAD = re.compile(
    r"(^|\.)(score|classif\w*|qa_outputs|seq_relationship|heads?|\w+_head)(\.|$)"
)
# One of a layer's experts, where each is a layer of its own.
EXPERT = re.compile(r"(^|\.)experts\.\d+\.")

LOSES_MUCH = "as they lose much or are no linear layers"
TIED = "as they share their weights with others"
COMPUTED = "as transformers computes other weights of them"
IN_A_TOWER = "as they see, hear, or connect what does"

# Linear layers that programs multiply at once. They have one scheme and one tensor scale then.
TOGETHER = tuple(
    re.compile(rf"(^|(?<=\.))({names})$")
    for names in (
        "q_proj|k_proj|v_proj",
        "gate_proj|up_proj",
        "w1|w3",
        "q_a_proj|kv_a_proj_with_mqa",
        "query|key|value",
        "wq|wk|wv",
        "in_proj_qkv|in_proj_z",
        "in_proj_b|in_proj_a",
    )
)


def may_be_linear(module: str) -> bool:
    return not NO_LINEAR_LAYER.search(leaf_of(module))


def why_left(module: str, names: TransformersNames) -> str:
    """Why a layer's matrix stays as it is, whatever is in it; "" where nothing speaks for that."""
    known = names.modules(module)
    if any(
        HEAD.search(name) or ROUTER.search(name) or not may_be_linear(name) for name in known
    ) or not names.is_linear(module):
        return LOSES_MUCH
    if names.is_tied(module):
        return TIED
    computed = names.parameter(f"{module}.weight").computed
    if computed not in ("", "join") or (not computed and not names.renames_scales(module)):
        return COMPUTED
    return IN_A_TOWER if any(IN_TOWER.search(name) for name in known) else ""


def group_of(module: str) -> str:
    """The same text for layers that programs multiply at once, and for no others."""
    for number, pattern in enumerate(TOGETHER):
        shared = pattern.sub(f"<{number}>", module)
        if shared != module:
            return shared
    return module
