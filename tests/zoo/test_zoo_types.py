# tests/zoo/test_zoo_types.py: no type of transformers is left out without a word.
from __future__ import annotations

from typing import Any

import pytest

from extras import EXTRAS
from models import EVERY_DAY, LEFT_OUT, NOT_RUN, REFUSED, TYPES, VERSION, WHOLE_HEADS, names_of

NAMED = """
    whisper phimoe nemotron_h mixtral qwen3_moe deepseek_v2 deepseek_v3 dbrx bert roberta
    modernbert siglip mamba2 recurrent_gemma falcon gpt_bigcode t5 qwen3_next qwen3_5 gpt_oss
    llava qwen2_vl wav2vec2 llama
"""


@pytest.fixture(scope="module")
def transformers() -> Any:
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    pytest.importorskip("torch", reason="torch is not installed")
    if not transformers.__version__.startswith(VERSION):
        pytest.skip(f"the table is of transformers {VERSION}; this is {transformers.__version__}")
    return transformers


def test_the_table_agrees_with_itself() -> None:
    assert len(TYPES) == len(set(TYPES)) >= 120
    assert set(NAMED.split()) <= set(TYPES)
    assert not set(TYPES) & set(LEFT_OUT)
    known = set(TYPES) | set(LEFT_OUT)
    assert {*EXTRAS, *NOT_RUN, *EVERY_DAY} <= known
    assert {name.split(":")[0] for name in REFUSED} <= set(TYPES)


def test_every_type_is_there(transformers: Any) -> None:
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING_NAMES

    for head in WHOLE_HEADS:
        missing = set(names_of(head)) & set(CONFIG_MAPPING_NAMES) - set(TYPES) - set(LEFT_OUT)
        assert not missing, f"{head}: {sorted(missing)}; expected them in TYPES or LEFT_OUT"


@pytest.mark.zoo
@pytest.mark.parametrize("model_type", LEFT_OUT)
def test_what_is_left_out_cannot_be_built(transformers: Any, model_type: str) -> None:
    import torch

    from checkpoints import source_of
    from loading import load

    with pytest.raises(Exception) as caught:
        source, kind = source_of(model_type, "bfloat16")
        _, faults = load(kind, source, torch.bfloat16)
        if faults:
            raise RuntimeError(faults)
    assert type(caught.value).__name__ == LEFT_OUT[model_type]


@pytest.mark.zoo
@pytest.mark.parametrize("model_type", NOT_RUN)
def test_what_is_not_run_cannot_be_run(transformers: Any, model_type: str) -> None:
    import torch

    from checkpoints import source_of
    from inputs import inputs_of, outputs_of
    from loading import load

    source, kind = source_of(model_type, "bfloat16")
    model, faults = load(kind, source, torch.bfloat16)
    assert not faults
    with pytest.raises(Exception) as caught:
        outputs_of(model, inputs_of(model))
    assert type(caught.value).__name__ == NOT_RUN[model_type]
