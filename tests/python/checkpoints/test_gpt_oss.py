# tests/python/checkpoints/test_gpt_oss.py: gpt-oss models with experts in MXFP4, read back and,
# where it is installed, loaded by transformers.
from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from checkpoint_folder import read_checkpoint, write_checkpoint

import mxkern
from mxkern.checkpoints.convert import convert_checkpoint

HIDDEN, INNER, EXPERTS, HEADS, SIZE, VOCABULARY = 64, 96, 4, 4, 16, 50
CONFIG = {
    "architectures": ["GptOssForCausalLM"],
    "model_type": "gpt_oss",
    "hidden_size": HIDDEN,
    "intermediate_size": INNER,
    "num_local_experts": EXPERTS,
    "num_experts_per_tok": 2,
    "num_hidden_layers": 2,
    "num_attention_heads": HEADS,
    "num_key_value_heads": 2,
    "head_dim": SIZE,
    "vocab_size": VOCABULARY,
    "max_position_embeddings": 64,
    "sliding_window": 16,
    "layer_types": ["sliding_attention", "full_attention"],
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
    "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0},
}
STACKS = {"gate_up_proj": (EXPERTS, HIDDEN, 2 * INNER), "down_proj": (EXPERTS, INNER, HIDDEN)}


def weights() -> dict[str, np.ndarray]:
    generator = np.random.default_rng(1)

    def normal(*shape: int, scale: float = 1.0) -> np.ndarray:
        return (generator.standard_normal(shape, np.float32) * scale).astype(ml_dtypes.bfloat16)

    tensors = {
        "model.embed_tokens.weight": normal(VOCABULARY, HIDDEN),
        "model.norm.weight": np.ones(HIDDEN, ml_dtypes.bfloat16),
        "lm_head.weight": normal(VOCABULARY, HIDDEN, scale=HIDDEN**-0.5),
    }
    for layer in range(2):
        name = f"model.layers.{layer}."
        for norm in ("input_layernorm", "post_attention_layernorm"):
            tensors[f"{name}{norm}.weight"] = np.ones(HIDDEN, ml_dtypes.bfloat16)
        sizes = {"q": (64, HIDDEN), "k": (32, HIDDEN), "v": (32, HIDDEN), "o": (HIDDEN, 64)}
        for part, shape in sizes.items():
            module = f"{name}self_attn.{part}_proj"
            tensors[f"{module}.weight"] = normal(*shape, scale=shape[1] ** -0.5)
            tensors[f"{module}.bias"] = normal(shape[0], scale=0.1)
        tensors[f"{name}self_attn.sinks"] = normal(HEADS)
        tensors[f"{name}mlp.router.weight"] = normal(EXPERTS, HIDDEN, scale=HIDDEN**-0.5)
        tensors[f"{name}mlp.router.bias"] = normal(EXPERTS, scale=0.1)
        for stack, stack_shape in STACKS.items():
            experts = f"{name}mlp.experts.{stack}"
            tensors[experts] = normal(*stack_shape, scale=stack_shape[1] ** -0.5)
            tensors[f"{experts}_bias"] = normal(EXPERTS, stack_shape[2], scale=0.1)
    return tensors


WEIGHTS = weights()
NAMES = sorted(f"model.layers.{i}.mlp.experts.{stack}" for i in range(2) for stack in STACKS)


def stored(file: Any, name: str) -> mxkern.BlockScaled:
    """As docs/guide/checkpoints.md reads what gpt-oss stores."""
    blocks = file[f"{name}_blocks"]
    codes = blocks.reshape(*blocks.shape[:2], -1)
    return mxkern.BlockScaled.from_parts(codes, file[f"{name}_scales"], scheme="mxfp4")


@pytest.mark.parametrize("files", [1, 3])
@pytest.mark.parametrize("rule", ["rceil", "even"])
def test_every_tensor(rule: str, files: int, tmp_path: Path) -> None:
    source = write_checkpoint(tmp_path / "old", CONFIG, WEIGHTS, files)
    done = convert_checkpoint(source, tmp_path / "new", "mxfp4", scale_rule=rule)
    assert done.quantized == NAMES
    assert len(done.left) == 12 and set(done.left.values()) == {"as gpt-oss keeps them"}
    assert str(done).startswith("4 of 16 weights quantized to mxfp4; ")
    new = read_checkpoint(tmp_path / "new", files)
    for name, array in WEIGHTS.items():
        if name not in NAMES:
            assert new[name].dtype == array.dtype and new[name].tobytes() == array.tobytes()
            continue
        experts, k, n = array.shape
        assert new[f"{name}_blocks"].shape == (experts, n, k // 32, 16)
        assert new[f"{name}_scales"].shape == (experts, n, k // 32)
        assert name not in new
        turned = np.ascontiguousarray(array.transpose(0, 2, 1))
        want, got = mxkern.quantize(turned, "mxfp4", scale_rule=rule), stored(new, name)
        assert got.codes.tobytes() == want.codes.tobytes()
        assert got.scales.tobytes() == want.scales.tobytes()
    config = json.loads((tmp_path / "new" / "config.json").read_text())
    own = config.pop("quantization_config")
    assert config == CONFIG and own["quant_method"] == "mxfp4"
    assert own["modules_to_not_convert"] == [
        "model.layers.*.self_attn",
        "model.layers.*.mlp.router",
        "model.embed_tokens",
        "lm_head",
    ]
    if files > 1:
        size = sum(new[name].nbytes for name in new)
        assert new.metadata["total_size"] == size == done.bytes_after


def test_what_is_not_finite_is_counted(tmp_path: Path) -> None:
    broken = WEIGHTS | {NAMES[1]: WEIGHTS[NAMES[1]].copy()}
    broken[NAMES[1]][:2, 5, 7] = np.inf
    source = write_checkpoint(tmp_path / "old", CONFIG, broken)
    assert convert_checkpoint(source, tmp_path / "new", "mxfp4").poisoned == {NAMES[1]: 2}


def test_experts_stay_together(tmp_path: Path) -> None:
    source = write_checkpoint(tmp_path / "old", CONFIG, WEIGHTS)
    done = convert_checkpoint(source, tmp_path / "new", "mxfp4", ignore=[r"\.0\..*down_proj"])
    assert done.quantized == NAMES[2:]
    assert [done.left[name] for name in NAMES[:2]] == ["as asked"] * 2
    new = read_checkpoint(tmp_path / "new")
    assert new[NAMES[0]].tobytes() == WEIGHTS[NAMES[0]].tobytes()
    own = json.loads((tmp_path / "new" / "config.json").read_text())["quantization_config"]
    assert own["modules_to_not_convert"][4:] == ["model.layers.0.mlp.experts"]


def test_other_schemes_take_linear_layers(tmp_path: Path) -> None:
    source = write_checkpoint(tmp_path / "old", CONFIG, WEIGHTS)
    done = convert_checkpoint(source, tmp_path / "new", "mxfp8")
    assert len(done.quantized) == 8 and all("self_attn" in name for name in done.quantized)
    assert [done.left[name] for name in NAMES] == ["as they are stacks of matrices"] * 4


def test_refused(tmp_path: Path) -> None:
    def call(message: str, tensors: dict[str, np.ndarray], **options: Any) -> None:
        folder = tmp_path / str(len(list(tmp_path.iterdir())))
        source = write_checkpoint(folder, CONFIG, tensors)
        with pytest.raises(ValueError, match=message):
            convert_checkpoint(source, tmp_path / "new", "mxfp4", **options)
        assert not (tmp_path / "new").exists()

    name = NAMES[1]
    turned = np.ascontiguousarray(WEIGHTS[name].transpose(0, 2, 1))
    down, up = {NAMES[0]: WEIGHTS[NAMES[0]]}, {name: WEIGHTS[name]}
    wrong = down | {name: turned}
    call(r"gate_up_proj. has the shape \[4, 192, 64\]; expected \[4, 64, 192\]", wrong)
    flat = turned.reshape(4, -1)[:, :6144]
    call(r"has the shape \[4, 6144\]; expected \[4, 96, 64\]", up | {NAMES[0]: flat})
    call("no experts are left to quantize", WEIGHTS, ignore=["experts"])
    call("no experts are left to quantize; .* 0 others stay", {"lm_head.weight": turned[0]})
    call("down_proj. is not; expected both stacks", up)
    call("activations is given; expected None for gpt-oss", WEIGHTS, activations="mxfp4")


def test_loaded_by_transformers(tmp_path: Path) -> None:
    """Its logits are those of the weights that are stored, and near those of the model."""
    torch = pytest.importorskip("torch", reason="torch is not installed")
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    source = write_checkpoint(tmp_path / "old", CONFIG, WEIGHTS)
    convert_checkpoint(source, tmp_path / "new", "mxfp4")
    new, decoded = read_checkpoint(tmp_path / "new"), dict(WEIGHTS)
    for name in NAMES:
        values = mxkern.dequantize(stored(new, name), dtype="bfloat16")
        decoded[name] = np.ascontiguousarray(values.transpose(0, 2, 1))
    same = write_checkpoint(tmp_path / "decoded", CONFIG, decoded)
    tokens = torch.arange(24).reshape(2, 12) * 2 % VOCABULARY

    def logits(folder: Path | str, **options: Any) -> Any:
        model = transformers.AutoModelForCausalLM.from_pretrained(
            folder, dtype=torch.bfloat16, experts_implementation="eager", **options
        )
        with torch.no_grad():
            return model(tokens).logits.float()

    plain = transformers.Mxfp4Config(dequantize=True)  # as without a GPU
    got = logits(tmp_path / "new", quantization_config=plain)
    exact, near = logits(same), logits(source)
    assert torch.equal(got, exact)
    error = float((got - near).norm() / near.norm())
    assert 0.001 < error < 0.2, error
