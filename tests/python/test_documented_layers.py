# tests/python/test_documented_layers.py: the layers that docs/migrating.md shows, in every scheme,
# under torch.compile and with the gradients they give.
from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest

import mxkern
from support import SCHEMES, available, classes, mostly_slow

torch = pytest.importorskip("torch", reason="torch is not installed")

from torch._dynamo.testing import CompileCounter  # noqa: E402

SHOWN = classes("docs/migrating.md")
Linear, NVFP4Product = SHOWN["Linear"], SHOWN["NVFP4Product"]


@pytest.fixture(autouse=True)
def nothing_is_compiled_yet() -> None:
    torch._dynamo.reset()
    torch.manual_seed(0)


def distance(x: Any, wanted: Any) -> float:
    return float((x - wanted).norm() / wanted.norm())


@pytest.mark.parametrize("bias", [True, False], ids=["bias", "no bias"])
@pytest.mark.parametrize("scheme", mostly_slow(SCHEMES, "nvfp4"))
def test_linear_compiles_in_one_graph_and_is_loaded_again(scheme: str, bias: bool) -> None:
    x, layer = torch.randn(32, 256), Linear(torch.nn.Linear(256, 128, bias=bias), scheme)
    out = layer(x)
    # What the layer stands for: the product of rounded values.
    weight = mxkern.dequantize(layer.weight())
    rounded = mxkern.fake_quantize(x, scheme)
    assert distance(out, torch.nn.functional.linear(rounded, weight, layer.bias)) < 1e-5
    assert torch.compile(layer, fullgraph=True, backend="aot_eager")(x).equal(out)
    again = Linear(torch.nn.Linear(256, 128, bias=bias), scheme)
    assert not again(x).equal(out)
    again.load_state_dict(layer.state_dict())
    assert again(x).equal(out)
    again.ready = mxkern.prepare_operand(again.weight())
    torch._dynamo.reset()
    assert torch.compile(again, fullgraph=True, backend="aot_eager")(x).equal(out)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_linear_refuses_the_state_of_another_scheme(scheme: str) -> None:
    """Several have codes and scales of the same shapes."""
    state = Linear(torch.nn.Linear(64, 32), scheme).state_dict()
    assert all(isinstance(value, torch.Tensor) for value in state.values())
    for other in SCHEMES:
        model = torch.nn.Sequential(Linear(torch.nn.Linear(64, 32), other))
        given = {f"0.{name}": value for name, value in state.items()}
        if other == scheme:
            model.load_state_dict(given)
            continue
        with pytest.raises((ValueError, RuntimeError)) as caught:
            model.load_state_dict(given)
        message = f"this layer is of {other}; the state is of {scheme}"
        assert message in str(caught.value) or "size mismatch" in str(caught.value)
    del given["0._extra_state"]
    with pytest.raises(RuntimeError, match="Missing key"):
        model.load_state_dict(given)


@pytest.mark.parametrize("scheme", ["mxfp8_e4m3", "nvfp4"])
def test_linear_goes_through_files(scheme: str, tmp_path: Path) -> None:
    x, layer = torch.randn(32, 256), Linear(torch.nn.Linear(256, 128), scheme)
    torch.save(layer.state_dict(), tmp_path / "layer.pt")
    states = [torch.load(tmp_path / "layer.pt", weights_only=True)]
    if available("safetensors"):
        from safetensors.torch import load_file, save_file

        save_file(layer.state_dict(), tmp_path / "layer.safetensors")
        states.append(load_file(tmp_path / "layer.safetensors"))
    for state in states:
        again = Linear(torch.nn.Linear(256, 128), scheme)
        again.load_state_dict(state)
        assert again(x).equal(layer(x))


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["mxfp8_e4m3", "nvfp4"])
def test_linear_by_the_code_generator_and_exported(scheme: str) -> None:
    x, layer = torch.randn(32, 256), Linear(torch.nn.Linear(256, 128), scheme)
    assert torch.compile(layer, fullgraph=True)(x).equal(layer(x))
    assert torch.export.export(layer, (x,), strict=True).module()(x).equal(layer(x))


@pytest.mark.parametrize("scheme", ["mxfp8_e4m3", "nvfp4"])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_linear_of_another_dtype_keeps_its_codes(scheme: str, dtype: str) -> None:
    layer, x = Linear(torch.nn.Linear(256, 128), scheme), torch.randn(32, 256)
    half = copy.deepcopy(layer).to(getattr(torch, dtype))
    x = x.to(half.bias.dtype)
    for ours, theirs in zip(half.weight().parts, layer.weight().parts, strict=True):
        assert (ours is None and theirs is None) or ours.equal(theirs)
    assert half(x).dtype == x.dtype
    assert distance(half(x).float(), layer(x.float())) < 0.05


def product_and_gradients(x: Any, layer: Any, upstream: Any, seed: int, offset: Any) -> list[Any]:
    out = NVFP4Product.apply(x, layer.weight, layer.bias, seed, offset)
    parameters = [x, layer.weight] + ([] if layer.bias is None else [layer.bias])
    return [out.detach(), *torch.autograd.grad(out, parameters, upstream)]


@pytest.mark.parametrize("bias", [True, False], ids=["bias", "no bias"])
def test_gradients_of_nvfp4_are_near_those_of_float32(bias: bool) -> None:
    layer = torch.nn.Linear(256, 128, bias=bias)
    x, upstream = torch.randn(64, 256, requires_grad=True), torch.randn(64, 128)
    parameters = [x, *layer.parameters()]
    wanted = [layer(x).detach(), *torch.autograd.grad(layer(x), parameters, upstream)]
    got = product_and_gradients(x, layer, upstream, 3, 0)
    for ours, theirs, limit in zip(got, wanted, [0.2, 0.25, 0.25, 1e-6], strict=False):
        assert distance(ours, theirs) < limit
    assert len(got) == len(wanted) == 3 + bias


def test_gradients_of_nvfp4_are_right_on_average() -> None:
    """Rounding of the gradient, the one error that is drawn, goes with the number of steps."""
    layer = torch.nn.Linear(256, 128)
    x, upstream = torch.randn(64, 256, requires_grad=True), torch.randn(64, 128)
    rows, columns = mxkern.quantize_both(layer.weight.detach(), "nvfp4", block="16x16")
    weight = mxkern.dequantize(rows)
    assert mxkern.dequantize(columns).T.equal(weight)
    wanted = upstream @ weight
    draws = [product_and_gradients(x, layer, upstream, 3, step)[1] for step in range(16)]
    assert distance(draws[0], wanted) > 0.1
    assert distance(sum(draws) / 16, wanted) < 0.05
    again = product_and_gradients(x, layer, upstream, 3, 0)[1]
    assert again.equal(draws[0]) and not draws[1].equal(draws[0])
    assert not product_and_gradients(x, layer, upstream, 4, 0)[1].equal(draws[0])


def test_a_step_of_nvfp4_compiles_once() -> None:
    layer, frames = torch.nn.Linear(256, 128), CompileCounter()
    x, upstream = torch.randn(64, 256, requires_grad=True), torch.randn(64, 128)
    step = torch.zeros((), dtype=torch.int64)

    def product(x: Any, step: Any) -> Any:
        return NVFP4Product.apply(x, layer.weight, layer.bias, 3, step)

    compiled = torch.compile(product, fullgraph=True, backend=frames)
    for number in range(3):
        (gradient,) = torch.autograd.grad(compiled(x, step), x, upstream)
        assert gradient.equal(product_and_gradients(x, layer, upstream, 3, number)[1])
        step += 1
    assert frames.frame_count == 1
