# tests/python/checkpoints/test_dry_run.py: what a conversion says before it writes anything.
from __future__ import annotations

import collections
import errno
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from checkpoint_folder import write_checkpoint

from mxkern.checkpoints.convert import convert_checkpoint
from mxkern.cli.main import main

CONFIG = {"model_type": "llama"}
WEIGHTS = {
    f"model.layers.{i}.mlp.{name}.weight": np.ones((64, 64), np.float32)
    for i in range(2)
    for name in ("up_proj", "gate")
}
Usage = collections.namedtuple("Usage", "total used free")


@pytest.fixture
def source(tmp_path: Path) -> str:
    return write_checkpoint(tmp_path / "old", CONFIG, WEIGHTS, 2)


@pytest.mark.parametrize("scheme", ["nvfp4", "mxfp4", "mxfp6", "mxfp8"])
def test_a_dry_run_says_what_a_run_does(source: str, tmp_path: Path, scheme: str) -> None:
    target = tmp_path / "new"
    dry = convert_checkpoint(source, target, scheme, dry_run=True)
    assert not target.exists()
    done = convert_checkpoint(source, target, scheme)
    assert dry == done._replace(is_dry=True) and not done.is_dry
    sizes = {path.name: path.stat().st_size for path in target.iterdir()}
    del sizes["mxkern-convert.json"]
    assert sizes == dry.files


def test_what_the_command_prints(
    source: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = [source, str(tmp_path / "new"), "--dry-run", "--scheme"]
    assert main(["convert", *options, "mxfp6"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("2 of 4 weights would be quantized to mxfp6_e2m3; ")
    assert lines[1].startswith("left as they are, as they lose much or are no linear layers: ")
    assert lines[2] == "not copied: pytorch_model.bin"
    done = convert_checkpoint(source, tmp_path / "new", "mxfp6")
    files = [line.split() for line in lines[3:-2]]
    assert files == [[f"{size:,}", "bytes", name] for name, size in done.files.items()]
    assert lines[-2].split() == [f"{sum(done.files.values()):,}", "bytes", "in", "5", "files"]
    assert lines[-1] == (
        "loads with: transformers 5.23 and 5.24 with compressed-tensors 0.20; vLLM has no mxfp6"
    )
    assert main(["convert", *options, "mxfp4"]) == 1
    assert "there is a finished conversion in it" in capsys.readouterr().err
    assert main(["convert", *options, "mxfp4", "--force"]) == 0
    assert "would be quantized to mxfp4" in capsys.readouterr().out
    assert convert_checkpoint(source, tmp_path / "new", "mxfp6", resume=True) == done


def test_what_loads_experts(tmp_path: Path) -> None:
    tensors = {f"layers.0.mlp.experts.{i}.up_proj.weight": np.ones((64, 64), "f4") for i in (0, 1)}
    source = write_checkpoint(tmp_path / "old", {"model_type": "x"}, tensors)
    said = convert_checkpoint(source, tmp_path / "new", "nvfp4", experts=True, dry_run=True)
    assert said.loads_with.startswith("other programs than transformers 5.23")
    said = convert_checkpoint(source, tmp_path / "new", "mxfp4", dry_run=True)
    assert said.loads_with == "transformers 5.23 and 5.24 with compressed-tensors 0.20"


@pytest.mark.parametrize("dry_run", [False, True])
def test_room_is_asked_for_first(
    source: str, tmp_path: Path, dry_run: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    needed = sum(convert_checkpoint(source, tmp_path / "new", "mxfp4", dry_run=True).files.values())
    asked = []

    def usage(path: str) -> Any:
        asked.append(path)
        return Usage(10**12, 10**12, needed - 1)

    monkeypatch.setattr(shutil, "disk_usage", usage)
    deep = tmp_path / "not" / "yet" / "there"
    message = rf"0\.0 MB are needed and 0\.0 MB are free.*{deep}"
    with pytest.raises(OSError, match=message) as caught:
        convert_checkpoint(source, deep, "mxfp4", dry_run=dry_run)
    assert caught.value.errno == errno.ENOSPC
    assert not (tmp_path / "not").exists() and set(asked) <= {str(tmp_path), str(deep)}
    monkeypatch.setattr(shutil, "disk_usage", lambda path: Usage(10**12, 0, needed))
    convert_checkpoint(source, deep, "mxfp4")
    monkeypatch.setattr(shutil, "disk_usage", lambda path: Usage(10**12, 0, 1))
    # An earlier conversion makes room, and what is finished needs none.
    convert_checkpoint(source, deep, "mxfp4", force=True)
    convert_checkpoint(source, deep, "mxfp4", resume=True)
