# tests/python/cuda/test_cuda_gemm.py: products on CUDA devices against double precision: every
# scheme, precision and distribution, ragged shapes, poisoned blocks.
from __future__ import annotations

import pytest
from cuda_gemm_support import (
    DISTRIBUTIONS,
    EXACT_ERROR,
    FOLDABLE,
    FOLDED_ERROR,
    SPREAD_LIMITS,
    assert_near,
    exact,
    product,
    quantized,
    relative,
    values,
    with_spread,
)

import mxkern
from support import DTYPES, SCHEMES, array_of, random_values

pytestmark = pytest.mark.skipif(
    not mxkern.info().devices, reason=f"no CUDA device can be used: {mxkern.info().cuda}"
)
torch = pytest.importorskip("torch", reason="torch is not installed")
if mxkern.info().devices and not torch.cuda.is_available():
    pytest.skip("this PyTorch has no CUDA", allow_module_level=True)

SHAPES = [(1, 1, 1), (5, 9, 33), (130, 257, 160), (256, 128, 96), (77, 300, 32), (64, 64, 1056)]


def on_hopper() -> bool:
    return bool(torch.cuda.get_device_capability()[0] == 9)


hopper = pytest.mark.skipif(
    not (mxkern.info().devices and on_hopper()), reason="folded products are for Hopper"
)


@pytest.mark.parametrize("b_scheme", SCHEMES)
@pytest.mark.parametrize("a_scheme", SCHEMES)
def test_every_pair_of_schemes(a_scheme: str, b_scheme: str) -> None:
    for seed, (m, n, k) in enumerate(SHAPES):
        layouts = ("row_major", "swizzled") if seed % 2 else ("swizzled", "row_major")
        a = quantized(a_scheme, m, k, seed, scale_layout=layouts[0])
        b = quantized(b_scheme, n, k, seed + 1, scale_layout=layouts[1])
        want = product(a, b)
        for dtype in DTYPES:
            got = mxkern.gemm(a, b, dtype=dtype, precision="exact", alpha=2.0**-8)
            what = f"{a_scheme} {b_scheme} {(m, n, k)} {dtype}"
            assert got.shape == (m, n) and str(got.dtype) == f"torch.{dtype}"
            assert_near(got, want * 2.0**-8, EXACT_ERROR, what)
        got = mxkern.gemm(a, b)
        assert torch.equal(got, mxkern.gemm(a, b, precision="exact")), "float32 and auto is exact"


@hopper
@pytest.mark.parametrize("b_scheme", FOLDABLE)
@pytest.mark.parametrize("a_scheme", FOLDABLE)
def test_folded_every_pair(a_scheme: str, b_scheme: str) -> None:
    for seed, (m, n, k) in enumerate(SHAPES):
        a = mxkern.quantize(values("normal", m, k, seed), a_scheme)
        b = mxkern.quantize(values("normal", n, k, seed + 9), b_scheme, scale_layout="swizzled")
        want = product(a, b)
        for dtype in DTYPES:
            got = mxkern.gemm(a, b, dtype=dtype, precision="folded")
            assert_near(got, want, FOLDED_ERROR, f"{a_scheme} {b_scheme} {(m, n, k)} {dtype}")
            if dtype != "float32":
                assert torch.equal(got, mxkern.gemm(a, b, dtype=dtype))


@pytest.mark.parametrize("kind", DISTRIBUTIONS)
@pytest.mark.parametrize("schemes", [("mxfp8_e4m3", "mxfp8_e4m3"), ("mxfp8_e4m3", "mxfp4"),
                                     ("mxfp6_e2m3", "mxfp8_e5m2"), ("mxfp4", "mxfp4")])  # fmt: skip
def test_errors_of_distributions(schemes: tuple[str, str], kind: str) -> None:
    """The promise: exact <= 2e-5, folded <= 5e-4, auto one of them, for every distribution."""
    m, n, k = 512, 768, 4096
    a = mxkern.quantize(values(kind, m, k, 1).bfloat16(), schemes[0])
    b = mxkern.quantize(values("normal" if kind == "lognormal" else kind, n, k, 2), schemes[1])
    want = product(a, b)
    assert relative(mxkern.gemm(a, b, precision="exact"), want) <= EXACT_ERROR
    got = mxkern.gemm(a, b, dtype="bfloat16")
    assert_near(got, want, FOLDED_ERROR)
    if on_hopper() and kind != "lognormal":
        assert relative(mxkern.gemm(a, b, precision="folded"), want) <= FOLDED_ERROR


@pytest.mark.parametrize("kind", [*DISTRIBUTIONS, "apart"])
@pytest.mark.parametrize("left", ["mxfp8", "mxint8", "nvfp4", *DTYPES])
def test_long_sums(left: str, kind: str) -> None:
    """Whole ones: 2048 by 2048 outputs leave nothing to divide along K."""
    m, n, k = 2048, 2048, 8192
    x = values(kind, m, k, 1)
    a = x.to(getattr(torch, left)) if left in DTYPES else mxkern.quantize(x, left)
    b = mxkern.quantize(values(kind, n, k, 2), "mxfp8" if left in DTYPES else left)
    assert relative(mxkern.gemm(a, b, precision="exact"), product(a, b)) <= EXACT_ERROR


@hopper
@pytest.mark.parametrize("side", ["a", "b"])
@pytest.mark.parametrize("scheme", FOLDABLE)
def test_auto_is_folded_up_to_the_limit_and_exact_beyond(scheme: str, side: str) -> None:
    m, n, k = 192, 320, 256
    other = mxkern.quantize(values("normal", n if side == "a" else m, k, 3), "mxfp8")
    limit = SPREAD_LIMITS[scheme]
    for octaves in sorted({0, 1, limit - 1, limit, limit + 1, limit + 5, 40}):
        q = with_spread(scheme, m if side == "a" else n, k, octaves, seed=octaves + 5)
        a, b = (q, other) if side == "a" else (other, q)
        got = mxkern.gemm(a, b, dtype="bfloat16")
        folded = mxkern.gemm(a, b, dtype="bfloat16", precision="folded")
        exactly = mxkern.gemm(a, b, dtype="bfloat16", precision="exact")
        assert not torch.equal(folded, exactly), "the test could not tell them apart"
        assert torch.equal(got, folded if octaves <= limit else exactly), (octaves, limit)
        assert_near(got, product(a, b), FOLDED_ERROR)


def test_opposed_scales() -> None:
    """Large blocks of a row meet small blocks of the columns: what is far below counts."""
    m, n, k = 256, 320, 2048
    for octaves in (0, 6, 8, 9, 12, 20, 40):
        a = mxkern.quantize(values("normal", m, k, octaves), "mxfp8")
        b = mxkern.quantize(values("normal", n, k, octaves + 1), "mxfp8")
        steps = torch.randint(0, octaves + 1, (1, k // 32), device="cuda", dtype=torch.uint8)
        a.scales.view(torch.uint8).copy_((127 - steps).expand(m, -1))
        b.scales.view(torch.uint8).copy_((100 + steps).expand(n, -1))
        want = product(a, b)
        assert relative(mxkern.gemm(a, b, precision="exact"), want) <= EXACT_ERROR, octaves
        assert_near(mxkern.gemm(a, b, dtype="bfloat16"), want, FOLDED_ERROR, octaves)
        if on_hopper() and octaves <= SPREAD_LIMITS["mxfp8_e4m3"]:
            folded = mxkern.gemm(a, b, precision="folded")
            assert relative(folded, want) <= FOLDED_ERROR, octaves


def test_one_huge_block_and_rows_of_zeros() -> None:
    a_values, b_values = values("normal", 200, 512, 1), values("normal", 136, 512, 2)
    a_values[3, 32:64] *= 2.0**30
    a_values[7] = 0
    b_values[11] = 0
    a, b = mxkern.quantize(a_values, "mxfp8"), mxkern.quantize(b_values, "mxfp8")
    want = product(a, b)
    for dtype in ("bfloat16", "float32"):
        got = mxkern.gemm(a, b, dtype=dtype)
        assert (got[7] == 0).all() and (got[:, 11] == 0).all()
        for rows in (slice(0, 3), slice(3, 4), slice(4, 200)):  # each against its own size
            assert_near(got[rows], want[rows], FOLDED_ERROR, dtype)


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_poison_stays_in_its_row_or_column(scheme: str, dtype: str) -> None:
    m, n, k = 140, 270, 288
    options = {"amax": 8.0} if scheme == "nvfp4" else {}
    clean = [mxkern.quantize(values("normal", r, k, r), scheme, **options) for r in (m, n)]
    bad = [mxkern.quantize(values("normal", r, k, r), scheme, **options) for r in (m, n)]
    nan = mxkern.schemes[scheme].nan_scale
    bad[0].scales.view(torch.uint8)[17, 2] = nan
    bad[1].scales.view(torch.uint8)[200, 0] = nan
    poisoned = torch.zeros(m, n, dtype=torch.bool, device="cuda")
    poisoned[17], poisoned[:, 200] = True, True
    precisions = ["auto", "exact"] + (["folded"] if on_hopper() and scheme in FOLDABLE else [])
    for precision in precisions:
        got = mxkern.gemm(*bad, dtype=dtype, precision=precision)
        want = mxkern.gemm(*clean, dtype=dtype, precision=precision)
        assert torch.equal(torch.isnan(got), poisoned), precision
        assert torch.equal(got[~poisoned], want[~poisoned]), precision


def test_infinities_of_e5m2() -> None:
    a = mxkern.quantize(values("normal", 40, 96, 1).abs(), "mxfp8_e5m2")
    b = mxkern.quantize(values("normal", 50, 96, 2).abs() + 0.5, "mxfp8_e5m2")
    a.codes.view(torch.uint8)[5, 40] = 0x7C
    for precision in ["exact"] + (["folded"] if on_hopper() else []):
        got = mxkern.gemm(a, b, precision=precision)
        assert torch.isposinf(got[5]).all() and torch.isfinite(got[:5]).all(), precision
        assert torch.isfinite(got[6:]).all(), precision


@pytest.mark.parametrize("a_dtype", DTYPES)
@pytest.mark.parametrize("scheme", SCHEMES)
def test_plain_left_operand(scheme: str, a_dtype: str) -> None:
    for m, n, k in [(1, 40, 64), (17, 130, 160), (300, 70, 96), (513, 256, 544), (64, 33, 1000)]:
        whole = values("normal", m, k + 3, m).to(getattr(torch, a_dtype))
        b = quantized(scheme, n, k, n)
        for a in (whole[:, :k].contiguous(), whole[:, 3:], whole[:, :k]):
            want = product(a, b)
            for dtype in DTYPES:
                got = mxkern.gemm(a, b, dtype=dtype, alpha=0.125)
                what = f"{a_dtype} {scheme} {(m, n, k)} {dtype}"
                assert_near(got, want / 8, EXACT_ERROR, what)


@pytest.mark.parametrize("form", [None, "few_tokens", "expanded"])
@pytest.mark.parametrize("a_dtype", DTYPES)
def test_the_last_token_of_each_sequence(a_dtype: str, form: str | None) -> None:
    """Matrices of one row that lie far apart are the rows of one matrix."""
    b = quantized("mxfp4", 200, 416, 1)
    b = b if form is None else mxkern.prepare_operand(b, form=form)
    for sequences in (3, 48, 300):
        x = values("normal", sequences * 5, 416, 2).to(getattr(torch, a_dtype))
        last = x.reshape(sequences, 5, 416)[:, -1:]
        want = mxkern.gemm(last.contiguous(), b, dtype="bfloat16")
        assert torch.equal(mxkern.gemm(last, b, dtype="bfloat16"), want)
        q = mxkern.quantize(last, "mxfp8")
        assert torch.equal(
            mxkern.dequantize(q), mxkern.dequantize(mxkern.quantize(last.contiguous(), "mxfp8"))
        )


@pytest.mark.parametrize("a_dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("scheme", SCHEMES)
def test_few_tokens(scheme: str, a_dtype: str) -> None:
    """Weights in the order of few tokens: every number of tokens, ragged extents, views."""
    for n, k in [(130, 160), (64, 1000), (300, 544), (33, 31)]:
        b = quantized(scheme, n, k, n)
        ready = mxkern.prepare_operand(b, form="few_tokens")
        bias = values("normal", 1, n, 3)[0]
        for m in (1, 3, 8, 9, 16, 17, 40, 64, 65, 130, 256, 257):
            whole = values("normal", m, k + 3, m).to(getattr(torch, a_dtype))
            for a in (whole[:, :k].contiguous(), whole[:, 3:]):
                want = product(a, b)
                dtype = DTYPES[m % 3]
                got = mxkern.gemm(a, ready, dtype=dtype, alpha=0.125)
                what = f"{a_dtype} {scheme} {(m, n, k)} {dtype}"
                assert_near(got, want / 8, EXACT_ERROR, what)
                out = values("normal", m, n, 4).bfloat16()
                want = want + bias.double() - 2 * out.double()
                mxkern.gemm(a, ready, out=out, beta=-2.0, bias=bias)
                assert_near(out, want, EXACT_ERROR, what)
    batched = values("normal", 6 * 4, 31, 5).to(getattr(torch, a_dtype)).reshape(2, 3, 4, 31)
    assert relative(mxkern.gemm(batched, ready), product(batched, b)) <= EXACT_ERROR
    many = mxkern.quantize(values("normal", 6 * 40, 31, 6).reshape(2, 3, 40, 31), scheme)
    ready = mxkern.prepare_operand(many, form="few_tokens")
    assert relative(mxkern.gemm(batched, ready), product(batched, many)) <= EXACT_ERROR
    assert torch.equal(mxkern.gemm(batched, ready), mxkern.gemm(batched, ready))


@hopper
@pytest.mark.parametrize("scheme", SCHEMES)
def test_few_quantized_tokens(scheme: str) -> None:
    """Rows that are quantized, of several powers of two, with weights prepared for few tokens."""
    n, k = 200, 544
    for turn, weights in enumerate(("mxfp4", "nvfp4", "mxfp8")):
        w = mxkern.quantize(values("normal", n, k, 2), weights)
        ready = mxkern.prepare_operand(w, form="few_tokens", keep_source=weights == "mxfp4")
        for m in (1, 8, 16, 33, 64, 130):
            x = (
                values("normal", m, k, m)
                * torch.exp2(torch.arange(m, device="cuda") % 9 - 4)[:, None]
            )
            a = mxkern.quantize(x, scheme, scale_layout=("row_major", "swizzled")[turn % 2])
            assert mxkern.explain_gemm(a, ready).path == "few tokens"
            bias = values("normal", 1, n, 5)[0]
            got = mxkern.gemm(a, ready, bias=bias, alpha=0.75)
            want = 0.75 * product(a, w) + bias.double()
            assert relative(got, want) <= EXACT_ERROR, (weights, m)
            assert torch.equal(got, mxkern.gemm(a, ready, bias=bias, alpha=0.75))


@pytest.mark.parametrize("dtype", DTYPES)
def test_alpha_beta_bias_out(dtype: str) -> None:
    for left in ("mxfp8", "plain"):
        a = values("normal", 133, 256, 1).bfloat16()
        if left == "mxfp8":
            a = mxkern.quantize(a, left)
        b = mxkern.quantize(values("normal", 75, 256, 2), "mxfp6_e3m2")
        for bias_dtype in DTYPES:
            bias = values("normal", 1, 75, 3)[0].to(getattr(torch, bias_dtype))
            start = values("normal", 133, 75, 4).to(getattr(torch, dtype))
            out = start.clone()
            assert mxkern.gemm(a, b, out=out, alpha=0.5, beta=-2.0, bias=bias) is out
            want = 0.5 * product(a, b) - 2.0 * start.double() + bias.double()
            assert_near(out, want, FOLDED_ERROR, (left, bias_dtype))


def test_beta_zero_does_not_read_out() -> None:
    a = mxkern.quantize(torch.ones(3, 32, device="cuda"), "mxfp4")
    out = torch.full((3, 3), torch.nan, device="cuda", dtype=torch.bfloat16)
    assert (mxkern.gemm(a, a, out=out) == 32).all()


def test_batches() -> None:
    a = mxkern.quantize(values("normal", 6 * 70, 96, 1).reshape(2, 3, 70, 96), "mxfp8")
    many = mxkern.quantize(values("normal", 6 * 40, 96, 2).reshape(2, 3, 40, 96), "mxfp4")
    one = mxkern.quantize(values("normal", 40, 96, 3), "mxfp8", scale_layout="swizzled")
    swizzled = mxkern.quantize(
        values("normal", 6 * 70, 96, 1).reshape(2, 3, 70, 96), "mxfp8", scale_layout="swizzled"
    )
    plain = values("normal", 6 * 70, 96, 1).reshape(2, 3, 70, 96).bfloat16()
    for left in (a, swizzled, plain):
        for right in (many, one):
            for dtype in ("bfloat16", "float32"):
                got = mxkern.gemm(left, right, dtype=dtype)
                want = product(left, right)
                assert got.shape == (2, 3, 70, 40)
                assert_near(got, want, FOLDED_ERROR)
    vector = values("normal", 1, 96, 4)[0].bfloat16()
    assert mxkern.gemm(vector, one).shape == (40,)
    assert relative(mxkern.gemm(vector, one), product(vector[None], one)[0]) <= EXACT_ERROR


@pytest.mark.parametrize("shapes", [((3, 0), (4, 0)), ((0, 32), (4, 32)), ((3, 32), (0, 32))])
def test_zero_sizes(shapes: tuple[tuple[int, int], tuple[int, int]]) -> None:
    bias = torch.arange(shapes[1][0], device="cuda", dtype=torch.float32)
    for scheme in ("mxfp8", "nvfp4"):
        a, b = (mxkern.quantize(torch.ones(shape, device="cuda"), scheme) for shape in shapes)
        for left in (a, torch.ones(shapes[0], device="cuda", dtype=torch.bfloat16)):
            for dtype in DTYPES:
                got = mxkern.gemm(left, b, bias=bias, dtype=dtype)
                assert got.shape == (shapes[0][0], shapes[1][0])
                if shapes[0][1] == 0:
                    assert torch.equal(got.float(), bias.expand(3, -1))


def test_agrees_with_the_cpu() -> None:
    x, y = (random_values((n, 200), "bfloat16", n) for n in (70, 90))
    for scheme in SCHEMES:
        on_cpu = [mxkern.quantize(v, scheme) for v in (x, y)]
        on_gpu = [mxkern.quantize(array_of("torch", v).cuda(), scheme) for v in (x, y)]
        want = torch.from_numpy(mxkern.gemm(*on_cpu)).cuda()
        assert relative(mxkern.gemm(*on_gpu), want.double()) <= EXACT_ERROR, scheme


def test_more_than_2_to_31_elements() -> None:
    """Offsets into operands and into the output that do not fit into 32 bits."""
    free, _ = torch.cuda.mem_get_info()
    if free < 40 << 30:
        pytest.skip("less than 40 GiB of memory are free")
    for m, n, k in ((66_000, 34_000, 64), (70_000, 96, 32_768)):
        a = mxkern.quantize(values("normal", m, k, 1).bfloat16(), "mxfp8")
        b = mxkern.quantize(values("normal", n, k, 2).bfloat16(), "mxfp4")
        rows = torch.tensor([0, 1, m // 2, m - 130, m - 1], device="cuda")
        want = exact(mxkern.dequantize(a)[rows]) @ exact(b).T
        for precision in ("auto", "exact"):
            got = mxkern.gemm(a, b, dtype="bfloat16", precision=precision)
            assert_near(got[rows], want, FOLDED_ERROR, (m, n, k))
            del got
        del a, b
        torch.cuda.empty_cache()
