# tests/python/pytorch/parallel/tensor_parallel_cases.py: linear layers on DTensors.
from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from parallel_cases import Wire, World, case, refused, same, slow_case, sqnr
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    parallelize_module,
)

import mxkern.torch as mxt
from mxkern.torch.parallel.tensor_parallel import QuantizedColwiseParallel

RECIPES = {
    "mxfp8": mxt.mxfp8(),
    "hybrid": mxt.mxfp8("hybrid", weight_block="32x32"),
    "nvfp4": mxt.nvfp4(),
    "mxfp4": mxt.mxfp4(),
}
# In dB: y, dx and dw of normal data.
BARS = {
    "mxfp8": (27, 27, 27),
    "hybrid": (27, 24, 24),
    "nvfp4": (15, 14, 14),
    "mxfp4": (15, 13.5, 13.5),
}

NAMES = ("y", "dx", "dw", "db")
STYLES = {
    "column": lambda: ColwiseParallel(),
    "row": lambda: RowwiseParallel(),
    "sequence column": lambda: ColwiseParallel(input_layouts=Shard(1)),
    "sequence row": lambda: RowwiseParallel(output_layouts=Shard(1)),
    "quantized": lambda: QuantizedColwiseParallel(),
}


def made(
    world: World, recipe: Any, shape: tuple[int, int] = (192, 256), bias: bool = True, **more: Any
) -> mxt.Linear:
    """A layer with the same values on all ranks."""
    outputs, features = shape
    layer = mxt.Linear(
        features, outputs, bias, world.device, torch.bfloat16, recipe=recipe, seed=5, **more
    )
    with torch.no_grad():
        layer.weight.copy_(world.normal(*shape, seed=1))
        if bias:
            layer.bias.copy_(world.normal(outputs, seed=2))
    return layer


def cut(whole: Any, mesh: Any, placement: Any) -> Any:
    """A rank's part of what all ranks have."""
    return distribute_tensor(whole, mesh, [placement], src_data_rank=None).to_local().clone()


def together(local: Any, mesh: Any, placement: Any, shape: Any) -> Any:
    """The whole of the ranks' parts."""
    strides = torch.empty(shape, device="meta").stride()
    options = {"shape": torch.Size(shape), "stride": strides}
    return DTensor.from_local(local, mesh, [placement], **options).full_tensor()


def ran(world: World, mesh: Any, layer: Any, style: str, x: Any, gradient: Any) -> list[Any]:
    """y, dX, dW and db of all ranks together, of a layer under a style."""
    tokens = "sequence" in style or style == "quantized"
    row = "row" in style
    x_at = Shard(2) if row else Shard(1) if tokens else Replicate()
    y_at = (Shard(1) if tokens else Replicate()) if row else Shard(2)
    own = cut(x, mesh, x_at).requires_grad_()
    y = layer(own)
    y.backward(cut(gradient, mesh, y_at))
    results = [
        together(y.detach(), mesh, y_at, gradient.shape),
        together(own.grad, mesh, x_at, x.shape),
        layer.weight.grad.full_tensor(),
    ]
    return results if layer.bias is None else [*results, layer.bias.grad.full_tensor()]


def ran_plain(layer: Any, x: Any, gradient: Any) -> list[Any]:
    own = x.clone().requires_grad_()
    y = layer(own)
    y.backward(gradient)
    return [y.detach(), own.grad, layer.weight.grad, layer.bias.grad]


def parallel(layer: Any, mesh: Any, style: str) -> Any:
    return parallelize_module(layer, mesh, STYLES[style](), src_data_rank=None)


@case
def one_rank_is_no_parallelism(world: World) -> None:
    mesh = world.mesh(world.size, 1, names=("data", "tensor"))["tensor"]
    x, gradient = world.normal(2, 64, 256), world.normal(2, 64, 192, seed=9)
    for name, recipe in RECIPES.items():
        want = ran_plain(made(world, recipe), x, gradient)
        for style in STYLES:
            got = ran(world, mesh, parallel(made(world, recipe), mesh, style), style, x, gradient)
            for what, left, right in zip(NAMES, want, got, strict=True):
                same(left, right, f"{name} {style} {what}")


@case
def ranks_meet_the_bars(world: World) -> None:
    mesh = world.mesh()
    x, gradient = (
        world.normal(2, 64 * world.size, 256),
        world.normal(2, 64 * world.size, 192, seed=9),
    )
    weight, bias = world.normal(192, 256, seed=1).double(), world.normal(192, seed=2).double()
    rows, flat = x.flatten(0, 1).double(), gradient.flatten(0, 1).double()
    y = (rows @ weight.t() + bias).view(gradient.shape)
    want = y, (flat @ weight).view(x.shape), flat.t() @ rows, flat.sum(0)
    for name, recipe in RECIPES.items():
        for style in STYLES:
            got = ran(world, mesh, parallel(made(world, recipe), mesh, style), style, x, gradient)
            for what, right, wrong, bar in zip(NAMES, want, got, (*BARS[name], 40), strict=True):
                found = sqnr(right, wrong)
                assert found > bar, f"{name} {style} {what}: {found:.1f} dB, not {bar}"


@case
def quantized_gather_is_gather_then_quantize(world: World) -> None:
    mesh = world.mesh()
    for batch, tokens in ((1, 32 * world.size), (3, 64 * world.size), (2, 24 * world.size)):
        # Magnitudes that differ by rank, so that NVFP4's amax has to be shared.
        x = world.normal(batch, tokens, 160)
        x *= torch.arange(1, tokens + 1, device=x.device, dtype=x.dtype)[:, None] / tokens
        gradient = world.normal(batch, tokens, 96, seed=9)
        for name, recipe in RECIPES.items():
            both = [
                ran(
                    world,
                    mesh,
                    parallel(made(world, recipe, (96, 160)), mesh, style),
                    style,
                    x,
                    gradient,
                )
                for style in ("sequence column", "quantized")
            ]
            for what, left, right in zip(NAMES, *both, strict=True):
                same(left, right, f"{name} {batch}x{tokens} {what}")


@case
def shared_amax_is_that_of_all_tokens(world: World) -> None:
    """autocast's amax_group beside tensor parallelism: as if all had been quantized at once."""
    mesh, recipe = world.mesh(), mxt.nvfp4(rounding="nearest")
    x, gradient = world.normal(1, 32 * world.size, 64), world.normal(1, 32 * world.size, 64, seed=9)
    x *= torch.arange(1, x.shape[1] + 1, device=x.device, dtype=x.dtype)[:, None]
    want = ran_plain(made(world, recipe, (64, 64)), x, gradient)
    for style in ("sequence column", "quantized"):
        layer = parallel(made(world, None, (64, 64)), mesh, style)
        with mxt.autocast(recipe, amax_group=mesh.get_group()):
            got = ran(world, mesh, layer, style, x, gradient)
        for what, left, right in zip(NAMES, want, got, strict=True):
            if what == "y":  # the products of parts add up in the same order
                same(left, right, style)
            assert sqnr(left, right) > (45 if what == "dx" else 90), (style, what)


@case
def codes_travel(world: World) -> None:
    mesh, tokens = world.mesh(), 64 * world.size
    x, gradient = world.normal(1, tokens, 256), world.normal(1, tokens, 192, seed=9)
    own, part = cut(x, mesh, Shard(1)), cut(gradient, mesh, Shard(2))
    elements = own.numel()
    for name, each in (("mxfp8", 1 + 1 / 32), ("nvfp4", 9 / 16), ("mxfp4", 17 / 32)):
        layer = parallel(made(world, RECIPES[name]), mesh, "quantized")
        with Wire() as forward:
            y = layer(own.requires_grad_())
        with Wire() as backward:
            y.backward(part)
        assert (forward.bytes, forward.calls) == (each * elements, 1), (name, forward.bytes)
        assert (backward.bytes, backward.calls) == (each * elements, 1), (name, backward.bytes)
    layer = parallel(made(world, RECIPES["mxfp8"]), mesh, "quantized")
    with Wire() as uneven:
        layer(own[:, :24])  # ends inside of blocks
    assert uneven.bytes == 24 * 256 * 2 and uneven.calls == 1


@case
def shards_may_be_ragged(world: World) -> None:
    mesh = world.mesh()
    outputs, features, tokens = 33, 100 + world.size // 2, 16 * world.size + 1
    x, gradient = world.normal(1, tokens, features), world.normal(1, tokens, outputs, seed=9)
    weight, bias = world.normal(outputs, features, seed=1), world.normal(outputs, seed=2)
    y = x.double() @ weight.double().t() + bias.double()
    for style in STYLES:
        layer = parallel(made(world, mxt.mxfp8(), (outputs, features)), mesh, style)
        place = Shard(2)
        if "row" in style:
            place = Shard(1) if "sequence" in style else Replicate()
        x_at = Shard(2) if "row" in style else Replicate() if style == "column" else Shard(1)
        # Styles take the shapes of others for those of this rank, so the input says its own.
        whole_shape = {"shape": x.shape, "stride": x.stride()}
        got = layer(DTensor.from_local(cut(x, mesh, x_at), mesh, [x_at], **whole_shape))
        whole = together(got.detach(), mesh, place, y.shape)
        assert sqnr(y, whole) > 27, (style, sqnr(y, whole))
        got.backward(cut(gradient, mesh, place))
        dw = gradient[0].double().t() @ x[0].double()
        found = sqnr(dw, layer.weight.grad.full_tensor())
        assert found > 25, (style, found)


@case
def replicas_draw_the_same_bits(world: World) -> None:
    mesh = world.mesh()
    x, gradient = world.normal(1, 64, 64), world.normal(1, 64, 64, seed=9)
    ranks: list[Any] = [None] * world.size
    for recipe in (mxt.nvfp4(hadamard=None), mxt.mxfp4(hadamard=None)):
        # Replicated: by the module's own DTensors.
        layer = made(world, recipe, (64, 64))
        for name, parameter in list(layer.named_parameters()):
            whole = distribute_tensor(parameter.data, mesh, [Replicate()], src_data_rank=None)
            setattr(layer, name, torch.nn.Parameter(whole))
        layer(DTensor.from_local(x, mesh, [Replicate()])).to_local().backward(gradient)
        replica = layer.weight.grad.to_local()
        dist.all_gather_object(ranks, replica.cpu())
        for other in ranks:
            same(other, ranks[0], "replicas")
        # Sharded: every rank has the same part and the same gradient of its part.
        shards = []
        for step in (0, 1):
            layer = parallel(made(world, recipe, (64 * world.size, 64)), mesh, "column")
            layer.step.set(step)
            with torch.no_grad():
                layer.weight.to_local().copy_(world.normal(64, 64, seed=1))
            layer(x).backward(gradient)
            dist.all_gather_object(ranks, layer.weight.grad.to_local().cpu())
            shards += ranks
        for i, one in enumerate(shards):
            for other in shards[:i]:
                assert not torch.equal(one, other)
            assert sqnr(shards[0], one) > 10


@case
def row_bias_is_added_once(world: World) -> None:
    mesh = world.mesh()
    layer = made(world, mxt.mxfp8(), (48, 64))
    bias = layer.bias.detach().expand(1, 32, 48)
    for style in ("row", "sequence row"):
        row = parallel(made(world, mxt.mxfp8(), (48, 64)), mesh, style)
        with torch.no_grad():
            row.weight.to_local().zero_()
        x = cut(world.normal(1, 32, 64), mesh, Shard(2))
        got = row(x).detach()
        same(bias[:, : got.shape[1]].contiguous(), got, style)
        assert got.shape[1] == (32 // world.size if "sequence" in style else 32)


@slow_case
def compiled_is_eager(world: World) -> None:
    compiled_with(world, "aot_eager", "mxfp8", tuple(STYLES))
    compiled_with(world, "aot_eager", "nvfp4", ("sequence row", "quantized"))
    compiled_with(world, "inductor", "hybrid", ("column", "row"))
    compiled_with(world, "inductor", "mxfp4", ("quantized",))


def compiled_with(world: World, backend: str, name: str, styles: tuple[str, ...]) -> None:
    mesh, tokens = world.mesh(), 32 * world.size
    x, gradient = world.normal(1, tokens, 64), world.normal(1, tokens, 64, seed=9)
    for style in styles:
        torch._dynamo.reset()
        both = []
        for compiles in (False, True):
            layer = parallel(made(world, RECIPES[name], (64, 64)), mesh, style)
            if compiles:
                layer.compile(backend=backend, fullgraph=True)
            both.append(ran(world, mesh, layer, style, x, gradient))
        for what, left, right in zip(NAMES, *both, strict=True):
            same(left, right, f"{name} {style} {what}")


@case
def plain_tensors_are_refused(world: World) -> None:
    mesh = world.mesh()
    layer = parallel(made(world, mxt.mxfp8()), mesh, "column")
    x = world.normal(4, 256)
    refused(
        TypeError,
        lambda: mxt.linear(x, layer.weight, None, mxt.mxfp8()),
        "x is a plain tensor",
        "DTensor.from_local(x, mesh, placements)",
    )
    both = distribute_tensor(x, mesh, [Replicate()], src_data_rank=None)
    refused(
        TypeError,
        lambda: mxt.linear(both, world.normal(192, 256), None, mxt.mxfp8()),
        "weight is a plain tensor",
    )
    other = world.mesh(world.size, 1, names=("data", "tensor"))["tensor"]
    elsewhere = distribute_tensor(x, other, [Replicate()], src_data_rank=None)
    refused(ValueError, lambda: mxt.linear(elsewhere, layer.weight, None, mxt.mxfp8()), "one mesh")
    refused(
        ValueError, lambda: mxt.linear(both[:, :5], layer.weight, None, mxt.mxfp8()), "shape (4, 5)"
    )
    plain = torch.nn.Linear(4, 4)
    style = QuantizedColwiseParallel()
    refused(TypeError, lambda: parallelize_module(plain, mesh, style), "expected an mxkern.torch")
