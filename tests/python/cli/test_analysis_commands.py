# tests/python/cli/test_analysis_commands.py: `mxkern table`, `mxkern analyze` and the threshold of
# `mxkern compare`.
from __future__ import annotations

import csv
import re
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

import mxkern
from mxkern.analysis import save_plot
from mxkern.cli.main import main
from safetensors_files import write_safetensors

Capture = pytest.CaptureFixture[str]
X = np.random.default_rng(0).standard_normal((8, 100)).astype(np.float32)


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    tensors = {"a.weight": X, "a.weight_2": X[:4].astype(ml_dtypes.bfloat16), "a.bias": X[0]}
    return str(write_safetensors(tmp_path / "model.safetensors", tensors))


def assert_one_line_error(capsys: Capture, pattern: str) -> None:
    out, err = capsys.readouterr()
    assert out == "" and err.count("\n") == 1, err
    assert re.match(rf"mxkern: error: .*{pattern}", err), err


def test_table_prints_the_codes(capsys: Capture) -> None:
    for name in ("e3m2", "mxfp4", "int8"):
        assert main(["table", name]) == 0
        assert capsys.readouterr().out == f"{mxkern.table(name)}\n"
    assert main(["table", "e9m9"]) == 1
    assert_one_line_error(capsys, r"table: format is 'e9m9'; expected 0 to 8 exponent bits")
    with pytest.raises(SystemExit):
        main(["table"])


def test_table_writes_a_picture_and_figures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    monkeypatch.chdir(tmp_path)
    assert main(["table", "e3m2", "--plot", "e3m2.svg", "--csv", "e3m2.csv"]) == 0
    assert capsys.readouterr().out.endswith("wrote e3m2.svg\nwrote e3m2.csv\n")
    assert Path("e3m2.svg").read_text().startswith("<?xml")
    with open("e3m2.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert rows[5] == {"code": "5", "bits": "0 001 01", "value": "0.3125"} and len(rows) == 64
    assert main(["table", "e3m2", "--plot", "same.svg", "--csv", "same.svg"]) == 1
    assert "--csv same.svg is what --plot writes" in capsys.readouterr().err


def test_analyze_prints_the_figures_of_a_tensor(model: str, capsys: Capture) -> None:
    for name, x in (("a.weight", X), ("a.bias", X[0])):
        assert main(["analyze", model, "--tensor", name, "--scheme", "nvfp4"]) == 0
        assert capsys.readouterr().out == f"{model}: {name}\n{mxkern.analyze(x, 'nvfp4')}\n"
    assert main(["analyze", model, "--tensor", "_2", "--scheme", "mxfp4", "--rule", "even"]) == 0
    bfloat16 = mxkern.analyze(X[:4].astype(ml_dtypes.bfloat16), "mxfp4", scale_rule="even")
    assert capsys.readouterr().out == f"{model}: a.weight_2\n{bfloat16}\n"


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_analyze_an_npy_file(dtype: type, tmp_path: Path, capsys: Capture) -> None:
    np.save(tmp_path / "x.npy", X.astype(dtype))
    assert main(["analyze", str(tmp_path / "x.npy"), "--scheme", "mxfp4"]) == 0
    out = capsys.readouterr().out.split("\n", 1)[1]
    assert out.split("\n", 1)[1] == str(mxkern.analyze(X, "mxfp4")).split("\n", 1)[1] + "\n"


def test_analyze_writes_the_figures_of_blocks(model: str, capsys: Capture) -> None:
    options = ["--tensor", "a.weight", "--scheme", "mxfp4", "--csv", "blocks.csv"]
    assert main(["analyze", model, *options]) == 0
    assert capsys.readouterr().out.endswith("wrote blocks.csv\n")
    with open("blocks.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    records = mxkern.analyze(X, "mxfp4").records
    assert len(rows) == len(records) == 8 * 4
    for row, record in zip(rows, records, strict=True):
        assert [np.float32(value) for value in row.values()] == [np.float32(v) for v in record]
    options[-1] = "no/blocks.csv"
    assert main(["analyze", model, *options]) == 1
    assert_one_line_error(capsys, r"no/blocks.csv: No such file")


def test_analyze_writes_a_picture(model: str) -> None:
    pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    options = ["--tensor", "a.weight", "--scheme", "mxfp4", "--plot", "blocks.png"]
    assert main(["analyze", model, *options]) == 0
    assert Path("blocks.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("options", "pattern"),
    [
        (["--scheme", "mxfp4"], r"--tensor is not given; expected the name of one of 2 tensors: a"),
        (["--scheme", "mxfp4", "--tensor", "weight"], r"--tensor 'weight'; expected .*a.weight_2"),
        (["--scheme", "mxfp4", "--tensor", "none"], r"no tensor name has a match"),
        (["--scheme", "mxfp5", "--tensor", "a.weight"], r"scheme is 'mxfp5'; .*did you mean"),
        (["--scheme", "nvfp4", "--rule", "even"], r"nvfp4 has one rule of its own"),
        (["--scheme", "mxfp4", "--rule", "evn"], r"scale_rule is 'evn'; .*did you mean 'even'"),
        (
            ["--scheme", "mxfp4", "--tensor", "a.bias", "--csv", "model.safetensors"],
            r"--csv model.safetensors is a file that is read",
        ),
    ],
)
def test_analyze_mistakes(options: list[str], pattern: str, model: str, capsys: Capture) -> None:
    before = Path(model).read_bytes()
    assert main(["analyze", model, *options]) == 1
    assert_one_line_error(capsys, pattern)
    assert Path(model).read_bytes() == before


def test_compare_says_which_scheme_each_tensor_bears(model: str, capsys: Capture) -> None:
    assert main(["compare", model, "--threshold", "25dB", "--rule", "rceil"]) == 0
    out = capsys.readouterr().out
    advice = mxkern.analysis.compare_tensors(model, rules=["rceil"]).advice(sqnr_db=25)
    assert out.endswith(f"\n\n{advice}\n") and "mxfp6_e2m3" in str(advice)
    assert main(["compare", model, "--threshold", "25"]) == 1
    assert_one_line_error(capsys, r"--threshold: relative_rmse is 25.0; expected more than 0")


def test_pictures_from_python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    monkeypatch.chdir(tmp_path)
    zeros = mxkern.analyze(np.zeros((2, 64), np.float32), "nvfp4")
    empty = mxkern.analyze(np.zeros((0, 64), np.float32), "mxfp4")
    np.save("x.npy", X)
    for result in (
        mxkern.compare(X),
        mxkern.analysis.compare_tensors("x.npy"),
        mxkern.analyze(X, "nvfp4"),
        zeros,
        empty,
        mxkern.table("e4m3"),
        mxkern.table("e8m0"),
        mxkern.table("int4"),
    ):
        save_plot(result, "out.png", title="costs $5 $")
        assert Path("out.png").read_bytes().startswith(b"\x89PNG")
        Path("out.png").unlink()
    with pytest.raises(TypeError, match=r"save_plot: result is a numpy.ndarray; expected what"):
        save_plot(X, "out.png")
    with pytest.raises(ValueError, match=r"save_plot: path out.jpq: expected a name that ends in"):
        save_plot(zeros, "out.jpq")
