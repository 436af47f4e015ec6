# tests/python/pytorch/layers/test_linear_composition.py: a layer gives the bits of the functions
# that it is made of, for each recipe and switch.
from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

from layer_cases import EVERY, assert_equal, composed, data, gradients  # noqa: E402

import mxkern.torch as mxt  # noqa: E402
from support import mostly_slow  # noqa: E402

pytestmark = pytest.mark.usefixtures("device")

SHAPES = {"33x48x80": (33, 48, 80), "128x64x96": (128, 64, 96), "1x16x32": (1, 16, 32)}
SHAPES["17x33x50"] = (17, 33, 50)


@pytest.mark.parametrize("name", EVERY)
@pytest.mark.parametrize("shape", mostly_slow(SHAPES, "33x48x80"))
def test_equal(name: str, shape: str) -> None:
    m, n, k = SHAPES[shape]
    x, w, b, g = data(m, n, k)
    y = mxt.linear(x, w, b, EVERY[name], seed=9, step=4)
    assert_equal((y, *gradients(y, (x, w, b), g)), composed(x, w, b, g, EVERY[name], 9, 4))


@pytest.mark.slow
@pytest.mark.parametrize("name", EVERY)
@pytest.mark.parametrize("m", range(1, 34))
def test_few_tokens(name: str, m: int) -> None:
    x, w, b, g = data(m, 24, 40, torch.float32)
    y = mxt.linear(x, w, b, EVERY[name], seed=2, step=torch.tensor(m))
    assert_equal((y, *gradients(y, (x, w, b), g)), composed(x, w, b, g, EVERY[name], 2, m))
