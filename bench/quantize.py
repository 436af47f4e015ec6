# bench/quantize.py: quantize along rows, columns and both, as a share of memcpy's speed.
from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import mxkern
from bench.copy_shares import shares
from bench.inputs import check_equal, random_matrix
from bench.shapes import DTYPES, MEGABYTES, SCHEMES


def run() -> Iterator[dict[str, Any]]:
    """One record a scheme, dtype, size, direction and scale layout."""
    for dtype in DTYPES:
        for megabytes in MEGABYTES:
            yield from _group(dtype, megabytes, "rows", "row_major")
        yield from _group(dtype, MEGABYTES[0], "columns", "row_major")
        yield from _group(dtype, MEGABYTES[0], "both", "row_major")
        yield from _group(dtype, MEGABYTES[0], "rows", "swizzled")
        yield from _stochastic_group(dtype, MEGABYTES[0])


def _stochastic_group(dtype: str, megabytes: int) -> Iterator[dict[str, Any]]:
    """Rounded stochastically, for which there is no goal."""
    x = random_matrix(dtype, megabytes)
    for name, quantize in (("rows", mxkern.quantize), ("columns", mxkern.quantize_columns)):
        cases = [_stochastic_case(x, scheme, quantize) for scheme in SCHEMES]
        facts = {"dtype": dtype, "megabytes": megabytes, "scale_layout": "row_major"}
        yield from shares(x.nbytes, cases, direction=f"{name}, stochastic", goal=None, **facts)


def _stochastic_case(
    x: np.ndarray, scheme: str, quantize: Callable[..., Any]
) -> tuple[Callable[[], object], int]:
    """The same as _case; the mean of many draws is the value."""
    reads = 2 if mxkern.schemes[scheme].has_tensor_scale else 1
    some = x[:256, :256]
    draws = (quantize(some, scheme, rounding="stochastic", seed=seed) for seed in range(64))
    mean = np.mean([mxkern.dequantize(q) for q in draws], axis=0)
    values = (some if quantize is mxkern.quantize else some.T).astype(np.float32)
    error = np.linalg.norm(mean - values) / np.linalg.norm(values)
    assert error < 0.05, f"the mean of {scheme} is off by {error}"
    q = quantize(x, scheme, rounding="stochastic", seed=1)
    return (
        lambda: quantize(x, scheme, rounding="stochastic", seed=1, out=q),
        reads * x.nbytes + q.nbytes,
    )


def _group(dtype: str, megabytes: int, direction: str, layout: str) -> Iterator[dict[str, Any]]:
    x = random_matrix(dtype, megabytes)
    cases = [_case(x, scheme, direction, layout) for scheme in SCHEMES]
    yield from shares(
        x.nbytes,
        cases,
        dtype=dtype,
        megabytes=megabytes,
        direction=direction,
        scale_layout=layout,
    )


def _case(
    x: np.ndarray, scheme: str, direction: str, layout: str
) -> tuple[Callable[[], object], int]:
    """A call into outputs that are there already, its result checked, and the bytes it moves."""
    reads = 2 if mxkern.schemes[scheme].has_tensor_scale else 1  # the first pass finds the amax
    _check(x[: 4 * 32], scheme, direction, layout)
    if direction == "both":
        both = mxkern.quantize_both(x, scheme, scale_layout=layout)
        moved = reads * x.nbytes + both[0].nbytes + both[1].nbytes
        return lambda: mxkern.quantize_both(x, scheme, scale_layout=layout, out=both), moved
    quantize = mxkern.quantize if direction == "rows" else mxkern.quantize_columns
    q = quantize(x, scheme, scale_layout=layout)
    return lambda: quantize(x, scheme, scale_layout=layout, out=q), reads * x.nbytes + q.nbytes


def _check(x: np.ndarray, scheme: str, direction: str, layout: str) -> None:
    """The values of every direction and layout are those of quantize on rows or the transpose."""
    rows = mxkern.dequantize(mxkern.quantize(x, scheme))
    columns = mxkern.dequantize(mxkern.quantize(np.ascontiguousarray(x.T), scheme))
    error = np.linalg.norm(rows - x.astype(np.float32)) / np.linalg.norm(x.astype(np.float32))
    assert error < 0.2, f"quantize {scheme}: relative error {error}"
    if direction == "both":
        found = mxkern.quantize_both(x, scheme, scale_layout=layout)
        check_equal(f"quantize_both {scheme}", mxkern.dequantize(found[0]), rows)
        check_equal(f"quantize_both {scheme}", mxkern.dequantize(found[1]), columns)
    elif direction == "columns":
        q = mxkern.quantize_columns(x, scheme, scale_layout=layout)
        check_equal(f"quantize_columns {scheme}", mxkern.dequantize(q), columns)
    else:
        q = mxkern.quantize(x, scheme, scale_layout=layout)
        check_equal(f"quantize {scheme} {layout}", mxkern.dequantize(q), rows)
