# tests/python/ops/test_kept_options.py: options that are kept from call to call are those of each
# call, and wrong ones are refused each time.
from __future__ import annotations

from itertools import product
from typing import Any

import pytest

import mxkern
from support import random_values

CASES: list[dict[str, Any]] = [
    {"hadamard": size, "sign_mask": mask, "scale_rule": rule}
    for size, mask, rule in product((None, 16, 32), (None, 0x1234), ("rceil", "floor", "even"))
    if size is not None or mask is None
]


def parts(pair: Any) -> list[bytes]:
    return [part.tobytes() for q in pair for part in q.parts if part is not None]


def test_more_than_are_kept() -> None:
    x = random_values((64, 64), "float32")
    assert len(CASES) > 7, "two entries a case"
    first = [parts(mxkern.quantize_both(x, "mxfp8", **case)) for case in CASES]
    again = [parts(mxkern.quantize_both(x, "mxfp8", **case)) for case in CASES]
    assert first == again
    assert len({tuple(case) for case in first}) == len(CASES)
    for case, both in zip(CASES, first, strict=True):
        columns = mxkern.quantize_columns(x, "mxfp8", **case)
        assert parts([columns]) == both[2:]


def test_schemes_do_not_share() -> None:
    x = random_values((32, 32), "float32")
    for _ in range(2):
        mxkern.quantize(x, "nvfp4", four_over_six=True)
        with pytest.raises(ValueError, match="four_over_six is for nvfp4"):
            mxkern.quantize(x, "mxfp8", four_over_six=True)


def test_seeds_are_read_each_time() -> None:
    x = random_values((32, 64), "float32")
    seeds = [*range(20), *range(20)]
    codes = [
        mxkern.quantize(x, "mxfp4", rounding="stochastic", seed=seed).codes.tobytes()
        for seed in seeds
    ]
    assert codes[:20] == codes[20:] and len(set(codes)) == 20
