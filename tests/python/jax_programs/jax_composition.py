# tests/python/jax_programs/jax_composition.py: a layer's products as calls of quantize_both and
# gemm on NumPy arrays, which mxkern.jax.dot is compared with, and the recipes to compare.
from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import mxkern
from mxkern.jax import Operand, Recipe, dot, mx, mxfp4, mxfp8, nvfp4
from mxkern.values.seeds import operand_seed
from support import NUMPY_DTYPES

SEED, STEP = 2**64 - 3, 2**40 + 5
_RANDOM = Operand("mxfp4", rounding="stochastic")

RECIPES: dict[str, Recipe] = {
    "mxfp8": mxfp8(),
    "32x32": mxfp8(weight_block="32x32", scale_rule="floor"),
    "hybrid": mxfp8("hybrid"),
    "nvfp4": nvfp4(),
    "nvfp4, 4over6": nvfp4(hadamard=None, weight_block=None, four_over_six="mae"),
    "mxfp4": mxfp4(),
    "mxfp4, signs": mxfp4(hadamard=16, sign_mask=0x1234, rounding="nearest"),
    "mxfp6_e2m3": mx("mxfp6_e2m3"),
    "mxfp6_e3m2": mx("mxfp6_e3m2"),
    "mxint8": mx("mxint8", scale_rule="even"),
    "all random": Recipe(_RANDOM, _RANDOM, _RANDOM),
    "all random, saved plain": Recipe(
        _RANDOM, _RANDOM, _RANDOM, save="plain", save_weight="requantize"
    ),
    "no forward": nvfp4(forward="plain"),
    "no dgrad": nvfp4(dgrad="plain"),
    "no wgrad": nvfp4(wgrad="plain"),
    "dequantized": mxfp8(backward="dequantized"),
    "dequantized, no wgrad": nvfp4(backward="dequantized", wgrad="plain"),
    "plain backward": nvfp4(backward="plain"),
    "saved plain": nvfp4(save="plain"),
    "requantized": nvfp4(save_weight="requantize"),
    "all plain": mxfp8(forward="plain", backward="plain"),
}


class Case:
    """Operands of a layer, and a gradient of its output, as NumPy arrays."""

    def __init__(
        self,
        *leading: int,
        outputs: int = 24,
        features: int = 40,
        dtype: str = "float32",
        weight_dtype: str = "",
        seed: int = 0,
        octaves: int = 4,
    ) -> None:
        weight_dtype = weight_dtype or dtype
        self.x = _values((*leading, features), dtype, seed, octaves)
        self.w = _values((outputs, features), weight_dtype, seed + 1, octaves)
        self.bias = _values((outputs,), weight_dtype, seed + 2, octaves)
        self.g = _values((*leading, outputs), dtype, seed + 3, octaves)

    @property
    def arrays(self) -> list[Any]:
        """x, w, bias and g as JAX has them."""
        return [jnp.asarray(each) for each in (self.x, self.w, self.bias, self.g)]


def _values(shape: tuple[int, ...], dtype: str, seed: int, octaves: int) -> np.ndarray:
    """Normal values under row scales of some octaves, so that products fit float16."""
    generator = np.random.default_rng([seed, *shape])
    scales = 2.0 ** generator.integers(-octaves, octaves + 1, (*shape[:-1], 1))
    return (generator.standard_normal(shape) * scales).astype(NUMPY_DTYPES[dtype])


def differentiated(
    recipe: Recipe, x: Any, w: Any, bias: Any, g: Any, step: Any = STEP
) -> dict[str, Any]:
    """y, dx, dw and db of dot."""

    def function(x: Any, w: Any, bias: Any) -> Any:
        return dot(x, w, recipe, bias=bias, seed=SEED, step=step)

    y, back = jax.vjp(function, x, w, bias)
    return dict(zip(("y", "dx", "dw", "db"), (y, *back(g)), strict=True))


def composed(case: Case, recipe: Recipe, step: int = STEP) -> dict[str, tuple[np.ndarray, bool]]:
    """y, dx, dw and db, and whether they are to be equal to the bit."""
    x, g = (each.reshape(-1, each.shape[-1]) for each in (case.x, case.g))
    x_rows, x_columns = _both(x, recipe.input, "input", step)
    w_rows, w_columns = _both(case.w, recipe.weight, "weight", step)
    g_rows, g_columns = _both(g, recipe.gradient, "gradient", step)
    dgrad, wgrad = (
        "plain" if product == "plain" else recipe.backward
        for product in (recipe.dgrad, recipe.wgrad)
    )
    dtype, weight_dtype = x.dtype, case.w.dtype

    if recipe.forward == "quantized":
        y = mxkern.gemm(x_rows, w_rows, dtype=dtype, bias=case.bias)
    else:
        y = (_wide(x) @ _wide(case.w.astype(dtype)).T + _wide(case.bias)).astype(dtype)
    if dgrad == "quantized":
        dx = mxkern.gemm(g_rows, w_columns, dtype=dtype)
    else:
        w = mxkern.dequantize(w_rows, dtype=dtype) if dgrad == "dequantized" else case.w
        dx = (_wide(g) @ _wide(w.astype(dtype))).astype(dtype)
    if wgrad == "quantized":
        dw = mxkern.gemm(g_columns, x_columns, dtype=weight_dtype)
    else:
        x = mxkern.dequantize(x_rows, dtype=dtype) if wgrad == "dequantized" else x
        dw = (_wide(g).T @ _wide(x)).astype(weight_dtype)
    db = _wide(g).sum(0).astype(weight_dtype)
    return {
        "y": (y.reshape(case.g.shape), recipe.forward == "quantized"),
        "dx": (dx.reshape(case.x.shape), dgrad == "quantized"),
        "dw": (dw, wgrad == "quantized"),
        "db": (db, False),
    }


def _both(x: np.ndarray, operand: Operand, name: str, step: int) -> tuple[Any, Any]:
    options: dict[str, Any] = {"block": operand.block}
    if operand.scheme == "nvfp4":
        options["four_over_six"] = operand.four_over_six
    else:
        options["scale_rule"] = operand.scale_rule
    if operand.rounding == "stochastic":
        options |= {"rounding": "stochastic", "seed": operand_seed(SEED, name), "offset": step}
    group = operand.hadamard or 1
    transform = {"hadamard": operand.hadamard, "sign_mask": operand.sign_mask}
    if x.shape[0] % group == 0:
        return mxkern.quantize_both(x, operand.scheme, **transform, **options)
    filled = np.zeros((x.shape[0] + group - x.shape[0] % group, x.shape[1]), x.dtype)
    filled[: x.shape[0]] = x
    _, columns = mxkern.quantize_both(filled, operand.scheme, **transform, **options)
    return mxkern.quantize(x, operand.scheme, **options), columns


def _wide(array: np.ndarray) -> np.ndarray:
    return array.astype(np.float64)


def check(
    got: dict[str, Any],
    want: dict[str, tuple[np.ndarray, bool]],
    what: str,
    rounded_to: str = "",
) -> None:
    """Equal to the bit where that is promised, else up to the rounding of sums and results, to
    their own dtype unless another one is named."""
    for name, (wanted, exactly) in want.items():
        found = np.asarray(got[name])
        assert (found.shape, found.dtype) == (wanted.shape, wanted.dtype), f"{what}: {name}"
        if exactly:
            assert found.tobytes() == wanted.tobytes(), f"{what}: {name} has other bytes"
        else:
            spacing = {"float32": 2.0**-20, "float16": 2.0**-9, "bfloat16": 2.0**-6}
            error = np.linalg.norm(_wide(found) - _wide(wanted))
            bound = spacing[rounded_to or wanted.dtype.name] * np.linalg.norm(_wide(wanted))
            assert error <= bound, f"{what}: {name} is off by {error}, more than {bound}"
