# tests/python/checkpoints/test_memory.py: what a conversion takes of a process, memory and
# descriptors, and files that change while they are read.
from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from checkpoint_folder import write_checkpoint

import mxkern
from mxkern.checkpoints.convert import convert_checkpoint
from mxkern.cli.main import main
from mxkern.files.regular_file import FileMemoryError, RegularFile
from mxkern.files.safetensors_index import read_safetensors_index
from support import mostly_slow

MEGABYTE = 1 << 20
CONFIG = {"model_type": "llama"}


def sparse_model(folder: Path, shapes: dict[str, tuple[int, ...]], config: dict[str, Any]) -> str:
    """A model of zeros in bfloat16, which take no room on the disk."""
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config))
    header, end = {}, 0
    for name, shape in shapes.items():
        begin, end = end, end + 2 * int(np.prod(shape))
        header[name] = {"dtype": "BF16", "shape": list(shape), "data_offsets": [begin, end]}
    text = json.dumps(header).encode()
    with open(folder / "model.safetensors", "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        file.truncate(8 + len(text) + end)
    return str(folder)


LAYERS = {
    # 252 MB that are quantized, in one tensor of 200 and two that share nvfp4's tensor scale
    "model.layers.0.mlp.down_proj.weight": (4096, 25600),
    "model.layers.0.mlp.gate_proj.weight": (4096, 3328),
    "model.layers.0.mlp.up_proj.weight": (4096, 3328),
    # 210 MB that stay
    "model.embed_tokens.weight": (25600, 4096),
}
EXPERTS = {
    "model.layers.0.mlp.experts.gate_up_proj": (16, 2560, 2560),
    "model.layers.0.mlp.experts.down_proj": (16, 1280, 2560),
    "model.embed_tokens.weight": (25600, 2560),
}
PEAK = "import resource; print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024)"


def peak_of(*arguments: str) -> int:
    """Megabytes that a command had at most in memory, beyond those of its imports."""
    program = f"from mxkern.cli.main import main; assert main({list(arguments)}) == 0; {PEAK}"
    imports = f"import mxkern.checkpoints.convert, mxkern.analysis.file_comparison; {PEAK}"
    peaks = [
        int(
            subprocess.run(
                [sys.executable, "-c", text], capture_output=True, text=True, check=True
            ).stdout.split()[-1]
        )
        for text in (program, imports)
    ]
    return peaks[0] - peaks[1]


@pytest.mark.parametrize("scheme", mostly_slow(["nvfp4", "mxfp8"], "nvfp4"))
def test_memory_does_not_grow_with_the_model(scheme: str, tmp_path: Path) -> None:
    source = sparse_model(tmp_path / "old", LAYERS, CONFIG)
    peak = peak_of("convert", source, str(tmp_path / "new"), "--scheme", scheme)
    assert peak < 100, f"{peak} MB for a model of {sum(map(np.prod, LAYERS.values())) / 5e5} MB"


@pytest.mark.slow
def test_memory_of_experts(tmp_path: Path) -> None:
    source = sparse_model(tmp_path / "old", EXPERTS, {"model_type": "gpt_oss"})
    peak = peak_of("convert", source, str(tmp_path / "new"), "--scheme", "mxfp4")
    assert peak < 100, f"{peak} MB"


@pytest.mark.slow
def test_memory_of_a_comparison(tmp_path: Path) -> None:
    shapes = {"a.weight": (4096, 25600)}
    source = sparse_model(tmp_path / "old", shapes, CONFIG)
    peak = peak_of("compare", f"{source}/model.safetensors", "--scheme", "nvfp4")
    assert peak < 100, f"{peak} MB"


@pytest.mark.slow
def test_memory_of_an_analysis(tmp_path: Path) -> None:
    source = sparse_model(tmp_path / "old", {"a.weight": (4096, 25600)}, CONFIG)
    peak = peak_of("analyze", f"{source}/model.safetensors", "--scheme", "nvfp4")
    assert peak < 100, f"{peak} MB"


@pytest.mark.slow
def test_more_files_than_descriptors(tmp_path: Path) -> None:
    """A model in 300 files, where a process may open 64."""
    tensors = {f"layers.{i}.up_proj.weight": np.ones((8, 64), np.float32) for i in range(300)}
    source = write_checkpoint(tmp_path / "old", CONFIG, tensors, 300)
    index = f"{source}/model.safetensors.index.json"
    program = f"""
import resource
import numpy as np
from mxkern.cli.main import main
from mxkern.files.safetensors_index import read_safetensors_index
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
assert main(["convert", {source!r}, {str(tmp_path / "new")!r}, "--scheme", "mxfp4"]) == 0
assert main(["compare", {index!r}, "--scheme", "mxfp4"]) == 0
model = read_safetensors_index({index!r})
assert sum(float(model[name].sum()) for name in model) == 300 * 512
"""
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    assert "300 of 300 weights quantized" in ended.stdout


def truncating(path: Path, patch: pytest.MonkeyPatch) -> None:
    """Has a file lose its end when the first weight is quantized."""
    quantize = mxkern.quantize

    def truncate(*arguments: Any, **options: Any) -> Any:
        os.truncate(path, os.path.getsize(path) // 2)
        return quantize(*arguments, **options)

    patch.setattr(mxkern.functions, "quantize", truncate)


def test_a_file_that_shrinks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    tensors = {f"layers.{i}.up_proj.weight": np.ones((64, 64), np.float32) for i in range(9)}
    source = write_checkpoint(tmp_path / "old", CONFIG, tensors)
    truncating(Path(source) / "model.safetensors", monkeypatch)
    assert main(["convert", source, str(tmp_path / "new"), "--scheme", "mxfp4"]) == 1
    said = capsys.readouterr().err
    assert said == (
        f"mxkern: error: {source}/model.safetensors: it has changed while it was read; expected a "
        "file that stays as it is\n"
    )
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("name", ["model.safetensors", "x.npy"])
def test_a_file_that_shrinks_while_it_is_compared(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / name
    if name == "x.npy":
        np.save(path, np.ones((4096, 1024), np.float32))
    else:
        write_checkpoint(tmp_path / "old", CONFIG, {"a.weight": np.ones((4096, 1024), np.float32)})
        path = tmp_path / "old" / name
    from mxkern.analysis import comparison

    quantize = comparison.quantize

    def truncate(*arguments: Any, **options: Any) -> Any:
        os.truncate(path, 5000)
        return quantize(*arguments, **options)

    monkeypatch.setattr(comparison, "quantize", truncate)
    assert main(["compare", str(path), "--scheme", "mxfp4", "--rule", "even"]) == 1
    assert f"{path}: it has changed while it was read" in capsys.readouterr().err


def test_another_file_of_the_name(tmp_path: Path) -> None:
    path = tmp_path / "a.bin"
    path.write_bytes(b"0123456789")
    file = RegularFile(str(path))
    assert file.read(2, 3) == b"234"
    (tmp_path / "b.bin").write_bytes(b"0123456789")
    os.replace(tmp_path / "b.bin", path)
    with pytest.raises(ValueError, match=r"a.bin: it has changed while it was read"):
        file.read(2, 3)


def test_an_index_whose_files_change(tmp_path: Path) -> None:
    tensors = {name: np.full((8, 64), i, np.float32) for i, name in enumerate("abcd")}
    source = Path(write_checkpoint(tmp_path / "old", CONFIG, tensors, 2))
    model = read_safetensors_index(source / "model.safetensors.index.json")
    kept = model["a"]
    (source / "model-1.safetensors").write_bytes((source / "model-0.safetensors").read_bytes())
    with pytest.raises(ValueError, match=r"model-1.safetensors: it has changed"):
        model["b"]
    (source / "model-0.safetensors").unlink()
    assert np.array_equal(model["c"], tensors["c"]), "mapped, as another array of the file lives"
    assert np.array_equal(kept, tensors["a"])
    del kept
    with pytest.raises(FileNotFoundError, match=r"model-0.safetensors"):
        model["a"]


def test_too_little_memory(tmp_path: Path) -> None:
    """An error that names the file where memory cannot be had: no traceback."""
    source = sparse_model(tmp_path / "old", {"a.weight": (1, 1 << 30)}, CONFIG)
    path = f"{source}/model.safetensors"
    program = f"""
import resource, sys, mxkern.checkpoints.convert, mxkern.analysis.file_comparison
from mxkern.cli.main import main
import numpy as np
mxkern.quantize(np.ones((4096, 4096), np.float32), "mxfp4")  # threads have their stacks now
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + (1 << 28), used + (1 << 28)))
codes = [main(["convert", {source!r}, {str(tmp_path / "new")!r}, "--scheme", "mxfp4"])]
sys.exit(codes != [1])
"""
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    assert ended.stderr == f"mxkern: error: {path}: there is not enough memory for it\n"
    assert not (tmp_path / "new").exists()


def test_too_little_memory_of_anything_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    tensors = {"up_proj.weight": np.ones((8, 64), ml_dtypes.bfloat16)}
    source = write_checkpoint(tmp_path / "old", CONFIG, tensors)

    def fail(*arguments: Any, **options: Any) -> Any:
        raise MemoryError

    monkeypatch.setattr(mxkern.functions, "quantize", fail)
    with pytest.raises(FileMemoryError, match=r"new/model.safetensors: there is not enough memory"):
        convert_checkpoint(source, tmp_path / "new", "mxfp4")
    monkeypatch.setattr("mxkern.checkpoints.convert.read_source", fail)
    assert main(["convert", source, str(tmp_path / "new"), "--scheme", "mxfp4"]) == 1
    assert capsys.readouterr().err == "mxkern: error: there is not enough memory\n"
