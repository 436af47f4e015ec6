"""tests/python/pytorch/layer_cases.py: recipes, data, and a linear layer written out with mxkern's
functions, which the layer is compared with."""

from __future__ import annotations

from typing import Any

import torch

import mxkern
import mxkern.torch as mxt
from mxkern.values.recipe import Recipe

RECIPES: dict[str, Recipe] = {
    "mxfp8": mxt.mxfp8(),
    "mxfp8 32x32": mxt.mxfp8(weight_block="32x32"),
    "hybrid": mxt.mxfp8("hybrid"),
    "nvfp4": mxt.nvfp4(),
    "mxfp4": mxt.mxfp4(),
    "mxfp6_e2m3": mxt.mx("mxfp6_e2m3"),
    "mxfp6_e3m2": mxt.mx("mxfp6_e3m2"),
    "mxint8": mxt.mx("mxint8"),
}
SWITCHED: dict[str, Recipe] = {
    "forward plain": mxt.nvfp4(forward="plain"),
    "dgrad plain": mxt.mxfp4(dgrad="plain"),
    "wgrad plain": mxt.nvfp4(wgrad="plain"),
    "backward dequantized": mxt.nvfp4(backward="dequantized"),
    "backward dequantized, dgrad plain": mxt.mxfp8(backward="dequantized", dgrad="plain"),
    "backward plain": mxt.mxfp8(backward="plain"),
    "save plain": mxt.mxfp4(save="plain"),
    "requantize": mxt.nvfp4(save_weight="requantize"),
    "stochastic inputs": mxt.mxfp8().with_(
        input=mxt.Operand("mxfp8", rounding="stochastic"),
        weight=mxt.Operand("mxfp8", rounding="stochastic"),
    ),
    "floor": mxt.mxfp4(scale_rule="floor", hadamard=64),
}
EVERY = RECIPES | SWITCHED


def normal(*shape: int, dtype: Any = torch.bfloat16, seed: int = 0, grad: bool = True) -> Any:
    generator = torch.Generator("cpu").manual_seed(seed)
    values = torch.randn(shape, generator=generator, device="cpu").to(dtype)
    return values.to(torch.get_default_device()).requires_grad_(grad)


def data(
    m: int, n: int, k: int, dtype: Any = torch.bfloat16, weight_dtype: Any = None
) -> tuple[Any, Any, Any, Any]:
    """x, weight, bias and the gradient of y."""
    weight = normal(n, k, dtype=weight_dtype or dtype, seed=1)
    bias = normal(n, dtype=weight_dtype or dtype, seed=2)
    return normal(m, k, dtype=dtype), weight, bias, normal(m, n, dtype=dtype, seed=3, grad=False)


def decibels(wanted: Any, got: Any) -> float:
    wanted, got = wanted.detach().double(), got.detach().double()
    return float(20 * torch.log10(wanted.norm() / (wanted - got).norm()))


def gradients(y: Any, of: Any, upstream: Any) -> tuple[Any, ...]:
    return torch.autograd.grad(y, of, upstream)


def saved_by(call: Any) -> tuple[Any, list[Any]]:
    """What a call gives, and the tensors that it saves for backward."""
    saved: list[Any] = []

    def pack(tensor: Any) -> Any:
        saved.append(tensor)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        return call(), saved


def assert_equal(got: Any, wanted: Any) -> None:
    """Tensors, one by one, bit for bit."""
    for number, (ours, theirs) in enumerate(zip(got, wanted, strict=True)):
        assert ours.dtype == theirs.dtype and ours.shape == theirs.shape, number
        assert torch.equal(ours, theirs), (number, (ours.float() - theirs.float()).abs().max())


def _options(operand: Any, seed: int, step: int) -> dict[str, Any]:
    options = {"block": operand.block}
    if operand.scheme == "nvfp4":
        options["four_over_six"] = operand.four_over_six
    else:
        options["scale_rule"] = operand.scale_rule
    if operand.rounding == "stochastic":
        options |= {"rounding": "stochastic", "seed": seed, "offset": step}
    return options


def _rows(x: Any, operand: Any, seed: int, step: int) -> Any:
    return mxkern.quantize(x, operand.scheme, **_options(operand, seed, step))


def _columns(x: Any, operand: Any, seed: int, step: int) -> Any:
    options = _options(operand, seed, step)
    if operand.hadamard:
        options |= {"hadamard": operand.hadamard, "sign_mask": operand.sign_mask}
        missing = -len(x) % operand.hadamard
        x = torch.cat([x, x.new_zeros(missing, x.shape[1])])
    return mxkern.quantize_columns(x, operand.scheme, **options)


@torch.no_grad()
def composed(
    x: Any, w: Any, bias: Any, g: Any, recipe: Recipe, seed: int = 0, step: int = 0
) -> tuple[Any, ...]:
    """y, dx, dw and db, product by product."""
    from mxkern.values.seeds import operand_seed

    def product(left: Any, right: Any, dtype: Any, **more: Any) -> Any:
        hopper = x.is_cuda and torch.cuda.get_device_capability() == (9, 0)
        folds = left.scheme.startswith("mxfp") and right.scheme.startswith("mxfp")
        precision = "folded" if hopper and folds else "auto"
        if recipe.precision != "fast":
            precision = recipe.precision
        return mxkern.gemm(left, right, dtype=dtype, precision=precision, **more)

    xs, ws = operand_seed(seed, "input"), operand_seed(seed, "weight")
    x_rows, w_rows = _rows(x, recipe.input, xs, step), _rows(w, recipe.weight, ws, step)
    dtype = x.dtype
    if recipe.forward == "quantized":
        y = product(x_rows, w_rows, dtype, bias=bias)
    else:
        y = torch.nn.functional.linear(x, w.to(dtype), bias.to(dtype))
    dgrad = "plain" if recipe.dgrad == "plain" else recipe.backward
    wgrad = "plain" if recipe.wgrad == "plain" else recipe.backward
    if dgrad == "quantized":
        w_columns = _columns(w, recipe.weight, ws, step)
        dx = product(_rows(g, recipe.gradient, seed, step), w_columns, dtype)
    else:
        other = w if dgrad == "plain" else mxkern.dequantize(w_rows, dtype=g.dtype)
        dx = (g @ other.to(g.dtype)).to(dtype)
    if wgrad == "quantized":
        left = _columns(g, recipe.gradient, seed, step)
        dw = product(left, _columns(x, recipe.input, xs, step), w.dtype)
    else:
        other = x if wgrad == "plain" else mxkern.dequantize(x_rows, dtype=g.dtype)
        dw = (g.t() @ other.to(g.dtype)).to(w.dtype)
    return y, dx, dw, g.float().sum(0).to(bias.dtype)
