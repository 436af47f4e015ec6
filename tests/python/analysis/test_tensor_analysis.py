# tests/python/analysis/test_tensor_analysis.py: mxkern.analyze against its definitions, in a plain
# loop over elements in float64.
from __future__ import annotations

import math
from collections import Counter
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import mxkern
from mxkern.analysis import comparison, pieces, tensor_analysis
from mxkern.analysis.scale_values import scale_values

SCHEMES = mxkern.schemes.names


def values(shape: tuple[int, ...], seed: int = 0, dtype: Any = np.float32) -> Any:
    """Normal values, magnitudes spread over some octaves, with zeros among them."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal(shape) * np.exp2(rng.integers(-6, 6, shape))
    x[rng.random(shape) < 0.05] = 0
    return x.astype(dtype)


def entropy(codes: list[int]) -> float:
    counts = Counter(codes)
    total = len(codes)
    return -sum(n / total * math.log2(n / total) for n in counts.values()) if total else 0.0


class Figures:
    """Of some elements, one after the other."""

    def __init__(self) -> None:
        self.elements = self.poisoned = self.saturated = self.flushed = 0
        self.signal = self.noise = self.max_error = 0.0
        self.codes: list[int] = []

    def add(self, x: float, d: float, code: int, largest: float) -> None:
        self.elements += 1
        if math.isnan(d):
            self.poisoned += 1
            return
        self.signal += x * x
        self.noise += (x - d) ** 2
        self.max_error = max(self.max_error, abs(x - d))
        self.saturated += abs(x) > 1.000001 * largest
        self.flushed += x != 0 and d == 0
        self.codes.append(code)

    @property
    def wanted(self) -> dict[str, float]:
        nothing = self.poisoned == self.elements
        ratio = self.signal / self.noise if self.noise else math.inf
        decibels = 10 * math.log10(ratio) if self.noise else math.inf
        return {
            "elements": self.elements,
            "poisoned": self.poisoned / self.elements,
            "sqnr_db": math.nan if nothing else decibels,
            "max_error": math.nan if nothing else self.max_error,
            "saturated": self.saturated / self.elements,
            "flushed": self.flushed / self.elements,
            "bits_used": entropy(self.codes),
        }


def slowly(
    x: Any, scheme: str, rule: str | None
) -> tuple[Figures, list[dict[str, float]], Counter[float]]:
    """Figures of the tensor, the records of its blocks, and the exponents of their scales."""
    options: dict[str, Any] = {} if rule is None else {"scale_rule": rule}
    facts, rows = mxkern.schemes[scheme], x.reshape(-1, x.shape[-1])
    q = mxkern.quantize(rows, facts, **options)
    decoded, scales = mxkern.dequantize(q), q.scales.astype(np.float64)
    codes = q.codes.view(np.uint8)
    if facts.bits < 8:
        codes = mxkern.unpack_codes(q.codes, facts, columns=rows.shape[1])
    tensor_scale = 1.0 if q.tensor_scale is None else float(q.tensor_scale)
    whole, records, exponents = Figures(), [], Counter()
    for row in range(rows.shape[0]):
        for block in range(scales.shape[1]):
            own, scale = Figures(), float(scales[row, block])
            largest = scale * facts.max_value * tensor_scale
            first = block * facts.block
            for column in range(first, min(first + facts.block, rows.shape[1])):
                element = float(rows[row, column]), float(decoded[row, column])
                for figures in (own, whole):
                    figures.add(*element, int(codes[row, column]), largest)
            exponent = math.nan if math.isnan(scale) else -math.inf
            if scale > 0:
                exponent = math.floor(math.log2(scale))
            if not math.isnan(exponent):
                exponents[exponent] += 1
            place = {"row": row, "block": block, "scale": scale, "scale_exponent": exponent}
            records.append(own.wanted | place)
    return whole, records, exponents


def assert_close(found: Any, wanted: dict[str, float], rel: float = 1e-6) -> None:
    for name, value in wanted.items():
        got = float(found[name])
        assert got == pytest.approx(value, rel=rel, abs=1e-6, nan_ok=True), (name, got, value)


def assert_as_slow(x: Any, scheme: str, rule: str | None) -> None:
    plain = np.asarray(x, np.float32) if x.dtype == np.float32 else x
    found = mxkern.analyze(plain, scheme, scale_rule=rule)
    own = "rceil" if rule is None and scheme != "nvfp4" else rule
    whole, records, exponents = slowly(plain, scheme, own)
    assert_close(found.to_dict(), whole.wanted)
    assert found.relative_rmse == pytest.approx(math.sqrt(whole.noise / whole.signal))
    assert found.blocks == len(records) == len(found.records)
    for record, wanted in zip(found.records, records, strict=True):
        assert_close(record, wanted, rel=1e-5)
    assert found.scale_exponents == exponents
    assert list(found.scale_exponents) == sorted(exponents)
    decibels = [r["sqnr_db"] for r in records if not math.isnan(r["sqnr_db"])]
    floors = Counter(d if math.isinf(d) else math.floor(d) for d in decibels)
    assert found.block_sqnr_db == floors


@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16])
@pytest.mark.parametrize("shape", [(6, 96), (3, 77), (129,), (2, 3, 50), (1, 1), (5, 16)])
@pytest.mark.parametrize("scheme", SCHEMES)
def test_every_figure_is_what_its_definition_says(
    scheme: str, shape: tuple[int, ...], dtype: Any
) -> None:
    x = values(shape, dtype=dtype)
    x.reshape(-1)[0] = 1.7
    assert_as_slow(x, scheme, None)


@pytest.mark.parametrize("rule", ["rceil", "floor", "ceil", "even"])
def test_every_rule(rule: str) -> None:
    for scheme in ("mxfp4", "mxint8"):
        assert_as_slow(values((4, 100), 3), scheme, rule)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_nan_and_infinity_are_counted_apart(scheme: str) -> None:
    x = values((3, 80))
    x[0, 3], x[0, 4], x[1, 40], x[2, 79] = np.nan, np.nan, np.inf, -np.inf
    assert_as_slow(x, scheme, None)
    found = mxkern.analyze(x, scheme)
    assert (found.nan, found.infinite) == (2, 2)
    assert sum(found.scale_exponents.values()) == found.blocks - 3
    assert "NaN, infinite" in str(found) and "poisoned" in str(found)


def test_nothing_but_poison_has_no_error() -> None:
    found = mxkern.analyze(np.full((2, 40), np.nan, np.float32), "mxfp8")
    assert found.poisoned == 1 and found.nan == 80 and found.bits_used == 0
    for figure in (found.sqnr_db, found.relative_rmse, found.max_error):
        assert math.isnan(figure)
    assert np.isnan(found.records["sqnr_db"]).all() and np.isnan(found.records["scale"]).all()
    assert found.scale_exponents == {} and str(found)


def test_zeros() -> None:
    found = mxkern.analyze(np.zeros((2, 64), np.float32), "mxfp4")
    assert found.scale_exponents == {-127: 4} and found.block_sqnr_db == {math.inf: 4}
    assert found.sqnr_db == math.inf and found.bits_used == 0 and found.flushed == 0
    found = mxkern.analyze(np.zeros((2, 64), np.float32), "nvfp4")
    assert found.scale_exponents == {-math.inf: 8} and found.saturated == 0
    signs = np.float32([0.0, -0.0] * 16)
    assert mxkern.analyze(signs, "mxfp4").bits_used == 1, "codes keep the sign of zero"


def test_a_block_whose_scale_is_too_small() -> None:
    """NVFP4 scales of 0: what is in their blocks decodes to 0."""
    x = np.zeros((1, 32), np.float32)
    x[0, 0], x[0, 16:] = 1.0, 1e-9
    found = mxkern.analyze(x, "nvfp4")
    assert found.scale_exponents[-math.inf] == 1 and found.flushed == 0.5
    assert found.records["flushed"].tolist() == [0, 1]
    assert found.records["sqnr_db"][1] == 0


@pytest.mark.parametrize("shape", [(0,), (0, 32), (4, 0), (2, 0, 8)])
def test_empty_tensors(shape: tuple[int, ...]) -> None:
    for scheme in ("mxfp4", "nvfp4"):
        found = mxkern.analyze(np.zeros(shape, np.float32), scheme)
        assert found.elements == found.blocks == len(found.records) == 0
        assert found.max_error == 0 and found.sqnr_db == math.inf
        assert math.isnan(found.bits_per_element) and found.bits_used == 0
        assert str(found).endswith("there is nothing to measure")


def test_the_worked_example_of_the_entropy() -> None:
    x = np.float32([1, 2, 4, 4] * 8)
    found = mxkern.analyze(x, "mxfp4")
    assert found.bits_used == pytest.approx(1.5), "codes of shares 1/4, 1/4 and 1/2"
    assert found.records["bits_used"][0] == pytest.approx(1.5)
    assert mxkern.analyze(np.float32([3]), "mxfp4").bits_used == 0


@pytest.mark.parametrize("chunk", [32, 64, 96, 256])
@pytest.mark.parametrize("shape", [(7, 100), (3, 5, 40), (300,), (2, 2, 2, 33)])
def test_pieces_change_nothing(
    shape: tuple[int, ...], chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    x = values(shape)
    views = [x, x[::-1], x.T if x.ndim > 1 else x[::2]]
    whole = [mxkern.analyze(np.ascontiguousarray(view), "nvfp4") for view in views]
    monkeypatch.setattr(comparison, "CHUNK", chunk)
    monkeypatch.setattr(pieces, "CHUNK", chunk)
    for view, wanted in zip(views, whole, strict=True):
        found = mxkern.analyze(view, "nvfp4")
        assert_close(found.to_dict() | {"shape": 0}, numbers(wanted))
        assert found.scale_exponents == wanted.scale_exponents
        assert found.records.tobytes() == wanted.records.tobytes()


def numbers(analysis: mxkern.Analysis) -> dict[str, float]:
    return {k: v for k, v in analysis.to_dict().items() if isinstance(v, (int, float))}


@pytest.mark.parametrize("columns", [70, 300])
def test_pieces_of_whole_rows(columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """For blocks that do not divide a chunk: rows are not cut, however long they are."""
    x = values((3, 4, columns))
    for view in (x, x[::-1], np.asfortranarray(x)):
        monkeypatch.setattr(pieces, "CHUNK", 150)
        found = list(pieces.pieces_of(view, mxkern.schemes["mxfp4"]))
        assert np.array_equal(np.concatenate(found), view.reshape(-1, columns))
        assert all(piece.size <= max(150, columns) for piece in found)


def test_agrees_with_compare() -> None:
    x = values((40, 200))
    for record in mxkern.compare(x):
        found = mxkern.analyze(x, record.scheme, scale_rule=record.scale_rule)  # type: ignore[arg-type]
        for name in ("bits_per_element", "sqnr_db", "relative_rmse", "max_error", "saturated"):
            assert getattr(found, name) == pytest.approx(getattr(record, name)), name
        assert found.flushed == record.flushed and found.elements == record.elements


def test_records_are_for_data_frames() -> None:
    found = mxkern.analyze(values((4, 100)), "mxfp4")
    assert found.records.dtype.names[:3] == ("row", "block", "elements")
    assert found.records["row"].tolist() == [0] * 4 + [1] * 4 + [2] * 4 + [3] * 4
    assert found.records["block"].tolist() == [0, 1, 2, 3] * 4
    assert found.records["elements"].tolist() == [32, 32, 32, 4] * 4
    without = mxkern.analyze(values((4, 100)), "mxfp4", per_block=False)
    assert len(without.records) == 0 and numbers(without) == numbers(found)
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    frame = pandas.DataFrame(found.records)
    assert frame.shape == (16, 11) and frame.sqnr_db.min() > 10


def test_it_prints_as_tables() -> None:
    text = str(mxkern.analyze(values((4, 100)), "mxfp4", scale_rule="even"))
    lines = text.splitlines()
    assert lines[0] == ("mxfp4, scale rule even: float32 [4x100], 400 elements in 16 blocks of 32")
    assert "bits used by codes" in text and "scale exponent  blocks" in text
    assert "poisoned" not in text
    assert max(line.count("#") for line in lines) == tensor_analysis.BAR
    assert not [line for line in lines if line != line.rstrip()]


def test_torch_tensors() -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    x = values((8, 64))
    wanted = mxkern.analyze(x, "nvfp4")
    parameter = torch.nn.Parameter(torch.from_numpy(x))
    assert mxkern.analyze(parameter, "nvfp4").to_dict() == wanted.to_dict()
    half = mxkern.analyze(torch.from_numpy(x).to(torch.bfloat16), "nvfp4")
    assert half.to_dict() == mxkern.analyze(x.astype(ml_dtypes.bfloat16), "nvfp4").to_dict()
    with pytest.raises(ValueError, match=r"analyze: x is on the meta device"):
        mxkern.analyze(torch.ones(32, device="meta"), "mxfp4")


def test_jax_arrays() -> None:
    jax = pytest.importorskip("jax", reason="jax is not installed")
    x = values((8, 64))
    found = mxkern.analyze(jax.numpy.asarray(x), "mxfp4")
    assert found.to_dict() == mxkern.analyze(x, "mxfp4").to_dict()
    with pytest.raises(TypeError, match=r"analyze: x is a JAX tracer"):
        jax.jit(lambda x: mxkern.analyze(x, "mxfp4").sqnr_db)(x)


def test_floating_point_settings_of_the_caller() -> None:
    x = np.float32([[1e-40] * 32, [np.finfo(np.float32).max] * 32, [np.nan] * 32])
    with np.errstate(all="raise"):
        for scheme in SCHEMES:
            assert mxkern.analyze(x, scheme).elements == 96


@pytest.mark.parametrize(
    ("arguments", "options", "error", "message"),
    [
        ((np.ones((2, 32)), "mxfp4"), {}, TypeError, r"analyze: x has dtype float64"),
        (([1.0], "mxfp4"), {}, TypeError, r"analyze: x is a list"),
        ((np.float32(1), "mxfp4"), {}, TypeError, r"analyze: x is a numpy.float32"),
        ((np.array(1, "f4"), "mxfp4"), {}, ValueError, r"analyze: x has no dimension"),
        ((np.ones(32, "f4"), "mxfp5"), {}, ValueError, r"analyze: scheme is 'mxfp5'.*did you"),
        ((np.ones(32, "f4"), 3), {}, TypeError, r"analyze: scheme is 3"),
        (
            (np.ones(32, "f4"), "mxfp4"),
            {"scale_rule": "flor"},
            ValueError,
            r"analyze: scale_rule is 'flor'.*mean 'floor'",
        ),
        (
            (np.ones(32, "f4"), "nvfp4"),
            {"scale_rule": "floor"},
            ValueError,
            r"analyze: scale_rule is 'floor', but nvfp4 has one rule of its own; leave",
        ),
        ((np.ones(32, "f4"), "mxfp4"), {"per_block": 1}, TypeError, r"analyze: per_block is 1"),
    ],
)
def test_bad_arguments(
    arguments: Any, options: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        mxkern.analyze(*arguments, **options)


@pytest.mark.parametrize("name", ["e8m0", "ue4m3"])
def test_scales_mean_what_ml_dtypes_says(name: str) -> None:
    dtype = {"e8m0": ml_dtypes.float8_e8m0fnu, "ue4m3": ml_dtypes.float8_e4m3fn}[name]
    scales = np.arange(256).astype(np.uint8).view(dtype)
    with np.errstate(invalid="ignore"):
        wanted = scales.astype(np.float32)
    wanted = wanted if name == "e8m0" else np.abs(wanted)
    scheme = mxkern.Scheme(f"e2m1b16:{name}")
    assert np.array_equal(scale_values(scheme, scales), wanted, equal_nan=True)


def test_scales_of_other_formats() -> None:
    codes = np.uint8([0, 1, 15, 30, 31])
    found = scale_values(mxkern.Scheme("e4m3b32:e5m0"), codes)
    assert np.array_equal(found, [2.0**-15, 2.0**-14, 1, 2.0**15, np.nan], equal_nan=True)
    largest = scale_values(mxkern.Scheme("e4m3b32:ue5m3"), np.uint8([0xFE, 0xFF]))
    assert np.array_equal(largest, [114688, np.nan], equal_nan=True)
    plain = np.float32([0.3, 7])
    assert np.array_equal(scale_values(mxkern.Scheme("e4m3b32:float32"), plain), plain)
    wide = scale_values(mxkern.Scheme("e4m3b32:ue8m7"), np.uint16([0x3F80, 0x7F80]))
    assert np.array_equal(wide, [1, np.inf])
