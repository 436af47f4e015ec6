# tests/python/checkpoints/test_convert.py: checkpoints with quantized weights, read back and, where
# they are installed, loaded by transformers and compressed-tensors.
from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from checkpoint_folder import CODES, read_checkpoint, stored, write_checkpoint
from safetensors.numpy import save_file

import mxkern
from mxkern.checkpoints.convert import convert_checkpoint
from mxkern.cli.main import main
from mxkern.files.safetensors import read_safetensors
from support import mostly_slow

HIDDEN, INNER, HEADS, VOCABULARY = 64, 96, 4, 50
CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": HIDDEN,
    "intermediate_size": INNER,
    "num_hidden_layers": 2,
    "num_attention_heads": HEADS,
    "num_key_value_heads": 2,
    "vocab_size": VOCABULARY,
    "max_position_embeddings": 32,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
}
LINEAR = {
    "self_attn.q_proj": (HIDDEN, HIDDEN),
    "self_attn.k_proj": (HIDDEN // 2, HIDDEN),
    "self_attn.v_proj": (HIDDEN // 2, HIDDEN),
    "self_attn.o_proj": (HIDDEN, HIDDEN),
    "mlp.gate_proj": (INNER, HIDDEN),
    "mlp.up_proj": (INNER, HIDDEN),
    "mlp.down_proj": (HIDDEN, INNER),
}
SCHEMES = ["nvfp4", "mxfp4", "mxfp6_e2m3", "mxfp8_e4m3"]


def weights() -> dict[str, np.ndarray]:
    generator = np.random.default_rng(0)

    def normal(*shape: int) -> np.ndarray:
        scale = np.float32(shape[-1] ** -0.5)
        return (generator.standard_normal(shape, np.float32) * scale).astype(ml_dtypes.bfloat16)

    tensors = {"model.embed_tokens.weight": normal(VOCABULARY, HIDDEN) * np.float32(HIDDEN**0.5)}
    for layer in range(2):
        name = f"model.layers.{layer}."
        for i, (module, shape) in enumerate(LINEAR.items()):
            tensors[f"{name}{module}.weight"] = normal(*shape) * np.float32(0.5 + i / 8)
        for norm in ("input_layernorm", "post_attention_layernorm"):
            tensors[f"{name}{norm}.weight"] = np.ones(HIDDEN, ml_dtypes.bfloat16)
    tensors["model.norm.weight"] = np.ones(HIDDEN, ml_dtypes.bfloat16)
    tensors["lm_head.weight"] = normal(VOCABULARY, HIDDEN)
    return {name: array.astype(ml_dtypes.bfloat16) for name, array in tensors.items()}


WEIGHTS = weights()


def checkpoint(folder: Path, tensors: dict[str, np.ndarray] = WEIGHTS, files: int = 1) -> str:
    return write_checkpoint(folder, CONFIG, tensors, files)


def together(module: str) -> list[str]:
    """The layers that share a tensor scale with it."""
    for names in (("q_proj", "k_proj", "v_proj"), ("gate_proj", "up_proj")):
        head, _, last = module.rpartition(".")
        if last in names:
            return [f"{head}.{name}" for name in names]
    return [module]


@pytest.mark.parametrize("files", [1, 3])
@pytest.mark.parametrize("scheme", SCHEMES)
def test_every_tensor(scheme: str, files: int, tmp_path: Path) -> None:
    source, target = checkpoint(tmp_path / "old", files=files), tmp_path / "new"
    done = convert_checkpoint(source, target, scheme)
    modules = [f"model.layers.{i}.{module}" for i in range(2) for module in LINEAR]
    assert done.quantized == sorted(modules)
    assert set(done.left) == {"model.embed_tokens", "lm_head"}
    model = read_checkpoint(target, files)
    if files > 1:
        size = sum(model[name].nbytes for name in model)
        assert model.metadata["total_size"] == size == done.bytes_after
        for name in WEIGHTS:  # in the file that it was in
            own = name.replace("weight", CODES.get(scheme, "weight_packed"))
            if own in model and name.removesuffix(".weight") in modules:
                old = read_checkpoint(Path(source), files)
                assert model.file_names[own] == old.file_names[name]
    for name, array in WEIGHTS.items():
        module = name.removesuffix(".weight")
        if module not in modules:
            assert model[name].dtype == array.dtype and model[name].tobytes() == array.tobytes()
            continue
        options = {}
        if scheme == "nvfp4":
            shared = [WEIGHTS[f"{other}.weight"] for other in together(module)]
            options["amax"] = float(max(np.abs(w.astype(np.float32)).max() for w in shared))
        want, got = mxkern.quantize(array, scheme, **options), stored(model, module, scheme)
        assert got.codes.tobytes() == want.codes.tobytes()
        assert got.scales.tobytes() == want.scales.tobytes()
        if scheme == "nvfp4":
            assert np.isclose(got.tensor_scale, want.tensor_scale, rtol=2**-22)
    assert not list(target.glob("*.unfinished"))


def test_what_lies_beside_it(tmp_path: Path) -> None:
    source = checkpoint(tmp_path / "old")
    os.mkdir(Path(source) / "folder")
    done = convert_checkpoint(source, tmp_path / "new", "mxfp4")
    assert (tmp_path / "new" / "tokenizer.json").read_text() == "{}"
    assert done.not_copied == ["folder", "pytorch_model.bin"]
    config = json.loads((tmp_path / "new" / "config.json").read_text())
    own = config.pop("quantization_config")
    assert config == CONFIG
    assert own["format"] == "mxfp4-pack-quantized"
    assert own["ignore"] == ["lm_head", "model.embed_tokens", r"re:(.*\.)?(lm_head|decoder)$"]
    assert own["config_groups"]["group_0"]["weights"]["num_bits"] == 4
    assert read_safetensors(tmp_path / "new" / "model.safetensors").metadata == {"format": "pt"}


def test_what_stays_as_it_is(tmp_path: Path) -> None:
    odd = {
        "a.mlp.gate.weight": np.ones((8, 64), np.float32),
        "a.experts.weight": np.ones((2, 64, 64), np.float32),
        "a.stack": np.ones((2, 64, 64), np.float16),
        "a.short.weight": np.ones((8, 40), np.float32),
        "a.bytes.weight": np.ones((8, 64), np.uint8),
        "a.down.weight": np.ones((8, 64), np.float32),
        "a.down.bias": np.ones((8, 64), np.float32),
        "a.up.weight": np.full((8, 64), 0.5, np.float16),
    }
    source = checkpoint(tmp_path / "old", odd)
    done = convert_checkpoint(source, tmp_path / "new", "mxfp8", ignore=[r"\.up$"])
    assert done.quantized == ["a.down"]
    assert set(done.left) == {"a.mlp.gate", "a.short", "a.bytes", "a.up", "a.experts", "a.stack"}
    assert done.left["a.stack"] == "as they are stacks of matrices"
    assert "multiples of 32: a.short" in str(done) and "as asked: a.up" in str(done)
    new = read_safetensors(tmp_path / "new" / "model.safetensors")
    for name in odd.keys() - {"a.down.weight"}:
        assert new[name].tobytes() == odd[name].tobytes()
    assert new["a.down.weight"].dtype == ml_dtypes.float8_e4m3fn
    config = json.loads((tmp_path / "new" / "config.json").read_text())
    ignored = config["quantization_config"]["ignore"]
    assert {"lm_head", *done.left} <= set(ignored[:-1])
    # The file may be of a model without its head: its layers have another prefix beside one.
    prefix = re.compile(r"(model|transformer)\.")
    assert {prefix.sub("", name) for name in ignored[:-1]} == {"lm_head", *done.left}


def test_refused(tmp_path: Path) -> None:
    source = checkpoint(tmp_path / "old")
    target = str(tmp_path / "new")

    def call(message: str, folder: str = source, scheme: str = "mxfp4", **options: Any) -> None:
        with pytest.raises(ValueError, match=message):
            convert_checkpoint(folder, target, scheme, **options)
        assert not os.path.exists(target)

    call("scheme is mxint8; expected one of mxfp8_e4m3, ", scheme="mxint8")
    call("did you mean", scheme="nvfp")
    call("scale_rule", scale_rule="up")
    call("is no regular expression", ignore=["("])
    call("no matrix is left", ignore=["."])
    call("activations is mxfp8_e4m3; expected mxfp4 or None beside", activations="mxfp8")
    call("expected None beside weights of nvfp4: its", scheme="nvfp4", activations="nvfp4")
    call("activations is .*did you mean", activations="mxfp")
    call(r"ignore is 'experts'; expected a sequence, \['experts'\]", ignore="experts")
    config = Path(source) / "config.json"
    config.write_text(json.dumps(CONFIG | {"model_type": "gpt2"}))
    call(r"layers keep their weights as \[K, N\]")
    config.write_text(json.dumps(CONFIG | {"quantization_config": {}}))
    call("the model is quantized")
    config.write_text(json.dumps(CONFIG | {"text_config": {"quantization_config": {}}}))
    call("the model is quantized")
    config.write_text("[]")
    call("a JSON list")
    config.write_text(json.dumps(CONFIG))
    whole = (Path(source) / "model.safetensors").read_bytes()
    (Path(source) / "model.safetensors").write_bytes(whole[:-1])
    call("the file is damaged")
    (Path(source) / "model.safetensors").write_bytes(whole)
    with pytest.raises(ValueError, match="it is not empty"):
        convert_checkpoint(source, source, "mxfp4")
    with pytest.raises(FileNotFoundError):
        convert_checkpoint(str(tmp_path), target, "mxfp4")


def test_names_of_quantized_models(tmp_path: Path) -> None:
    for i, name in enumerate(("a.weight_scale", "a.weight_packed", "experts.down_proj_blocks")):
        tensors = {"a.weight": np.ones((8, 64), np.float32), name: np.ones((8, 2), np.uint8)}
        source = checkpoint(tmp_path / f"old{i}", tensors)
        with pytest.raises(ValueError, match=f"tensor '{name}' is there: the model is quantized"):
            convert_checkpoint(source, tmp_path / "new", "mxfp4")
    assert not (tmp_path / "new").exists()


def test_nothing_is_left_where_no_file_is_finished(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    source, target = checkpoint(tmp_path / "old"), tmp_path / "new"
    (tmp_path / "empty").mkdir()
    quantize, calls = mxkern.quantize, []

    def fail_later(*arguments: Any, **options: Any) -> Any:
        calls.append(arguments)
        if len(calls) > 10:
            raise OSError(28, "No space left on device")
        return quantize(*arguments, **options)

    monkeypatch.setattr(mxkern.functions, "quantize", fail_later)
    for folder in (target, tmp_path / "empty"):
        calls.clear()
        assert main(["convert", source, str(folder), "--scheme", "mxfp4"]) == 1
        said = capsys.readouterr().err
        assert f"{folder}" in said and "safetensors: No space left on device" in said
    assert not target.exists() and not list((tmp_path / "empty").iterdir())


def test_towers_and_heads(tmp_path: Path) -> None:
    """What programs may know by other names is ignored by patterns."""
    more = {
        "visual.blocks.0.attn.qkv.weight": np.ones((8, 64), np.float32),
        "shared.weight": np.ones((8, 64), np.float32),
        "cls.predictions.decoder.weight": np.ones((8, 64), np.float32),
    }
    done = convert_checkpoint(
        checkpoint(tmp_path / "old", WEIGHTS | more), tmp_path / "new", "mxfp8"
    )
    assert {name.removesuffix(".weight") for name in more} <= set(done.left)
    config = json.loads((tmp_path / "new" / "config.json").read_text())
    patterns = [name[3:] for name in config["quantization_config"]["ignore"] if name[:3] == "re:"]
    assert len(patterns) == 2
    for name, ignored in {
        "model.visual.blocks.0.attn.qkv": True,
        "visual.merger": True,
        "model.vision_tower.encoder.layers.3.fc1": True,
        "lm_head": True,
        "cls.predictions.decoder": True,
        "model.decoder.layers.0.fc1": False,
        "model.supervisual.fc": False,
    }.items():
        assert any(re.match(pattern, name) for pattern in patterns) is ignored, name


def test_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source, target = checkpoint(tmp_path / "old"), str(tmp_path / "new")
    assert main(["convert", source, target, "--scheme", "nvfp4", "--ignore", "o_proj"]) == 0
    said = capsys.readouterr().out
    assert said.startswith("12 of 16 weights quantized to nvfp4; 0.1 MB of tensors are 0.1 MB\n")
    assert "left as they are, as asked: model.layers.0.self_attn.o_proj" in said
    config = json.loads((tmp_path / "new" / "config.json").read_text())
    group = config["quantization_config"]["config_groups"]["group_0"]
    assert group["input_activations"] is None
    new = str(tmp_path / "inputs")
    assert main(["convert", source, new, "--scheme", "mxfp6", "--activations", "mxfp8"]) == 0
    config = json.loads((tmp_path / "inputs" / "config.json").read_text())
    group = config["quantization_config"]["config_groups"]["group_0"]
    assert (group["weights"]["num_bits"], group["weights"]["dynamic"]) == (6, False)
    inputs = group["input_activations"]
    assert (inputs["num_bits"], inputs["group_size"], inputs["dynamic"]) == (8, 32, True)
    capsys.readouterr()
    assert main(["convert", source, target, "--scheme", "nvfp4"]) == 1
    assert "it is not empty; expected a folder to make" in capsys.readouterr().err


@pytest.mark.parametrize("scheme", SCHEMES)
def test_what_is_not_finite_is_counted(scheme: str, tmp_path: Path) -> None:
    broken = {name: array.copy() for name, array in WEIGHTS.items()}
    first, second = "model.layers.0.self_attn.q_proj", "model.layers.1.mlp.down_proj"
    broken[f"{first}.weight"][3, 40] = np.nan
    broken[f"{second}.weight"][[0, 5], [0, 95]] = np.inf, -np.inf
    broken["lm_head.weight"][0, 0] = np.nan  # stays as it is
    source = checkpoint(tmp_path / "old", broken)
    done = convert_checkpoint(source, tmp_path / "new", scheme)
    assert done.poisoned == {first: 1, second: 2}
    line = "blocks that are NaN now, with NaN or infinity in them: 3, in "
    assert f"{line}{first}, {second}" in str(done).splitlines()
    decoded = mxkern.dequantize(stored(read_checkpoint(tmp_path / "new"), first, scheme))
    block = mxkern.schemes[scheme].block
    begin = 40 // block * block
    assert np.isnan(decoded[3, begin : begin + block]).all() and np.isnan(decoded).sum() == block
    fine = convert_checkpoint(checkpoint(tmp_path / "fine"), tmp_path / "fine new", scheme)
    assert fine.poisoned == {} and "NaN" not in str(fine)


MOST = {"nvfp4": 0.2, "mxfp4": 0.25, "mxfp6": 0.1, "mxfp8": 0.06}  # that logits may be off


@pytest.mark.parametrize("scheme", mostly_slow(MOST, "nvfp4"))
@pytest.mark.parametrize("files", mostly_slow([1, 3], "3"))
def test_loaded_by_transformers(scheme: str, files: int, tmp_path: Path) -> None:
    """Its logits are those of the weights that are stored, and near those of the model."""
    torch = pytest.importorskip("torch", reason="torch is not installed")
    pytest.importorskip("compressed_tensors", reason="compressed-tensors is not installed")
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    load = transformers.AutoModelForCausalLM.from_pretrained
    source, target = checkpoint(tmp_path / "old", files=files), str(tmp_path / "new")
    convert_checkpoint(source, target, scheme)
    decoded = dict(WEIGHTS)
    file = read_checkpoint(tmp_path / "new", files)
    for name in WEIGHTS:
        module = name.removesuffix(".weight")
        if any(module.endswith(own) for own in LINEAR):
            q = stored(file, module, mxkern.schemes[scheme].name)
            decoded[name] = mxkern.dequantize(q, dtype="bfloat16")
    same = checkpoint(tmp_path / "decoded", decoded)
    tokens = torch.arange(24).reshape(2, 12) * 2 % VOCABULARY
    with torch.no_grad():
        got, exact, near = (
            load(folder, dtype=torch.bfloat16)(tokens).logits.float()
            for folder in (target, same, source)
        )
    assert (got - exact).norm() / exact.norm() < 0.01
    error = float((got - near).norm() / near.norm())
    assert 0.001 < error < MOST[scheme], error


@pytest.mark.parametrize("scheme", mostly_slow(["mxfp8", "mxfp6", "mxfp4"], "mxfp8"))
def test_activations_as_they_come(scheme: str, tmp_path: Path) -> None:
    """Programs quantize what layers get as fake_quantize does."""
    torch = pytest.importorskip("torch", reason="torch is not installed")
    pytest.importorskip("compressed_tensors", reason="compressed-tensors is not installed")
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    source = checkpoint(tmp_path / "old")
    convert_checkpoint(source, tmp_path / "plain", scheme)
    inputs = "mxfp4" if scheme == "mxfp4" else "mxfp8"
    convert_checkpoint(source, tmp_path / "new", scheme, activations=inputs)
    tokens = torch.arange(24).reshape(2, 12) * 2 % VOCABULARY
    load = transformers.AutoModelForCausalLM.from_pretrained
    got, plain, same = (
        load(tmp_path / name, dtype=torch.bfloat16) for name in ("new", "plain", "plain")
    )
    rule = "even" if inputs == "mxfp4" else "rceil"  # what that package quantizes by

    def quantized(module: Any, arguments: Any) -> Any:
        return (mxkern.fake_quantize(arguments[0], inputs, scale_rule=rule),)

    for name, module in same.named_modules():
        if any(name.endswith(own) for own in LINEAR):
            module.register_forward_pre_hook(quantized)
    with torch.no_grad():
        got, plain, same = (model(tokens).logits.float() for model in (got, plain, same))
    assert (got - same).norm() / same.norm() < 0.01
    assert (got - plain).norm() / plain.norm() > 0.02


def test_a_tensor_in_two_files(tmp_path: Path) -> None:
    source = write_checkpoint(tmp_path / "model", CONFIG, weights(), files=2)
    name = "model.layers.0.self_attn.q_proj.weight"
    places = [
        path
        for path in sorted(Path(source).glob("*.safetensors"))
        if name in read_safetensors(path)
    ]
    (place,) = places
    (other,) = {*Path(source).glob("*.safetensors")} - {place}
    save_file({**read_safetensors(other), name: np.zeros((HIDDEN, HIDDEN), np.float32)}, other)
    with pytest.raises(ValueError, match=r"is in .* and in .*; expected it in one file") as caught:
        convert_checkpoint(source, tmp_path / "new", "mxfp4")
    assert all(part in str(caught.value) for part in (name, place.name, other.name))
    assert not (tmp_path / "new").exists()


def test_a_configuration_with_infinity(tmp_path: Path) -> None:
    config = {**CONFIG, "time_step_limit": [0.0, float("inf")]}
    source = write_checkpoint(tmp_path / "model", config, weights())
    convert_checkpoint(source, tmp_path / "new", "mxfp4")
    written = json.loads((tmp_path / "new" / "config.json").read_text())
    assert written["time_step_limit"] == [0.0, float("inf")]


@pytest.mark.parametrize("size", [1e-44, 1e-42, 1e-37, 1e-35, 0.0])
def test_tiny_weights_have_a_finite_tensor_scale(tmp_path: Path, size: float) -> None:
    tensors = weights()
    name = "model.layers.0.self_attn.o_proj"
    tiny = np.full((HIDDEN, HIDDEN), np.float32(size))
    tensors[f"{name}.weight"] = tiny
    source = write_checkpoint(tmp_path / "model", CONFIG, tensors)
    with np.errstate(all="raise"):
        convert_checkpoint(source, tmp_path / "new", "nvfp4")
    file = read_checkpoint(tmp_path / "new")
    assert 0 < file[f"{name}.weight_global_scale"][0] <= 2.0**126
    values = mxkern.dequantize(stored(file, name, "nvfp4"))
    # A block's scale has three bits of mantissa from 2^-6 of the tensor scale on.
    allowed = 0.07 * size if size >= 1e-37 or size == 0 else 2.0**-126
    assert np.abs(values - tiny).max() <= allowed
