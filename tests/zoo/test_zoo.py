# tests/zoo/test_zoo.py: converted models of all types load with the weights of the reference.
from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from models import EVERY_DAY, NOT_RUN, REFUSED, TYPES

SCHEMES = ["nvfp4", "mxfp4", "mxfp6_e2m3", "mxfp8_e4m3"]
FLOAT32 = ["llama", "bert", "whisper"]


def cases() -> list[Any]:
    found = []
    for model_type in TYPES:
        for scheme in SCHEMES:
            marks = [] if EVERY_DAY.get(model_type) == scheme else [pytest.mark.zoo]
            if not marks and model_type not in FLOAT32:
                marks = [pytest.mark.slow]
            found.append(pytest.param(model_type, scheme, marks=marks, id=f"{model_type}-{scheme}"))
    return found


@pytest.fixture(scope="module", autouse=True)
def packages() -> None:
    for name in ("torch", "compressed_tensors", "transformers"):
        pytest.importorskip(name, reason=f"{name} is not installed")


@pytest.mark.parametrize(("model_type", "scheme"), cases())
def test_a_model(model_type: str, scheme: str, tmp_path: Path) -> None:
    way_out = REFUSED.get(model_type) or REFUSED.get(f"{model_type}:{scheme}")
    if way_out:
        check_refusal(model_type, scheme, way_out, tmp_path)
    else:
        check(model_type, scheme, tmp_path)


@pytest.mark.zoo
@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("model_type", FLOAT32)
def test_a_model_of_float32(model_type: str, scheme: str, tmp_path: Path) -> None:
    check(model_type, scheme, tmp_path, "float32")


def check_refusal(model_type: str, scheme: str, way_out: str, tmp_path: Path) -> None:
    from checkpoints import source_of
    from mxkern.checkpoints.convert import convert_checkpoint

    source, _ = source_of(model_type, "bfloat16")
    with pytest.raises(ValueError, match=way_out):
        convert_checkpoint(source, tmp_path / "new", scheme)
    assert not (tmp_path / "new").exists()


def check(model_type: str, scheme: str, tmp_path: Path, dtype: str = "bfloat16") -> None:
    """A model is converted, and loaded beside one whose weights the reference has rounded."""
    import torch

    from checkpoints import copy_with, source_of, tensors_of
    from inputs import inputs_of, outputs_of
    from loading import differing, give_dtypes, load, options_of
    from mxkern.checkpoints.convert import convert_checkpoint
    from rounded import rounded

    source, kind = source_of(model_type, dtype)
    target, same = tmp_path / "new", tmp_path / "same"
    done = convert_checkpoint(source, target, scheme)
    copy_with(source, same, rounded(tensors_of(source), done.quantized, scheme))
    expected, faults = load(kind, same, torch.bfloat16)
    assert not faults, f"of the model that is not quantized: {faults}"
    model, faults = load(kind, target, torch.bfloat16, **options_of(target))
    assert not faults, f"report: {faults}"
    found = differing(model, expected)
    assert not found, f"weights: {found}"
    if model_type in NOT_RUN:
        return
    most = 0 if give_dtypes(model, expected) else 0.03
    given = inputs_of(expected)
    want, got = outputs_of(expected, given), outputs_of(model, given)
    assert want and want.keys() == got.keys()
    for name, value in want.items():
        error = (got[name].double() - value.double()).norm() / value.double().norm()
        assert error <= most, f"outputs: {name} differ by {error:.2g}"
