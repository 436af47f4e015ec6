# tests/zoo/models.py: the table of model types, and the class that stands for each.
from __future__ import annotations

import tomllib
from pathlib import Path

# Heads, in the order in which transformers is asked for a type's class.
HEADS = """
    IMAGE_TEXT_TO_TEXT MULTIMODAL_LM SEQ_TO_SEQ_CAUSAL_LM SPEECH_SEQ_2_SEQ TEXT_TO_WAVEFORM
    MASKED_LM CAUSAL_LM CTC RNNT TDT TEXT_TO_SPECTROGRAM RETRIEVAL ZERO_SHOT_IMAGE_CLASSIFICATION
    AUDIO_CLASSIFICATION IMAGE_CLASSIFICATION VIDEO_CLASSIFICATION SEQUENCE_CLASSIFICATION
    QUESTION_ANSWERING PRETRAINING
"""
_TABLE = tomllib.loads((Path(__file__).parent / "types.toml").read_text())


def _by_type(section: str) -> dict[str, str]:
    """What a section says of each type."""
    return {name: said for said, names in _TABLE[section].items() for name in names.split()}


VERSION: str = _TABLE["version"]
WHOLE_HEADS: list[str] = _TABLE["whole_heads"].split()
TYPES: list[str] = _TABLE["types"].split()
LEFT_OUT, NOT_RUN, REFUSED, EVERY_DAY = map(
    _by_type, ("left_out", "not_run", "refused", "every_day")
)


def names_of(head: str) -> dict[str, str | tuple[str, ...]]:
    """The classes with such a head by type."""
    from transformers.models.auto import modeling_auto

    return getattr(modeling_auto, f"MODEL_FOR_{head}_MAPPING_NAMES")


def class_name(model_type: str) -> str:
    for head in HEADS.split():
        if model_type in names_of(head):
            found = names_of(head)[model_type]
            return found if isinstance(found, str) else found[0]
    raise KeyError(model_type)
