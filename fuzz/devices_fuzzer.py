"""fuzz/devices_fuzzer.py: random calls give the same bytes on the CPU and on a GPU, and products
of both are as near to those in double precision as gemm promises.

usage: devices_fuzzer.py SECONDS [FIRST_SEED]. Reproducible: call i comes from seed i. Needs PyTorch
and a GPU.
"""

import itertools
import random
import sys
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import torch
from random_operands import (
    DTYPES,
    SCHEMES,
    before,
    check_product,
    expect_same,
    extent,
    multiplied,
    on_gpu,
    operand,
    output,
    plain,
)

import mxkern

FOLDABLE = [name for name in SCHEMES if name not in ("mxint8", "nvfp4")]
EXACT, FOLDED = 2e-5, 5e-4
HAS_FOLDED = torch.cuda.is_available() and torch.cuda.get_device_capability() == (9, 0)


def leading(source: random.Random) -> tuple[int, ...]:
    return source.choice([(), (), (), (1,), (3,), (2, 3)])


def quantize_options(source: random.Random, scheme: str, both: bool) -> dict[str, Any]:
    options: dict[str, Any] = {"scale_layout": source.choice(["row_major", "swizzled"])}
    if source.random() < 0.3:
        options |= {"rounding": "stochastic", "seed": source.randrange(2**64)}
        options["offset"] = source.choice([0, 1, source.randrange(2**64)])
    way = source.randrange(4)
    if way == 0:
        block = mxkern.schemes[scheme].block
        options["block"] = (block, block)
    elif way == 1:
        options["hadamard"] = source.choice([16, 32, 64, 128])
        if source.random() < 0.5:
            options["sign_mask"] = source.randrange(2 ** options["hadamard"])
        if both and source.random() < 0.5:
            options["hadamard_rows"] = True
    if scheme == "nvfp4":
        options["four_over_six"] = source.choice([False, False, False, True, "mae"])
        given = source.choice(["amax", "tensor_scale", None, None])
        if given is not None:
            options[given] = source.choice([0.0, 1.0, 3.7, 448.0 * 6, 2.0**-30, 1e30])
    else:
        options["scale_rule"] = source.choice(["rceil", "floor", "ceil", "even"])
    return options


def quantize(source: random.Random) -> None:
    scheme = source.choice(SCHEMES)
    name = source.choice(["quantize", "quantize_columns", "quantize_both"])
    options = quantize_options(source, scheme, name == "quantize_both")
    rows, columns = extent(source, 700), extent(source, 1500)
    if "hadamard" in options:
        size = options["hadamard"]
        rows, columns = -(-rows // size) * size, -(-columns // size) * size
    x = plain(source, (*leading(source), rows, columns), finite=False)
    function: Callable[..., Any] = getattr(mxkern, name)
    on_cpu = function(x, scheme, **options)
    if "offset" in options and source.random() < 0.5:  # where a graph would find it
        offset = options["offset"]
        signed = offset - 2**64 if offset >= 2**63 else offset
        options["offset"] = torch.tensor([signed], dtype=torch.int64, device="cuda")
    expect_same(name, on_cpu, function(on_gpu(x), scheme, **options))


def fake_quantize(source: random.Random) -> None:
    scheme = source.choice(SCHEMES)
    options = quantize_options(source, scheme, False)
    for name in ("scale_layout", "hadamard", "sign_mask"):
        options.pop(name, None)
    shape = (*leading(source), extent(source, 700), extent(source, 1500))
    x = plain(source, shape, finite=False)
    on_cpu = mxkern.fake_quantize(x, scheme, **options)
    given = on_gpu(x)
    expect_same("fake_quantize", on_cpu, mxkern.fake_quantize(given, scheme, **options))
    in_place = mxkern.fake_quantize(given, scheme, out=given, **options)
    expect_same("fake_quantize in place", on_cpu, in_place)


def any_codes(source: random.Random, scheme: str, shape: tuple[int, ...]) -> mxkern.BlockScaled:
    """Codes and scales of any bytes."""
    layout = source.choice(["row_major", "swizzled"])
    q = mxkern.quantize(torch.zeros(shape), scheme, scale_layout=layout)
    generator = torch.Generator().manual_seed(source.randrange(2**32))
    for part in (q.codes, q.scales):
        view = part.view(torch.uint8)
        view.copy_(torch.randint(0, 256, view.shape, dtype=torch.uint8, generator=generator))
    if q.tensor_scale is not None:
        q.tensor_scale.fill_(source.choice([0.0, 1.0, 3e-4, 7e30, float("inf"), float("nan")]))
    return q


def dequantize(source: random.Random) -> None:
    shape = (*leading(source), extent(source, 700), extent(source, 1500))
    q = any_codes(source, source.choice(SCHEMES), shape)
    dtype = str(source.choice(DTYPES)).removeprefix("torch.")
    expect_same(
        "dequantize", mxkern.dequantize(q, dtype=dtype), mxkern.dequantize(on_gpu(q), dtype=dtype)
    )


def transform(source: random.Random) -> None:
    size = source.choice([16, 32, 64, 128])
    shape = (*leading(source), extent(source, 500), size * source.randint(1, 12))
    x = plain(source, shape, finite=False)
    options = {"inverse": source.random() < 0.5, "sign_mask": source.randrange(2**size)}
    a, b = (mxkern.random_hadamard(y, size, **options) for y in (x, on_gpu(x)))
    # What a NaN looks like is not said.
    if not torch.equal(a.isnan(), b.cpu().isnan()):
        raise AssertionError("random_hadamard: other NaNs")
    expect_same("random_hadamard", a.nan_to_num(0.5), b.nan_to_num(0.5))
    expect_same("tensor_amax", mxkern.tensor_amax(x), mxkern.tensor_amax(on_gpu(x)))


def scales(source: random.Random) -> None:
    rows, blocks = extent(source, 700), extent(source, 300)
    generator = torch.Generator().manual_seed(source.randrange(2**32))
    x = torch.randint(
        0, 256, (*leading(source), rows, blocks), dtype=torch.uint8, generator=generator
    )
    swizzled = mxkern.swizzle_scales(x)
    expect_same("swizzle_scales", swizzled, mxkern.swizzle_scales(on_gpu(x)))
    back = mxkern.unswizzle_scales(on_gpu(swizzled), rows, blocks)
    expect_same("unswizzle_scales", x, back)


def product(source: random.Random) -> None:
    """On both devices."""
    batch = source.choice([(), (), (), (2,), (3,)])
    m = source.choice([source.randint(1, 64), extent(source, 700)])
    n, k = extent(source, 700), source.choice([32, 96, 128, 160, 512, extent(source, 1500)])
    multiply(source, batch, (m, n, k), on_both=True)


def large_product(source: random.Random) -> None:
    """Of many tiles, whose rows are made ready while others are multiplied."""
    m = source.choice([source.randint(1, 300), 2048, 4096, source.randint(300, 6000)])
    n = source.choice([4096, 6144, source.randint(1000, 6000)])
    k = source.choice([4096, 4096, 4224, 6144, 8192, source.randint(1000, 6000)])
    multiply(source, (), (m, n, k), on_both=False)


def long_product(source: random.Random) -> None:
    """Of sums that have parts where the output is float32."""
    m, n = source.randint(1, 200), source.randint(1, 200)
    multiply(source, (), (m, n, source.randint(8193, 30000)), on_both=True)


def multiply(
    source: random.Random, batch: tuple[int, ...], extents: tuple[int, int, int], on_both: bool
) -> None:
    m, n, k = extents
    right_batch = source.choice([batch, ()])
    schemes = SCHEMES if on_both else [*SCHEMES, *["mxfp8_e4m3"] * 7]  # which has most ways
    b = operand(source, (*right_batch, n, k), source.choice(schemes))
    if source.random() < 0.4:
        a = plain(source, (*batch, m, k), finite=True)
        decoded_a = a.double()
    else:
        a = operand(source, (*batch, m, k), source.choice(schemes))
        decoded_a = mxkern.dequantize(a).double()
    decoded_b = mxkern.dequantize(b).double()
    if not on_both:
        decoded_a, decoded_b = decoded_a.cuda(), decoded_b.cuda()
    # A row that holds NaN is NaN; 0 * NaN as well.
    want = (decoded_a @ decoded_b.transpose(-1, -2)).cpu()
    dtype = source.choice(DTYPES)
    options: dict[str, Any] = {"dtype": str(dtype).removeprefix("torch.")}
    if source.random() < 0.3:
        options["alpha"] = source.choice([0.5, -3.0, 1.7])
    if source.random() < 0.3:
        options["bias"] = plain(source, (n,), finite=True)
    options |= output(source, tuple(want.shape), dtype)
    want = want * options.get("alpha", 1.0) + options.get("bias", torch.zeros(1)).double()
    want = want + before(options)
    if on_both:
        check_product("gemm on the CPU", multiplied(mxkern.gemm, a, b, **options), want, EXACT)
    options = {name: on_gpu(value) for name, value in options.items()}
    left, right = on_gpu(a), on_gpu(b)
    precision = source.choice(["exact", "auto"])
    form = source.choice([None, None, "auto", "folded", "expanded", "few_tokens"])
    if form is not None and (form != "folded" or b.scheme in FOLDABLE):
        alone = form == "expanded" and source.random() < 0.5
        right = mxkern.prepare_operand(right, form=form, keep_source=not alone)
    limit = EXACT * (1 if dtype == torch.float32 and form != "few_tokens" else max(1, k / 8192))
    if precision == "auto" and dtype != torch.float32:
        limit = max(limit, FOLDED)
    kind = a.scheme if isinstance(a, mxkern.BlockScaled) else a.dtype
    what = f"gemm on the GPU, {precision}, {kind} {m} x {k} by {b.scheme} {n}, {form}"
    options["precision"] = precision
    out = multiplied(mxkern.gemm, left, right, **options)
    check_product(what, out, want, limit)
    expect_same(what, out, multiplied(mxkern.gemm, left, right, **options))


def grouped_product(source: random.Random) -> None:
    """Rows of groups, on both devices; the GPU's ends are read by nobody else."""
    groups, n, k = source.randint(1, 40), source.choice([1, 33, 64, 200]), extent(source, 700)
    most = source.choice([1, 5, 20, 60, 200]) * 3 // (1 + groups // 4) + 1
    counts = [source.choice([0, source.randint(0, most)]) for _ in range(groups)]
    ends = torch.tensor(counts).cumsum(0).to(torch.int32)
    m = int(ends[-1]) + source.choice([0, 0, 7])
    b = operand(source, (groups, n, k), source.choice(SCHEMES))
    if m == 0 or source.random() < 0.6:
        a = plain(source, (m, k), finite=True)
        decoded = a.double()
    else:
        a = operand(source, (m, k), source.choice(SCHEMES))
        decoded = mxkern.dequantize(a).double()
    weights, want = mxkern.dequantize(b).double(), torch.zeros(m, n, dtype=torch.float64)
    dtype = source.choice(DTYPES)
    options: dict[str, Any] = {"dtype": str(dtype).removeprefix("torch.")}
    if source.random() < 0.3:
        options["bias"] = plain(source, (groups, n), finite=True)
    options |= output(source, (m, n), dtype)
    begin = 0
    for group, end in enumerate(ends.tolist()):
        want[begin:end] = decoded[begin:end] @ weights[group].T
        want[begin:end] += options.get("bias", torch.zeros(groups, 1))[group].double()
        begin = end
    want = want + before(options)
    on_cpu = multiplied(mxkern.grouped_gemm, a, b, ends, **options)
    check_product("grouped_gemm on the CPU", on_cpu, want, EXACT)
    forms = [None, "expanded", "few_tokens", "few_tokens"]
    expect_grouped(source, f"{counts} x {k}", (a, b, ends), options, want, forms)


def grouped_columns(source: random.Random) -> None:
    """Columns of groups, on both devices, as above."""
    groups, m, n = source.randint(1, 40), extent(source, 300), source.choice([1, 33, 200, 300])
    most = source.choice([1, 3, 10, 40]) * 3 // (1 + groups // 4) + 1
    counts = [source.choice([0, source.randint(0, most)]) * 32 for _ in range(groups)]
    ends = torch.tensor(counts).cumsum(0).to(torch.int32)
    k = int(ends[-1]) + source.choice([0, 0, 5, 32, 70])
    if source.random() < 0.3:
        ends[-1] = k
    b = operand(source, (n, k), source.choice(SCHEMES))
    if k == 0 or m == 0 or source.random() < 0.4:
        a = plain(source, (m, k), finite=True)
        decoded = a.double()
    else:
        a = operand(source, (m, k), source.choice(SCHEMES))
        decoded = mxkern.dequantize(a).double()
    right, bounds = mxkern.dequantize(b).double(), [0, *ends.tolist()]
    want = torch.stack([decoded[:, i:j] @ right[:, i:j].T for i, j in itertools.pairwise(bounds)])
    dtype = source.choice(DTYPES)
    options: dict[str, Any] = {"dtype": str(dtype).removeprefix("torch.")}
    if source.random() < 0.3:
        options["bias"] = plain(source, (groups, n), finite=True)
        want += options["bias"].double()[:, None]
    options |= output(source, (groups, m, n), dtype)
    want = want + before(options)
    on_cpu = multiplied(mxkern.grouped_gemm, a, b, ends, **options)
    check_product("grouped_gemm of columns on the CPU", on_cpu, want, EXACT)
    forms = [None, "expanded", "few_tokens"]
    expect_grouped(source, f"{m} x {ends.tolist()}", (a, b, ends), options, want, forms)


def expect_grouped(
    source: random.Random,
    shape: str,
    operands: tuple[Any, Any, Any],
    options: dict[str, Any],
    want: torch.Tensor,
    forms: list[str | None],
) -> None:
    """The product on the GPU, with the right operand in one of the forms."""
    a, b, ends = operands
    options = {name: on_gpu(value) for name, value in options.items()}
    left, right, ends = on_gpu(a), on_gpu(b), ends.cuda()
    form, limit = source.choice(forms), EXACT
    if HAS_FOLDED and b.scheme in FOLDABLE and getattr(a, "scheme", "") in FOLDABLE:
        options["precision"] = source.choice(["exact", "folded", "folded"])
        if options["precision"] == "folded":
            form, limit = source.choice([None, "folded"]), FOLDED
    if form is not None:
        right = mxkern.prepare_operand(right, form=form)
    kind = a.scheme if isinstance(a, mxkern.BlockScaled) else a.dtype
    what = f"grouped_gemm on the GPU, {kind} {shape} by {b.scheme} {tuple(b.shape)}, {form}"
    out = multiplied(mxkern.grouped_gemm, left, right, ends, **options)
    check_product(what, out, want, limit)
    expect_same(what, out, multiplied(mxkern.grouped_gemm, left, right, ends, **options))


CALLS = [quantize] * 3 + [
    fake_quantize,
    dequantize,
    transform,
    scales,
    grouped_product,
    grouped_columns,
]
CALLS += [product] * 3 + [large_product, long_product]


def main() -> None:
    seconds = float(sys.argv[1])
    first = seed = int(sys.argv[2]) if len(sys.argv) > 2 else 0
    counts: Counter[str] = Counter()
    failures = 0
    start = time.monotonic()
    while time.monotonic() - start < seconds:
        source = random.Random(seed)
        call = source.choice(CALLS)
        counts[call.__name__] += 1
        try:
            call(source)
        except (AssertionError, ValueError, TypeError, RuntimeError) as error:
            failures += 1
            print(f"seed {seed}, {call.__name__}: {error}", file=sys.stderr)
            if failures == 20 or "CUDA" in str(error):
                break
        seed += 1
    done = ", ".join(f"{count} {name}" for name, count in sorted(counts.items()))
    print(f"Done {seed - first} runs in {seconds:g} second(s), {failures} failed: {done}")
    sys.exit(failures > 0)


if __name__ == "__main__":
    main()
