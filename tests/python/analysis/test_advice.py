# tests/python/analysis/test_advice.py: comparisons of many tensors, and which scheme each bears.
from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mxkern
from mxkern.analysis import Comparison, ModelComparison, compare_tensors
from mxkern.analysis.advice import Threshold, advise
from mxkern.analysis.comparison import CompareRecord, measure, select_cases
from safetensors_files import write_safetensors

SCHEMES = ["mxfp8", "mxfp6", "mxfp4", "nvfp4"]


def tensors() -> dict[str, Any]:
    rng = np.random.default_rng(0)
    poisoned = rng.standard_normal((4, 64)).astype(np.float32)
    poisoned[1, 1] = np.inf
    return {
        "normal": rng.standard_normal((16, 128)).astype(np.float32),
        "exact": np.full((8, 64), 3, np.float32),
        "heavy": (rng.standard_cauchy((16, 128)) ** 3).astype(np.float32),
        "poisoned": poisoned,
    }


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(write_safetensors(tmp_path / "model.safetensors", tensors()))


def record(scheme: str, bits: float, rmse: float, poisoned: float = 0.0) -> CompareRecord:
    decibels = -20 * math.log10(rmse) if rmse else math.inf
    return CompareRecord(scheme, "rceil", bits, decibels, rmse, 0.0, 0.0, 0.0, poisoned, 32)


def test_each_tensor_has_the_figures_of_compare(path: str) -> None:
    found = compare_tensors(path, schemes=SCHEMES, rules=["rceil", "even"])
    assert list(found) == list(tensors()) and len(found) == 4
    for name, x in tensors().items():
        wanted = mxkern.compare(x, SCHEMES, ["rceil", "even"])
        assert found[name] == wanted
    some = compare_tensors(path, pattern="normal|exact", schemes="mxfp4", rules="rceil")
    assert list(some) == ["normal", "exact"] and some.total[0].elements == 16 * 128 + 8 * 64
    assert str(some).startswith("2 tensors, 2,560 elements\nscheme")


def test_records_are_for_data_frames(path: str) -> None:
    found = compare_tensors(path, schemes=SCHEMES, rules=["rceil"])
    assert len(found.records) == 4 * 4
    assert {tuple(row) for row in found.records} == {
        ("tensor", *mxkern.compare(np.ones(32, "f4")).records[0])
    }
    assert json.dumps(found.records)
    assert found.records[0]["tensor"] == "normal"


@pytest.mark.parametrize("asked", [{"sqnr_db": 15}, {"relative_rmse": 10 ** (-15 / 20)}])
def test_the_narrowest_scheme_is_found(path: str, asked: dict[str, float]) -> None:
    found = compare_tensors(path, schemes=SCHEMES, rules=["rceil", "even"])
    advice = found.advice(**asked)  # type: ignore[arg-type]
    assert [one.tensor for one in advice] == list(tensors())
    for one in advice:
        met = [r for r in found[one.tensor] if r.sqnr_db >= 15 and r.poisoned == 0]
        if not met:
            assert one.scheme is None and one.tensor == "poisoned"
            continue
        narrowest = min(r.bits_per_element for r in met)
        assert one.bits_per_element == narrowest
        assert one.sqnr_db == max(r.sqnr_db for r in met if r.bits_per_element == narrowest)
        assert any(r.scheme == one.scheme and r.sqnr_db == one.sqnr_db for r in met)
    assert advice[0].scheme == "mxfp4" and advice[1].sqnr_db == math.inf


def test_the_table_and_the_sum(path: str) -> None:
    advice = compare_tensors(path, schemes=SCHEMES, rules=["rceil"]).advice(sqnr_db=25)
    lines = str(advice).splitlines()
    assert lines[0].split()[:2] == ["tensor", "scheme"] and len(lines) == 2 + 4 + 1
    assert lines[5].split()[:3] == ["poisoned", "none", "-"]
    sizes = {name: x.size for name, x in tensors().items()}
    bits = sum((one.bits_per_element if one.scheme else 16) * sizes[one.tensor] for one in advice)
    assert advice.bits_per_element == pytest.approx(bits / sum(sizes.values()))
    assert lines[-1].startswith("SQNR at least 25 dB: ") and "none 1" in lines[-1]
    assert lines[-1].endswith(", none as 16 bits")
    assert advice.records[0]["tensor"] == "normal"


def test_nothing_is_borne_where_the_error_is_too_large() -> None:
    comparisons = {"a": Comparison([record("mxfp8_e4m3", 8.25, 0.03), record("mxfp4", 4.25, 0.1)])}
    [one] = advise(comparisons, Threshold.of("test", sqnr_db=60))
    assert one.scheme is None and one.scale_rule is None and one.relative_rmse == 0.03


def test_poison_is_not_borne() -> None:
    comparisons = {"a": Comparison([record("mxfp4", 4.25, 0.01, 0.5), record("nvfp4", 4.5, 0.02)])}
    [one] = advise(comparisons, Threshold.of("test", relative_rmse=0.05))
    assert one.scheme == "nvfp4"


def test_no_tensors() -> None:
    cases = select_cases("test", ["mxfp4"], None)
    found = ModelComparison(cases)
    assert math.isnan(found.advice(sqnr_db=20).bits_per_element)
    assert str(found).startswith("0 tensors, 0 elements") and "no tensors" in str(
        found.advice(sqnr_db=20)
    )


def test_adding_to_a_name_is_one_tensor() -> None:
    x = tensors()["normal"]
    cases = select_cases("test", ["mxfp4", "mxint8"], ["rceil"])
    found = ModelComparison(cases)
    found.add("x", measure(x[:5], cases))
    found.add("x", measure(x[5:], cases))
    wanted = mxkern.compare(x, ["mxfp4", "mxint8"], "rceil")
    for got, one in zip(found["x"], wanted, strict=True):
        assert vars(got) == pytest.approx(vars(one))


@pytest.mark.parametrize(
    ("text", "rmse"),
    [
        ("20dB", 0.1),
        ("40 DB", 0.01),
        ("0.05", 0.05),
        ("5%", 0.05),
        ("5e-2", 0.05),
        ("2.5 %", 0.025),
    ],
)
def test_thresholds_in_words(text: str, rmse: float) -> None:
    assert Threshold.parsed(text).relative_rmse == pytest.approx(rmse)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", r"--threshold '': expected an SQNR, as 25dB, or a relative error"),
        ("dB", r"expected an SQNR, as 25dB"),
        ("many", r"expected an SQNR, as 25dB"),
        ("25", r"relative_rmse is 25.0; expected more than 0 and less than 1, .*sqnr_db"),
        ("-3dB", r"sqnr_db is -3.0; expected more than 0"),
        ("nan", r"relative_rmse is nan"),
        ("infdB", r"sqnr_db is inf"),
        ("0", r"relative_rmse is 0.0"),
        ("200%", r"relative_rmse is 2.0"),
    ],
)
def test_no_thresholds(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Threshold.parsed(text)


@pytest.mark.parametrize(
    ("asked", "error", "message"),
    [
        ({}, ValueError, r"advice: neither of sqnr_db and relative_rmse is given"),
        ({"sqnr_db": 3, "relative_rmse": 0.1}, ValueError, r"advice: both of sqnr_db"),
        ({"sqnr_db": "25"}, TypeError, r"advice: sqnr_db is '25'; expected a number"),
        ({"relative_rmse": True}, TypeError, r"advice: relative_rmse is True; expected a number"),
    ],
)
def test_bad_arguments(asked: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        ModelComparison(select_cases("test", ["mxfp4"], None)).advice(**asked)
