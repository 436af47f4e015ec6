# tests/python/checkpoints/test_source.py: folders that somebody else made: what is refused, what is
# copied, and what to do where there is nothing to convert.
from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from checkpoint_folder import write_checkpoint

from mxkern.checkpoints.convert import convert_checkpoint
from mxkern.cli.main import main
from safetensors_files import write_safetensors

CONFIG = {"model_type": "llama", "torch_dtype": "bfloat16"}
WEIGHTS = {"model.layers.0.mlp.up_proj.weight": np.ones((32, 64), np.float32)}
WEIGHTS |= {"model.layers.1.mlp.up_proj.weight": np.ones((32, 64), np.float32)}


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return Path(write_checkpoint(tmp_path / "old", CONFIG, WEIGHTS))


def refused(source: Path | str, *parts: str, error: type[Exception] = ValueError) -> None:
    """By a message with these parts, and before anything is written."""
    target = Path(os.path.dirname(os.path.abspath(source))) / "refused"
    for options in ({}, {"dry_run": True}):
        with pytest.raises(error) as caught:
            convert_checkpoint(source, target, "mxfp4", **options)
        for part in parts:
            assert part in str(caught.value), str(caught.value)
        assert not target.exists()


def odd(path: Path, kind: str) -> None:
    """Puts something else in the place of a file."""
    if path.exists():
        path.unlink()
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    elif kind == "device":
        path.symlink_to("/dev/zero")
    elif kind == "outside":
        outside = path.parent.parent / f"outside-{path.name}"
        outside.write_text("{}")
        path.symlink_to(outside)
    elif kind == "above":
        path.symlink_to("..")
    elif kind == "loop":
        path.symlink_to(path.name)
    else:
        path.symlink_to("nothing")


ODD = {
    "pipe": (ValueError, "it is a pipe; expected a regular file"),
    "device": (ValueError, "it is a link to /dev/zero, which is not in the folder"),
    "outside": (ValueError, "which is not in the folder; expected what is in it; copy that"),
    "loop": (OSError, "symbolic links"),
    "dangling": (OSError, "No such file"),
}


@pytest.mark.parametrize("name", ["config.json", "model.safetensors", "tokenizer.json"])
@pytest.mark.parametrize("kind", ODD)
def test_what_is_no_file_of_the_folder(source: Path, name: str, kind: str) -> None:
    odd(source / name, kind)
    error, message = ODD[kind]
    refused(source, str(source / name), message, error=error)


@pytest.mark.parametrize("kind", ["pipe", "device", "outside"])
def test_an_index_and_its_files(tmp_path: Path, kind: str) -> None:
    _, message = ODD[kind]
    for i, name in enumerate(("model.safetensors.index.json", "model-1.safetensors")):
        source = Path(write_checkpoint(tmp_path / f"old{i}", CONFIG, WEIGHTS, 2))
        odd(source / name, kind)
        refused(source, str(source / name), message)


@pytest.mark.parametrize("name", ["config.json", "model.safetensors"])
def test_folders_in_the_place_of_files(source: Path, name: str) -> None:
    odd(source / name, "folder")
    with pytest.raises((ValueError, OSError), match=re.escape(str(source))):
        convert_checkpoint(source, source.parent / "new", "mxfp4")


def test_links_inside_the_folder(source: Path, tmp_path: Path) -> None:
    for name in ("config.json", "model.safetensors", "tokenizer.json"):
        (source / "kept").mkdir(exist_ok=True)
        (source / name).rename(source / "kept" / name)
        (source / name).symlink_to(Path("kept") / name)
    done = convert_checkpoint(source, tmp_path / "new", "mxfp4")
    assert not (tmp_path / "new" / "tokenizer.json").is_symlink()
    assert (tmp_path / "new" / "tokenizer.json").read_text() == "{}"
    assert "kept" in done.not_copied


def as_hub_cache(source: Path, cache: Path) -> Path:
    """As huggingface_hub keeps a model: links to blobs."""
    snapshot = cache / "models--org--name" / "snapshots" / "0123abcd"
    blobs = cache / "models--org--name" / "blobs"
    snapshot.mkdir(parents=True)
    blobs.mkdir()
    for i, path in enumerate(sorted(path for path in source.rglob("*") if path.is_file())):
        name = path.relative_to(source)
        (blobs / f"blob{i}").write_bytes(path.read_bytes())
        (snapshot / name).parent.mkdir(exist_ok=True)
        (snapshot / name).symlink_to(os.path.relpath(blobs / f"blob{i}", (snapshot / name).parent))
    return snapshot


def test_the_cache_of_the_hub(source: Path, tmp_path: Path) -> None:
    (source / "modules.json").write_text('[{"path": ""}, {"path": "1_Pooling"}]')
    (source / "1_Pooling").mkdir()
    (source / "1_Pooling" / "config.json").write_text('{"pool": 1}')
    snapshot = as_hub_cache(source, tmp_path / "cache")
    convert_checkpoint(source, tmp_path / "plain", "mxfp4")
    convert_checkpoint(snapshot, tmp_path / "new", "mxfp4")
    (tmp_path / "link").symlink_to(snapshot)
    convert_checkpoint(tmp_path / "link", tmp_path / "linked", "mxfp4")
    for name in ("model.safetensors", "config.json", "1_Pooling/config.json"):
        for other in ("new", "linked"):
            assert (tmp_path / other / name).read_bytes() == (
                tmp_path / "plain" / name
            ).read_bytes()
    odd(snapshot / "tokenizer.json", "outside")
    refused(snapshot, "tokenizer.json: it is a link to", "which is not in the folder")
    (snapshot / "tokenizer.json").unlink()
    (snapshot / "tokenizer.json").symlink_to("../../refs")
    refused(snapshot, "tokenizer.json", error=OSError)
    # Blobs beside a folder of another name are like all that is outside.
    (tmp_path / "blobs").mkdir()
    (tmp_path / "blobs" / "x").write_text("{}")
    (source / "tokenizer.json").unlink()
    (source / "tokenizer.json").symlink_to("../blobs/x")
    refused(source, "tokenizer.json: it is a link to", "which is not in the folder")


def test_json_of_any_size(source: Path) -> None:
    with open(source / "config.json", "wb") as file:
        file.truncate(1 << 40)
    refused(source, "config.json: it has 1099511627776 bytes; expected at most 16777216")


def test_subfolders_of_sentence_transformers(source: Path, tmp_path: Path) -> None:
    modules = [{"idx": 0, "path": ""}, {"path": "1_Pooling"}, {"path": "2_Dense/"}]
    modules += [{"path": "3_Normalize"}, {"path": "4_Router"}]
    (source / "modules.json").write_text(json.dumps(modules))
    for name in ("1_Pooling/config.json", "2_Dense/model.safetensors", "2_Dense/pytorch_model.bin"):
        (source / name).parent.mkdir(exist_ok=True)
        (source / name).write_text(name)
    (source / "4_Router" / "query" / "deep").mkdir(parents=True)
    (source / "4_Router" / "query" / "deep" / "config.json").write_text("deep")
    (source / "onnx").mkdir()
    (source / "onnx" / "model.onnx").write_text("another form")
    (source / "additional_chat_templates").mkdir()
    (source / "additional_chat_templates" / "tools.jinja").write_text("template")
    done = convert_checkpoint(source, tmp_path / "new", "mxfp4")
    assert done.not_copied == ["onnx", "pytorch_model.bin"]
    new = {
        str(p.relative_to(tmp_path / "new")) for p in (tmp_path / "new").rglob("*") if p.is_file()
    }
    assert {name for name in new if "/" in name} == {
        "1_Pooling/config.json",
        "2_Dense/model.safetensors",
        "2_Dense/pytorch_model.bin",
        "4_Router/query/deep/config.json",
        "additional_chat_templates/tools.jinja",
    }
    assert (tmp_path / "new" / "2_Dense" / "model.safetensors").read_text() == (
        "2_Dense/model.safetensors"
    )
    assert set(done.files) | {"mxkern-convert.json"} == new
    convert_checkpoint(source, tmp_path / "new", "mxfp8", force=True)
    for odd_kind in ("pipe", "device"):
        odd(source / "1_Pooling" / "config.json", odd_kind)
        refused(source, "1_Pooling/config.json", ODD[odd_kind][1])


def test_voices_of_bark(source: Path, tmp_path: Path) -> None:
    voices = {"repo_or_path": "suno/bark", "v2/en_0": {"semantic_prompt": "voices/v2/en_0.npy"}}
    (source / "speaker_embeddings_path.json").write_text(json.dumps(voices))
    (source / "voices" / "v2").mkdir(parents=True)
    (source / "voices" / "v2" / "en_0.npy").write_bytes(b"voice")
    convert_checkpoint(source, tmp_path / "new", "mxfp4")
    assert (tmp_path / "new" / "voices" / "v2" / "en_0.npy").read_bytes() == b"voice"


@pytest.mark.parametrize("path", ["..", "../other", "/etc", "a/../..", "a//b", "a\0b", "./a"])
def test_subfolders_elsewhere(source: Path, path: str) -> None:
    (source / "modules.json").write_text(json.dumps([{"path": path}]))
    refused(source, "modules.json: it names the folder", "expected one in the model's folder")


def test_a_subfolder_that_is_a_link(source: Path, tmp_path: Path) -> None:
    (source / "modules.json").write_text('[{"path": "1_Pooling"}]')
    (source / "1_Pooling").symlink_to("/")
    refused(source, "1_Pooling: it is a link to /, which is not in the folder")
    (source / "1_Pooling").unlink()
    (source / "1_Pooling").symlink_to(".")
    refused(source, "1_Pooling/1_Pooling: it is a folder; expected a regular file")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{}", "it is a JSON dict; expected a JSON list of modules"),
        ("[", "it is no valid JSON"),
        ("[" * 100_000, "it is JSON nested too deeply"),
    ],
)
def test_modules_that_are_none(source: Path, text: str, message: str) -> None:
    (source / "modules.json").write_text(text)
    refused(source, "modules.json: ", message)


def only(source: Path, name: str) -> None:
    """Has no weights but in that file."""
    for path in source.glob("*model*"):
        path.unlink()
    (source / name).write_bytes(b"weights")


@pytest.mark.parametrize(
    ("name", "way_out"),
    [
        ("pytorch_model.bin", "AutoModelForCausalLM.from_pretrained('{}').save_pretrained('NEW')"),
        ("model.gguf", "from_pretrained('{}', gguf_file='model.gguf').save_pretrained('NEW')"),
        ("adapter_model.safetensors", "merge the adapter into its model first"),
        ("consolidated.safetensors", "but neither model.safetensors nor model.safetensors.index"),
        ("tf_model.h5", "from_pretrained('{}').save_pretrained"),
    ],
)
def test_weights_in_another_form(source: Path, name: str, way_out: str) -> None:
    only(source, name)
    refused(source, str(source), f"there is {name!r}, but neither", way_out.format(source))
    (source / "config.json").unlink()
    refused(source, f"there is {name!r}, but neither")


def test_sources_that_are_no_folders(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(source.parent)
    refused("org/some-model.v2", "run: hf download org/some-model.v2 --local-dir some-model.v2")
    refused("no-such-folder", "no-such-folder", error=FileNotFoundError)
    refused("a/b/c", "a/b/c", error=FileNotFoundError)
    refused(source / "model.safetensors", "it is no folder", "pass the folder that it is in")
    only(source, "model.gguf")
    refused("old/model.gguf", "from_pretrained('old', gguf_file='model.gguf')")
    (source / "model.gguf").unlink()
    refused(source, "there is neither model.safetensors nor", error=FileNotFoundError)


@pytest.mark.parametrize("dtype", [ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2])
@pytest.mark.parametrize("scale", [None, "weight_scale_inv"])
def test_floats_of_eight_bits(source: Path, dtype: Any, scale: str | None) -> None:
    module = "model.layers.1.mlp.up_proj"
    tensors = {**WEIGHTS, f"{module}.weight": np.ones((32, 64), np.float32).astype(dtype)}
    if scale is not None:
        tensors[f"{module}.{scale}"] = np.ones((1, 1), np.float32)
    data = {
        name: array.view(np.uint8) if array.itemsize == 1 else array
        for name, array in tensors.items()
    }
    path = source / "model.safetensors"
    write_safetensors(path, data)
    name = "F8_E5M2" if dtype == ml_dtypes.float8_e5m2 else "F8_E4M3"
    text = path.read_bytes()
    size = int.from_bytes(text[:8], "little")
    header = json.loads(text[8 : 8 + size])
    header[f"{module}.weight"]["dtype"] = name
    new = json.dumps(header).encode()
    path.write_bytes(len(new).to_bytes(8, "little") + new + text[8 + size :])
    if scale is None:
        refused(source, f"{module}.weight' is {name}, and config.json says nothing", "bfloat16')")
    refused(
        source, "convert the one that it was made of" if scale else "the model that it was made"
    )


def test_the_command_says_it_in_one_line(source: Path, capsys: pytest.CaptureFixture[str]) -> None:
    odd(source / "config.json", "pipe")
    assert main(["convert", str(source), str(source.parent / "new"), "--scheme", "mxfp4"]) == 1
    said = capsys.readouterr().err
    assert (
        said.startswith(f"mxkern: error: {source}/config.json: it is a pipe")
        and said.count("\n") == 1
    )
