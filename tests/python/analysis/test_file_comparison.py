# tests/python/analysis/test_file_comparison.py: what `mxkern compare` writes never takes the place
# of what it reads.
from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest

from mxkern.cli.main import main
from safetensors_files import write_safetensors

X = np.random.default_rng(0).standard_normal((64, 64)).astype(np.float32)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    np.save("x.npy", X)
    write_safetensors(tmp_path / "a.safetensors", {"a.weight": X})
    write_safetensors(tmp_path / "b.safetensors", {"b.weight": X})
    files = {"a.weight": "a.safetensors", "b.weight": "b.safetensors"}
    index = {"metadata": {}, "weight_map": files}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    os.link("x.npy", "hard.csv")
    os.symlink("b.safetensors", "soft.csv")
    return tmp_path


@pytest.mark.parametrize(
    ("read", "written"),
    [
        ("x.npy", "x.npy"),
        ("x.npy", "./x.npy"),
        ("x.npy", "hard.csv"),
        ("a.safetensors", "a.safetensors"),
        ("model.safetensors.index.json", "model.safetensors.index.json"),
        ("model.safetensors.index.json", "a.safetensors"),
        ("model.safetensors.index.json", "soft.csv"),
    ],
)
def test_files_that_are_read_are_left_alone(
    folder: Path, capsys: pytest.CaptureFixture[str], read: str, written: str
) -> None:
    before = {path: path.read_bytes() for path in folder.iterdir()}
    assert main(["compare", read, "--scheme", "mxint8", "--csv", written]) == 1
    assert f"--csv {written} is a file that is read" in capsys.readouterr().err
    assert {path: path.read_bytes() for path in folder.iterdir()} == before


def test_a_file_for_each_output(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    options = ["--scheme", "mxint8", "--plot", "same.png", "--csv"]
    for other in ("same.png", str(folder / "same.png")):
        assert main(["compare", "x.npy", *options, other]) == 1
        assert f"--csv {other} is what --plot writes" in capsys.readouterr().err
        assert not (folder / "same.png").exists()
    assert main(["compare", "x.npy", *options, "same.csv"]) == 0
    assert (folder / "same.png").exists()
    assert (folder / "same.csv").read_text().startswith("tensor,")
