# tests/python/checkpoints/test_transformers_names.py: the table of names agrees with the
# transformers that is installed, and which layers it makes the converter leave, ignore and warn of.
from __future__ import annotations

import importlib.util
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from checkpoint_folder import read_checkpoint, write_checkpoint

import mxkern
from mxkern.checkpoints.convert import Conversion, convert_checkpoint
from mxkern.checkpoints.transformers_names import TransformersNames

SCRIPT = Path(__file__).parents[3] / "tools" / "transformers_names.py"
TABLE = Path(mxkern.__file__).parent / "checkpoints" / "transformers_names.json"


@pytest.mark.slow
def test_the_table_is_that_of_the_installed_version() -> None:
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    pytest.importorskip("torch", reason="torch is not installed")
    table = json.loads(TABLE.read_text())
    if transformers.__version__ != table["transformers"]:
        pytest.skip(f"the table is of transformers {table['transformers']}")
    spec = importlib.util.spec_from_file_location("table_script", SCRIPT)
    assert spec is not None and spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    made = script.table()
    assert made.keys() == table.keys()
    for part in made:
        assert made[part] == table[part], f"{part} differs; run python tools/transformers_names.py"


def test_every_pattern_is_one() -> None:
    for entry in json.loads(TABLE.read_text())["renamings"]:
        for kind, pattern, to in entry["names"]:
            assert kind in ("name", "join", "weight", "split", "compute", "unknown")
            assert re.compile(pattern).groups >= len(re.findall(r"\\\d", to)), (pattern, to)


def test_names_stay_few() -> None:
    """Renamings of a model and of its parts follow one another; each may apply or not."""
    parts = {"vision_config": {"model_type": "clip_vision_model"}}
    parts |= {"audio_config": {"model_type": "qwen2_audio_encoder"}}
    name = "model.vision_tower.vision_model.encoder.layers.0.attention.attention.query.weight"
    for model_type in json.loads(TABLE.read_text())["types"]:
        text = {"text_config": {"model_type": f"{model_type}_text"}}
        found = names_of(model_type, **parts, **text).parameter(name).names
        assert len(found) == len(set(found)) < 200, (model_type, len(found))


def test_configurations_that_are_none_of_a_model(tmp_path: Path) -> None:
    tensors = {"model.layers.0.mlp.up_proj.weight": weight(64, 64)}
    odd: list[Any] = [["llama"], {"llama": 1}, None, 3]
    for i, model_type in enumerate(odd):
        source = write_checkpoint(tmp_path / f"{i}", {"model_type": model_type}, tensors)
        assert convert_checkpoint(source, tmp_path / f"new{i}", "mxfp4").quantized
    table = json.loads(TABLE.read_text())
    types = sorted(set(table["types"]) - set(table["refused"]))
    config = {"model_type": "x", "parts": [{"model_type": each} for each in types]}
    source = write_checkpoint(tmp_path / "all", config, tensors)
    with pytest.raises(ValueError, match=r"more than 1000 names, by the \d+ model types of"):
        convert_checkpoint(source, tmp_path / "new", "mxfp4")
    assert not (tmp_path / "new").exists()


def names_of(model_type: str, *tensors: str, **parts: Any) -> TransformersNames:
    return TransformersNames({"model_type": model_type, **parts}, tensors)


def test_names_of_loaded_models() -> None:
    gate = "model.layers.3.block_sparse_moe.gate"
    names = names_of("phimoe", f"{gate}.weight")
    assert names.modules(gate) == [gate, "model.layers.3.mlp.router"]
    assert names.loaded_modules(gate)[2:] == [
        "layers.3.block_sparse_moe.gate",
        "layers.3.mlp.router",
    ]
    expert = names.parameter("model.layers.3.block_sparse_moe.experts.7.w1.weight")
    assert expert.computed == "join" and "model.layers.3.mlp.experts.gate_up_proj" in expert.names
    q = "backbone.layers.0.mixer.q_proj"
    assert names_of("nemotron_h").modules(q) == [q, "model.layers.0.mixer.q_proj"]
    names = names_of("whisper")
    assert names.is_tied("proj_out") and "proj_out" in names.tied_heads()
    assert not names.is_tied("model.decoder.layers.0.fc1")
    names = names_of("t5")
    assert not names.is_linear("encoder.block.0.layer.0.SelfAttention.relative_attention_bias")
    assert names.is_linear("encoder.block.0.layer.0.SelfAttention.q")
    names = names_of("deepseek_v4")
    assert not names.renames_scales("head") and names.renames_scales("layers.0.attn.wq_a")
    # Of a part of the model, whose own names begin behind its prefix.
    names = names_of("llava", text_config={"model_type": "llama"})
    layer = "language_model.model.layers.0.mlp.up_proj"
    assert "model.language_model.layers.0.mlp.up_proj" in names.loaded_modules(layer)
    # Of a body alone, as part of a model with a head.
    layer = "encoder.layer.0.attention.self.query"
    assert names_of("bert", layer).loaded_modules(layer) == [layer, f"bert.{layer}"]
    assert not names_of("somebody's own").is_known


def weight(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).standard_normal(shape, np.float32)


def convert(
    tmp_path: Path,
    model_type: str,
    modules: dict[str, tuple[int, ...]],
    scheme: str,
    **options: Any,
) -> tuple[Conversion, dict[str, Any]]:
    """What converting such a model did, and its quantization_config."""
    tensors = {f"{name}.weight": weight(*shape) for name, shape in modules.items()}
    config = {"model_type": model_type}
    source = write_checkpoint(tmp_path / "old", config, tensors)
    done = convert_checkpoint(source, tmp_path / "new", scheme, **options)
    written = json.loads((tmp_path / "new" / "config.json").read_text())
    return done, written["quantization_config"]


def test_types_that_transformers_loads_in_no_such_form(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"type dinov2; expected another: .* mxkern\.quantize"):
        convert(tmp_path, "dinov2", {"encoder.layer.0.mlp.fc1": (64, 64)}, "mxfp4")
    assert not (tmp_path / "new").exists()


def test_ignore_has_every_spelling(tmp_path: Path) -> None:
    layers = {f"backbone.layers.0.mixer.{name}_proj": (64, 64) for name in "qkv"}
    done, config = convert(tmp_path, "nemotron_h", layers, "mxfp8", ignore=["^model.*q_proj"])
    assert done.left == {"backbone.layers.0.mixer.q_proj": "as asked"}
    assert {"backbone.layers.0.mixer.q_proj", "model.layers.0.mixer.q_proj"} <= {*config["ignore"]}
    assert not any("k_proj" in name for name in config["ignore"])
    assert done.apart == ["backbone.layers.0.mixer.q_proj"]
    assert "warning: programs that merge layers" in str(done)


def test_tied_heads_are_ignored(tmp_path: Path) -> None:
    _, config = convert(tmp_path, "whisper", {"model.decoder.layers.0.fc1": (64, 64)}, "mxfp8")
    assert "proj_out" in config["ignore"]


def test_what_norm_and_embed_exclude(tmp_path: Path) -> None:
    layers = {
        "transformer.blocks.0.norm_attn_norm.attn.Wqkv": (64, 64),
        "transformer.blocks.0.norm_attn_norm.norm_1": (64, 64),
        "transformer.embed.proj": (64, 64),
        "transformer.embed.0": (64, 64),
        "transformer.blocks.0.ffn.router.layer": (64, 64),
    }
    done, _ = convert(tmp_path, "dbrx", layers, "mxfp4")
    assert done.quantized == [
        "transformer.blocks.0.norm_attn_norm.attn.Wqkv",
        "transformer.embed.proj",
    ]


def test_towers_beside_a_model_and_alone(tmp_path: Path) -> None:
    text = "model.language_model.layers.0.mlp.up_proj"
    parts = ["audio_tower.layers.0.fc1", "multi_modal_projector.linear_1", "visual.blocks.0.fc1"]
    done, config = convert(tmp_path / "1", "x", dict.fromkeys([text, *parts], (64, 64)), "mxfp4")
    assert done.quantized == [text] and set(done.left) == set(parts)
    patterns = [name[3:] for name in config["ignore"] if name.startswith("re:")]
    assert any(re.match(pattern, "model.audio_tower.layers.0.fc1") for pattern in patterns)
    assert not any(re.match(pattern, text) for pattern in patterns)
    alone = "vision_model.encoder.layers.0.mlp.fc1"
    done, config = convert(tmp_path / "2", "siglip_vision_model", {alone: (64, 64)}, "mxfp4")
    assert done.quantized == [alone] and not any("vision" in name for name in config["ignore"])


def test_heads_are_named(tmp_path: Path) -> None:
    layers = {"model.layers.0.mlp.up_proj": (64, 64), "score": (64, 64)}
    done, _ = convert(tmp_path, "llama", layers, "mxfp4")
    assert done.heads == ["score"] and "heads that are quantized too: score" in str(done)


@pytest.mark.parametrize(
    "names",
    ["in_proj_qkv in_proj_z", "in_proj_b in_proj_a", "query key value", "wq wk wv", "w1 w3"],
)
def test_merged_layers_share_a_tensor_scale(names: str, tmp_path: Path) -> None:
    layers = {f"model.layers.0.x.{name}": (64, 64) for name in names.split()}
    tensors = {f"{name}.weight": weight(64, 64) * (i + 1) for i, name in enumerate(layers)}
    tensors["model.layers.0.x.other.weight"] = weight(64, 64) * 9
    source = write_checkpoint(tmp_path / "old", {"model_type": "x"}, tensors)
    convert_checkpoint(source, tmp_path / "new", "nvfp4")
    file = read_checkpoint(tmp_path / "new")
    scales = {float(file[f"{name}.weight_global_scale"][0]) for name in layers}
    want = 2688 / np.abs(weight(64, 64) * len(layers)).max()
    assert len(scales) == 1 and np.isclose(scales.pop(), want, rtol=1e-6)


@pytest.mark.parametrize("scheme", ["nvfp4", "mxfp4", "mxfp8_e4m3"])
@pytest.mark.parametrize("ignore", [[], [r"experts\.1\."]])
def test_stacks_become_layers(scheme: str, ignore: list[str], tmp_path: Path) -> None:
    experts = "model.layers.0.feed_forward.experts"
    tensors = {
        f"{experts}.gate_up_proj": weight(2, 64, 96),
        f"{experts}.down_proj": weight(2, 64, 64),
    }
    source = write_checkpoint(tmp_path / "old", {"model_type": "llama4_text"}, tensors)
    done = convert_checkpoint(source, tmp_path / "new", scheme, ignore=ignore)
    file = read_checkpoint(tmp_path / "new")
    assert not any(name in file for name in tensors)
    for expert in range(2):
        gate_up = tensors[f"{experts}.gate_up_proj"][expert].T
        parts = {"gate_proj": gate_up[:48], "up_proj": gate_up[48:]}
        parts["down_proj"] = tensors[f"{experts}.down_proj"][expert].T
        for name, matrix in parts.items():
            module = f"{experts}.{expert}.{name}"
            if ignore and expert == 1:
                assert np.array_equal(file[f"{module}.weight"], matrix) and module in done.left
                continue
            options = {}
            if scheme == "nvfp4":
                both = gate_up if name != "down_proj" else matrix
                options["amax"] = float(np.abs(both).max())
            q = mxkern.quantize(np.ascontiguousarray(matrix), scheme, **options)
            codes = file[f"{module}.{'weight' if scheme == 'mxfp8_e4m3' else 'weight_packed'}"]
            assert codes.tobytes() == q.codes.tobytes() and module in done.quantized
            assert file[f"{module}.weight_scale"].tobytes() == q.scales.tobytes()


def test_how_weights_are_decoded(tmp_path: Path) -> None:
    """Models are decoded when they are loaded, with quantized activations only where they must."""
    layers = {"model.layers.0.mlp.up_proj": (64, 64)}
    for i, (model_type, activations, decodes) in enumerate(
        [("llama", None, True), ("llama", "mxfp4", False), ("t5", "mxfp4", True)]
    ):
        _, config = convert(tmp_path / str(i), model_type, layers, "mxfp4", activations=activations)
        assert config.get("dequantize", False) is decodes
        inputs = config["config_groups"]["group_0"]["input_activations"]
        assert (inputs is not None) is (activations is not None)
