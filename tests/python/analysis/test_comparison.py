# tests/python/analysis/test_comparison.py: mxkern.compare against its definitions, worked out in
# float64.
import json
import math

import ml_dtypes
import numpy as np
import pytest

import mxkern
from mxkern.analysis import comparison
from mxkern.analysis.error_sums import ErrorSums

RULES = ("rceil", "floor", "ceil", "even")
MX = [scheme.name for scheme in mxkern.schemes if not scheme.has_tensor_scale]


def values(shape, seed=0, dtype=np.float32):
    """Normal values, magnitudes of rows and columns spread over some octaves."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal(shape) * np.exp2(rng.integers(-6, 6, shape))
    return x.astype(dtype)


def by_definition(x, scheme, rule):
    """The figures of a record, from the docstring of compare."""
    options = {} if rule is None else {"scale_rule": rule}
    q = mxkern.quantize(x, scheme, **options)
    d = mxkern.dequantize(q).astype(np.float64)
    x = x.astype(np.float64)
    alive = ~np.isnan(d)
    error = (x - d)[alive]
    facts = mxkern.schemes[scheme]
    tensor_scale = 1.0 if q.tensor_scale is None else float(q.tensor_scale)
    largest = np.repeat(q.scales.astype(np.float64), facts.block, axis=-1)[..., : x.shape[-1]]
    largest *= facts.max_value * tensor_scale
    signal, noise = np.sum(x[alive] ** 2), np.sum(error**2)
    return {
        "scheme": scheme,
        "scale_rule": rule,
        "bits_per_element": 8 * q.nbytes / x.size,
        "sqnr_db": 10 * math.log10(signal / noise) if noise else math.inf,
        "relative_rmse": math.sqrt(noise / signal),
        "max_error": np.abs(error).max(),
        "saturated": np.count_nonzero(np.abs(x[alive]) > 1.000001 * largest[alive]) / x.size,
        "flushed": np.count_nonzero((x != 0) & (d == 0)) / x.size,
        "poisoned": np.count_nonzero(~alive) / x.size,
        "elements": x.size,
    }


def assert_record(record, wanted):
    for name, value in wanted.items():
        found = getattr(record, name)
        if isinstance(value, float):
            assert found == pytest.approx(value, rel=1e-6, abs=1e-12), (record, name, value)
        else:
            assert found == value, (record, name, value)


@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16])
@pytest.mark.parametrize("shape", [(33, 96), (5, 77), (129,), (2, 3, 4, 50), (1, 1)])
def test_every_figure_is_what_its_definition_says(shape, dtype):
    x = values(shape, dtype=dtype)
    records = mxkern.compare(x)
    assert [(r.scheme, r.scale_rule) for r in records] == [
        *((scheme, rule) for scheme in MX for rule in RULES),
        ("nvfp4", None),
    ]
    for record in records:
        assert_record(record, by_definition(x, record.scheme, record.scale_rule))


def test_chunks_change_nothing(monkeypatch):
    x = values((40, 200))
    whole = mxkern.compare(x)
    monkeypatch.setattr(comparison, "CHUNK", 256)
    for record, wanted in zip(mxkern.compare(x), whole, strict=True):
        assert_record(record, vars(wanted))


@pytest.mark.parametrize("chunk", [32, 64, 256, 4096])
@pytest.mark.parametrize("shape", [(7, 100), (300,), (3, 5, 40), (2, 0, 8), (0,), (2, 2, 2, 33)])
def test_chunks_cover_every_element_once_in_whole_blocks(chunk, shape, monkeypatch):
    monkeypatch.setattr(comparison, "CHUNK", chunk)
    x = np.arange(math.prod(shape), dtype=np.float32).reshape(shape)
    for view in (x, x[::-1], x.T if x.ndim > 1 else x[::2]):
        chunks = list(comparison.chunks_of(view))
        assert sorted(np.concatenate([c.ravel() for c in chunks] or [[]])) == sorted(view.ravel())
        assert all(c.size <= max(chunk, 1) and np.shares_memory(c, x) for c in chunks)
        if view is x:
            assert all(int(c[0, 0]) % shape[-1] % 32 == 0 for c in chunks)


def test_views_that_are_not_contiguous():
    x = values((64, 96))
    for view in (x[::2], x[:, ::3], x.T, x[::-1, ::-1]):
        for record, wanted in zip(
            mxkern.compare(view), mxkern.compare(np.ascontiguousarray(view)), strict=True
        ):
            assert_record(record, vars(wanted))


def test_poisoned_blocks_count_only_as_poisoned():
    x = values((4, 128))
    x[0, 3], x[2, 40] = np.nan, -np.inf
    for record in mxkern.compare(x, rules="rceil"):
        block = mxkern.schemes[record.scheme].block
        assert record.poisoned == 2 * block / x.size
        assert_record(record, by_definition(x, record.scheme, record.scale_rule))
    assert "poisoned" in str(mxkern.compare(x))


def test_saturated_and_flushed_are_seen():
    x = np.zeros((1, 32), np.float32)
    x[0, :3] = 7.9, 1e-3, 1.0  # floor gives 7.9 the scale 1: the largest E2M1 is 6
    floor, rceil = mxkern.compare(x, "mxfp4", ["floor", "rceil"])
    assert floor.saturated == 1 / 32 and floor.flushed == 1 / 32
    assert rceil.saturated == 0 and rceil.flushed == 1 / 32
    assert floor.max_error == pytest.approx(1.9)


def test_exact_and_empty_and_zero_tensors():
    exact = mxkern.compare(np.ones((2, 64), np.float32), "mxfp8_e4m3", "rceil")[0]
    assert exact.sqnr_db == math.inf and exact.relative_rmse == 0 and exact.max_error == 0
    zero = mxkern.compare(np.zeros((2, 64), np.float32), "nvfp4")[0]
    assert zero.sqnr_db == math.inf and zero.flushed == 0 and zero.saturated == 0
    empty = mxkern.compare(np.zeros((0, 64), np.float32), "mxfp4", "rceil")[0]
    assert empty.elements == 0 and math.isnan(empty.bits_per_element)
    assert empty.saturated == 0 and str(mxkern.compare(np.zeros(0, np.float32)))


def test_values_near_the_end_of_float32():
    x = np.full((1, 32), np.finfo(np.float32).max)
    x[0, 1:] = 1e38
    for record in mxkern.compare(x):
        assert record.poisoned == 0 and record.relative_rmse > 0
    tiny = mxkern.compare(np.full((1, 32), 1e-45, np.float32), "mxfp8_e4m3", "rceil")[0]
    assert tiny.elements == 32 and 0 <= tiny.flushed <= 1


def test_merging_sums_is_measuring_one_tensor():
    x = values((64, 64))
    cases = comparison.select_cases("test", MX, None)
    merged = [ErrorSums() for _ in cases]
    for part in (x[:16], x[16:]):
        for total, found in zip(merged, comparison.measure(part, cases), strict=True):
            total.merge(found)
    whole = comparison.comparison_of(cases, comparison.measure(x, cases))
    for record, wanted in zip(comparison.comparison_of(cases, merged), whole, strict=True):
        assert_record(record, vars(wanted))


def test_progress_adds_up():
    x = values((10, 64))
    cases = comparison.select_cases("test", None, None)
    done = []
    comparison.measure(x, cases, done.append)
    assert sum(done) == x.size * len(cases)


def test_choice_of_schemes_and_rules():
    x = values((2, 64))
    some = mxkern.compare(x, ["nvfp4", "mxfp4", mxkern.schemes["mxint8"]], rules="floor")
    assert [(r.scheme, r.scale_rule) for r in some] == [
        ("nvfp4", None),
        ("mxfp4", "floor"),
        ("mxint8", "floor"),
    ]
    assert len(mxkern.compare(x, ["mxfp4", "mxfp4"], ["even", "even"])) == 1
    assert mxkern.compare(x, "mxfp8")[0].scheme == "mxfp8_e4m3"


def test_the_result_is_easy_to_use():
    result = mxkern.compare(values((4, 64)), ["mxfp4", "nvfp4"])
    assert len(result) == 5 and result[-1].scheme == "nvfp4" and len(result[:2]) == 2
    assert json.loads(json.dumps(result.to_dicts()))[0]["scheme"] == "mxfp4"
    lines = str(result).splitlines()
    assert lines[0].split()[:3] == ["scheme", "scale", "rule"] and len(lines) == 7
    assert len({len(line) for line in lines}) == 1, "columns are aligned"


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (
            (np.ones((2, 32), int),),
            TypeError,
            r"compare: x has dtype int64; .*convert with x.astype",
        ),
        ((np.ones((2, 32), int),), TypeError, r"compare: x has dtype int64"),
        (([[1.0]],), TypeError, r"compare: x is a list; .*numpy.asarray"),
        ((np.float32(1),), TypeError, r"compare: x is a numpy.float32"),
        ((np.array(1, np.float32),), ValueError, r"compare: x has no dimension"),
        ((np.ones(32, np.float32), "mxfp5"), ValueError, r"compare: scheme is 'mxfp5'.*did you"),
        ((np.ones(32, np.float32), None, "flor"), ValueError, r"rules is 'flor'.*mean 'floor'"),
        ((np.ones(32, np.float32), [], None), ValueError, r"nothing to compare"),
        ((np.ones(32, np.float32), "mxfp4", []), ValueError, r"rules is empty; expected rceil"),
        ((np.ones(32, np.float32), None, []), ValueError, r"rules is empty; expected rceil"),
        ((np.ones(32, np.float32), 3), TypeError, r"compare: scheme is 3; expected a name"),
        ((np.ones(32, np.float32), None, [["even"]]), TypeError, r"compare: rules is a list"),
        ((mxkern.quantize(np.ones(32, "f4"), "mxfp4"),), TypeError, r"mxkern.dequantize\(x\)"),
        ((np.float32(1),), TypeError, r"numpy.asarray\(x, numpy.float32\).reshape\(1\)"),
        ((np.ones(32, np.float32), None, 3), TypeError, r"compare: rules is 3; expected a name"),
    ],
)
def test_bad_arguments(arguments, error, message):
    with pytest.raises(error, match=message):
        mxkern.compare(*arguments)


def test_torch_tensors():
    torch = pytest.importorskip("torch")
    x = values((8, 64))
    wanted = mxkern.compare(x)
    assert mxkern.compare(torch.from_numpy(x)).to_dicts() == wanted.to_dicts()
    half = torch.from_numpy(x).to(torch.bfloat16)
    assert (
        mxkern.compare(half).to_dicts() == mxkern.compare(x.astype(ml_dtypes.bfloat16)).to_dicts()
    )
    with pytest.raises(ValueError, match=r"compare: x is on the meta device"):
        mxkern.compare(torch.ones(32, device="meta"))
    with pytest.raises(TypeError, match=r"compare: x has layout torch.sparse_coo"):
        mxkern.compare(torch.ones(2, 32).to_sparse())
    with pytest.raises(TypeError, match=r"compare: x has dtype float8_e5m2; .*x.to\(torch.float32"):
        mxkern.compare(torch.ones(2, 32).to(torch.float8_e5m2))
    parameter = torch.nn.Parameter(torch.from_numpy(x))
    assert mxkern.compare(parameter).to_dicts() == wanted.to_dicts()
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(torch.from_numpy(x), torch.ones(8, 64))
        assert mxkern.compare(dual).to_dicts() == wanted.to_dicts()
    assert mxkern.compare(torch._neg_view(-torch.from_numpy(x))).to_dicts() == wanted.to_dicts()
    with pytest.raises(TypeError, match=r"dtype int64"):
        mxkern.compare(torch.ones(32, dtype=torch.int64))


def test_arrays_of_another_byte_order_and_masked_ones():
    x = values((8, 64))
    assert mxkern.compare(x.astype(">f4")).to_dicts() == mxkern.compare(x).to_dicts()
    with pytest.raises(TypeError, match=r"compare: x is a numpy.ma\S*MaskedArray"):
        mxkern.compare(np.ma.masked_array(x))


def test_jax_arrays():
    jnp = pytest.importorskip("jax.numpy")
    x = values((8, 64))
    assert mxkern.compare(jnp.asarray(x)).to_dicts() == mxkern.compare(x).to_dicts()


def test_nothing_but_poison_has_no_error():
    for value in (np.nan, np.inf):
        for record in mxkern.compare(np.full((2, 64), value, np.float32), rules="rceil"):
            assert record.poisoned == 1.0
            for figure in (record.sqnr_db, record.relative_rmse, record.max_error):
                assert np.isnan(figure)


def test_floating_point_settings_of_the_caller():
    signaling = np.full((1, 32), 0x7F81, np.uint16).view(ml_dtypes.bfloat16)
    tiny = np.full((1, 32), 1e-40, np.float32)
    with np.errstate(all="raise"):
        assert mxkern.compare(signaling, "mxfp8", "rceil")[0].poisoned == 1.0
        assert len(mxkern.compare(tiny)) == 25


def test_flushing_subnormals_changes_no_figure():
    torch = pytest.importorskip("torch")
    source = np.random.default_rng(0)
    bits = source.integers(0, 1 << 23, (64, 128), dtype=np.uint32)
    x = (bits >> source.integers(0, 23, bits.shape).astype(np.uint32)).view(np.float32)
    want = mxkern.compare(x)
    assert torch.set_flush_denormal(True)
    try:
        got = mxkern.compare(x)
        assert float(np.float32(1e-40) * np.float32(1)) == 0, "the caller's setting is back"
    finally:
        torch.set_flush_denormal(False)
    assert got == want and got[0].sqnr_db > 0
