# tests/python/checkpoints/test_expert_stacks.py: mixtures of experts with quantized weights.
from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from checkpoint_folder import read_checkpoint, stored, write_checkpoint
from safetensors.numpy import save_file

import mxkern
from mxkern.checkpoints.convert import convert_checkpoint
from mxkern.cli.main import main
from support import mostly_slow

HIDDEN, INNER, HEADS, VOCABULARY = 64, 96, 4, 50
OTHERS = {
    f"model.layers.{layer}.self_attn.{name}_proj.weight": np.ones((64, 64), np.float32)
    for layer in range(2)
    for name in "qkvo"
}
EXPERTS = {
    f"model.layers.{layer}.mlp.experts.{i}.{name}.weight": np.full((64, 64), 0.5, np.float32)
    for layer in range(2)
    for i in range(2)
    for name in ("gate_proj", "down_proj")
}


def test_experts_stay_together(tmp_path: Path) -> None:
    source = write_checkpoint(tmp_path / "old", {"model_type": "x"}, OTHERS | EXPERTS)
    done = convert_checkpoint(source, tmp_path / "all", "mxfp4")
    assert len(done.quantized) == len(OTHERS) + len(EXPERTS)
    done = convert_checkpoint(source, tmp_path / "some", "mxfp6", ignore=[r"1\..*experts.*down"])
    assert len(done.quantized) == len(OTHERS)
    whys = [why for name, why in done.left.items() if "experts" in name]
    assert sorted(whys) == ["as asked"] * 2 + ["as others of the experts do"] * 6
    for scheme in ("mxfp8_e4m3", "nvfp4"):
        done = convert_checkpoint(source, tmp_path / scheme, scheme)
        assert len(done.quantized) == len(OTHERS)
        whys = [why for name, why in done.left.items() if "experts" in name]
        assert set(whys) == {f"as transformers loads no experts of {scheme}"}
    for scheme in ("nvfp4", "mxfp8"):
        new = str(tmp_path / f"{scheme}-experts")
        assert main(["convert", source, new, "--scheme", scheme, "--experts"]) == 0
        config = json.loads((Path(new) / "config.json").read_text())
        assert not any("expert" in name for name in config["quantization_config"]["ignore"])


@pytest.mark.parametrize(
    ("scheme", "ignore"),
    mostly_slow(
        [
            pytest.param("mxfp4", []),
            pytest.param("mxfp4", ["experts"]),
            pytest.param("mxfp6_e2m3", []),
            pytest.param("mxfp8_e4m3", []),
            pytest.param("nvfp4", []),
        ],
        "mxfp4",
    ),
)
def test_a_mixture_of_experts_is_loaded(scheme: str, ignore: list[str], tmp_path: Path) -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    pytest.importorskip("compressed_tensors", reason="compressed-tensors is not installed")
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    torch.manual_seed(0)
    sizes = {"hidden_size": HIDDEN, "intermediate_size": INNER, "vocab_size": VOCABULARY}
    heads = {"num_attention_heads": HEADS, "num_key_value_heads": 2, "head_dim": HIDDEN // HEADS}
    experts = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32}
    config = transformers.Qwen3MoeConfig(num_hidden_layers=2, **sizes, **heads, **experts)
    model = transformers.Qwen3MoeForCausalLM(config).to(torch.bfloat16)
    source, target, same = (tmp_path / name for name in ("old", "new", "same"))
    model.save_pretrained(source)
    done = convert_checkpoint(source, target, scheme, ignore=ignore)
    joined = scheme in ("mxfp4", "mxfp6_e2m3") and not ignore
    assert any("experts" in name for name in done.quantized) is joined
    old, new = read_checkpoint(source), read_checkpoint(target)
    decoded = {name: old[name] for name in old}
    for module in done.quantized:
        q = stored(new, module, scheme)
        decoded[f"{module}.weight"] = mxkern.dequantize(q, dtype="bfloat16")
    same.mkdir()
    save_file(decoded, same / "model.safetensors", metadata={"format": "pt"})
    (same / "config.json").write_text((source / "config.json").read_text())
    load = transformers.AutoModelForCausalLM.from_pretrained
    tokens = torch.arange(24).reshape(2, 12) * 2 % VOCABULARY
    with torch.no_grad():
        got, exact = (load(f, dtype=torch.bfloat16)(tokens).logits.float() for f in (target, same))
    assert (got - exact).norm() / exact.norm() < 0.01
