# tests/python/checkpoints/test_dtype.py: converted models say the dtype that they run in.
from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from checkpoint_folder import read_checkpoint, stored, write_checkpoint
from test_convert import CONFIG, LINEAR, SCHEMES, VOCABULARY, WEIGHTS
from test_gpt_oss import CONFIG as GPT_OSS_CONFIG
from test_gpt_oss import WEIGHTS as GPT_OSS_WEIGHTS

import mxkern
from mxkern.checkpoints.convert import convert_checkpoint
from mxkern.checkpoints.dtype import with_dtype
from support import mostly_slow


def test_where_the_configuration_says_it() -> None:
    assert with_dtype({}) == {"torch_dtype": "bfloat16"}
    assert with_dtype({"dtype": "float32"}) == {"dtype": "bfloat16"}
    assert with_dtype({"torch_dtype": "float16"}) == {"torch_dtype": "bfloat16"}
    nested = {
        "torch_dtype": None,
        "text_config": {"dtype": "float32", "rope_config": {"torch_dtype": "float32"}, "k": 1},
        "vision_config": {"depth": 2},
        "vocabulary_map": {"dtype": 7},
    }
    said = with_dtype(nested)
    assert said["torch_dtype"] == said["text_config"]["dtype"] == "bfloat16"
    assert said["text_config"]["rope_config"] == {"torch_dtype": "bfloat16"}
    assert said["vision_config"] == {"depth": 2} and said["vocabulary_map"] == {"dtype": 7}
    assert nested["text_config"]["dtype"] == "float32", "what was read stays as it is"


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_what_is_not_quantized_keeps_its_bytes(dtype: str, tmp_path: Path) -> None:
    tensors = {name: array.astype(dtype) for name, array in WEIGHTS.items()}
    source = write_checkpoint(tmp_path / "old", CONFIG | {"torch_dtype": dtype}, tensors)
    convert_checkpoint(source, tmp_path / "new", "mxfp4")
    new = read_checkpoint(tmp_path / "new")
    for name in ("lm_head.weight", "model.embed_tokens.weight", "model.norm.weight"):
        assert new[name].dtype == dtype and new[name].tobytes() == tensors[name].tobytes()
    config = json.loads((tmp_path / "new" / "config.json").read_text())
    assert config["torch_dtype"] == "bfloat16" and "dtype" not in config


@pytest.mark.parametrize(
    ("dtype", "key"), [("float32", "dtype"), ("float32", None), ("float16", "torch_dtype")]
)
@pytest.mark.parametrize("scheme", mostly_slow(SCHEMES, "nvfp4"))
def test_it_runs_as_it_is_loaded(scheme: str, dtype: str, key: str | None, tmp_path: Path) -> None:
    """from_pretrained with no more than the folder gives the logits of the weights as stored."""
    torch = pytest.importorskip("torch", reason="torch is not installed")
    pytest.importorskip("compressed_tensors", reason="compressed-tensors is not installed")
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    config = {name: value for name, value in CONFIG.items() if name != "torch_dtype"}
    config |= {key: dtype} if key is not None else {}
    tensors = {name: array.astype(dtype) for name, array in WEIGHTS.items()}
    source = write_checkpoint(tmp_path / "old", config, tensors)
    convert_checkpoint(source, tmp_path / "new", scheme)
    file, decoded = read_checkpoint(tmp_path / "new"), dict(tensors)
    for name in tensors:
        module = name.removesuffix(".weight")
        if any(module.endswith(own) for own in LINEAR):
            decoded[name] = mxkern.dequantize(stored(file, module, scheme), dtype="bfloat16")
    same = write_checkpoint(tmp_path / "decoded", config, decoded)
    load = transformers.AutoModelForCausalLM.from_pretrained
    tokens = torch.arange(24).reshape(2, 12) * 2 % VOCABULARY
    model = load(tmp_path / "new")
    with torch.no_grad():
        got = model(tokens).logits
        exact = load(same, dtype=torch.bfloat16)(tokens).logits.float()
    assert got.dtype == torch.bfloat16 and model.dtype == torch.bfloat16
    error = float((got.float() - exact).norm() / exact.norm())
    assert error < 0.01, error


@pytest.mark.parametrize("dtype", mostly_slow(["float32", "float16"], "float32"))
def test_gpt_oss_runs_as_it_is_loaded(dtype: str, tmp_path: Path) -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    tensors = {name: array.astype(dtype) for name, array in GPT_OSS_WEIGHTS.items()}
    source = write_checkpoint(tmp_path / "old", GPT_OSS_CONFIG | {"torch_dtype": dtype}, tensors)
    convert_checkpoint(source, tmp_path / "new", "mxfp4")
    tokens = torch.arange(24).reshape(2, 12) * 2 % 50

    def logits(folder: Path | str, **options: Any) -> Any:
        load = transformers.AutoModelForCausalLM.from_pretrained
        with torch.no_grad():
            return load(folder, experts_implementation="eager", **options)(tokens).logits

    got = logits(tmp_path / "new", quantization_config=transformers.Mxfp4Config(dequantize=True))
    near = logits(source, dtype=torch.bfloat16).float()
    assert got.dtype == torch.bfloat16
    error = float((got.float() - near).norm() / near.norm())
    assert 0.001 < error < 0.2, error


def test_the_dtype_of_a_dequantized_model(tmp_path: Path) -> None:
    """A caller's dtype is taken where the weights are dequantized as they are loaded."""
    torch = pytest.importorskip("torch", reason="torch is not installed")
    pytest.importorskip("compressed_tensors", reason="compressed-tensors is not installed")
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    tensors = {name: array.astype(np.float32) for name, array in WEIGHTS.items()}
    source = write_checkpoint(tmp_path / "old", CONFIG | {"torch_dtype": "float32"}, tensors)
    convert_checkpoint(source, tmp_path / "new", "nvfp4")
    model = transformers.AutoModelForCausalLM.from_pretrained(
        tmp_path / "new",
        dtype=torch.float32,
        quantization_config=transformers.CompressedTensorsConfig(dequantize=True),
    )
    assert model.lm_head.weight.dtype == torch.float32
    assert np.array_equal(model.lm_head.weight.detach().numpy(), tensors["lm_head.weight"])
