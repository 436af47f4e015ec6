# tests/python/ops/test_stochastic_rounding.py: its bytes against the reference, and its mean.
from __future__ import annotations

import itertools

import numpy as np
import pytest

import mxkern
import reference
from support import DTYPES, SCHEMES, check_quantized, random_values, raw


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("scheme", SCHEMES)
def test_stochastic_rounding(scheme: str, dtype: str) -> None:
    options = [(0, 0), (12345, 7), (2**64 - 1, 2**64 - 1)]
    for shape, (seed, offset), columns in itertools.product(
        [(3, 33), (40, 70), (2, 5, 48)], options, (False, True)
    ):
        x = random_values(shape, dtype)
        x.reshape(-1)[:3] = [np.nan, 0.0, -0.0]
        operation = mxkern.quantize_columns if columns else mxkern.quantize
        q = operation(x, scheme, rounding="stochastic", seed=seed, offset=offset)
        want = reference.quantize(x, scheme, seed=seed, offset=offset, columns=columns)
        result = (*shape[:-2], shape[-1], shape[-2]) if columns else shape
        check_quantized(q, want, result, f"{scheme} {dtype} {shape} {seed} columns={columns}")


def test_philox_gives_the_published_answers() -> None:
    """The reference's generator, by vectors of its authors (Random123, kat_vectors): digits of pi
    as key and counter."""
    number = np.array([0x85A308D3243F6A88], np.uint64)
    key, offset = 0x299F31D0A4093822, 0x0370734413198A2E
    for rounds, want in (
        (7, [0x4DFCCABA, 0x190A87F0, 0xC47362BA, 0xB6B5242A]),
        (10, [0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1]),
    ):
        got = [int(word[0]) for word in reference.philox(rounds, key, offset, number)]
        assert got == want, f"{rounds} rounds: got {list(map(hex, got))}"
    words = reference.random_words(0, 0, np.arange(8))
    want_words = [0xB709, 0x5F6F, 0x3F64, 0x0D89, 0x1F81, 0x4F12, 0x0A48, 0x4F73]
    assert words.tolist() == want_words, list(map(hex, words.tolist()))


@pytest.mark.parametrize("scheme", SCHEMES)
def test_stochastic_rounding_is_unbiased(scheme: str) -> None:
    """4096 draws of each element: within five standard errors and 2^-17 of a step; what has a code
    never moves. Elements that saturate are left out."""
    draws = 4096
    x = np.tile(np.linspace(-1, 1, 64, dtype=np.float32), (draws, 1))
    values = mxkern.dequantize(mxkern.quantize(x, scheme, rounding="stochastic", seed=1))
    # All that the blocks can decode to, from what NumPy makes of the codes of each of their scales.
    format = reference.FORMATS[reference.SCHEMES[scheme][0]]
    q = mxkern.quantize(x[:1], scheme)
    scales = np.repeat(raw(q.scales)[0], mxkern.schemes[scheme].block)
    if scheme == "nvfp4":
        unit = reference.e4m3_values(scales).astype(np.float64) * float(q.tensor_scale)
    else:
        unit = 2.0 ** (scales.astype(int) - 127)
    place = np.abs(x[0].astype(np.float64)) / unit
    saturated = place > format.magnitudes()[-1] * (1 + 1e-6)
    step = format.last_place(place)
    fraction = place / step - np.floor(place / step)
    error = np.sqrt(fraction * (1 - fraction) / draws)
    off = np.abs(values.mean(0, dtype=np.float64) - x[0]) / (unit * step)
    allowed = 5 * error + 2.0**-17 + 1e-5  # NVFP4's scale is a rounded product
    wrong = (off > allowed) & ~saturated
    assert saturated.sum() < 8
    assert not wrong.any(), f"{scheme}: {x[0][wrong]} are off by {off[wrong]} of a step"
