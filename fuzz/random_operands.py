"""fuzz/random_operands.py: random tensors and operands for both devices, and what is to be the same
on them, or near what it is in double precision.
"""

import random
from collections.abc import Callable
from typing import Any

import torch

import mxkern

DTYPES = [torch.float32, torch.float16, torch.bfloat16]
SCHEMES = [scheme.name for scheme in mxkern.schemes]


def extent(source: random.Random, most: int) -> int:
    """Small, near a multiple of a tile, or anything."""
    near = source.choice([16, 32, 64, 128, 256]) + source.choice([-1, 0, 0, 1])
    return max(1, min(most, source.choice([source.randint(1, 20), near, source.randint(1, most)])))


def elements(source: random.Random, shape: tuple[int, ...], *, finite: bool) -> torch.Tensor:
    """Numbers of one of the kinds that tensors have, in float32."""
    generator = torch.Generator().manual_seed(source.randrange(2**32))
    x = torch.randn(shape, generator=generator)
    kind = source.randrange(6)
    if kind == 1:  # magnitudes that differ from element to element
        spread = source.choice([2, 8, 40])
        x = torch.ldexp(x, torch.randint(-spread, spread + 1, shape, generator=generator))
    elif kind == 2:  # ties and codes themselves
        x = torch.round(x * 8) / source.choice([1, 2, 16])
    elif kind == 3:  # mostly zeros, of both signs
        x = x * (torch.rand(shape, generator=generator) < 0.05)
    elif kind == 4 and not finite:  # the ends of the dtypes
        x = torch.ldexp(x, torch.full(shape, source.choice([-150, -135, -126, -20, 15, 110, 126])))
    if not finite and source.random() < 0.3:
        special = torch.tensor([float("inf"), -float("inf"), float("nan"), -0.0, 3e38, 1e-45])
        chosen = torch.randint(0, len(special), shape, generator=generator)
        x = torch.where(torch.rand(shape, generator=generator) < 0.01, special[chosen], x)
    return x


def plain(
    source: random.Random, shape: tuple[int, ...], *, finite: bool, dtype: torch.dtype | None = None
) -> torch.Tensor:
    """A tensor on the CPU; at times a part of a larger one, with gaps or at an odd address."""
    dtype = dtype or source.choice(DTYPES)
    way = source.randrange(4)
    if way == 0 and len(shape) > 1:
        gap = source.choice([1, 8, 64])
        wide = elements(source, (*shape[:-1], shape[-1] + gap), finite=finite).to(dtype)
        return wide[..., source.choice([0, gap]) :][..., : shape[-1]]
    if way == 1:
        size = 1
        for n in shape:
            size *= n
        return elements(source, (size + 3,), finite=finite).to(dtype)[3:].view(shape)
    return elements(source, shape, finite=finite).to(dtype)


def on_gpu(x: Any) -> Any:
    """The same with arrays on the GPU, with the same strides."""
    if isinstance(x, mxkern.BlockScaled):
        return x.replace(
            codes=on_gpu(x.codes), scales=on_gpu(x.scales), tensor_scale=on_gpu(x.tensor_scale)
        )
    if not isinstance(x, torch.Tensor):
        return x
    if x.is_contiguous():
        return x.cuda()
    memory = torch.empty(0, dtype=torch.uint8).set_(x.untyped_storage()).cuda()
    copy = torch.empty(0, dtype=x.dtype, device="cuda")
    return copy.set_(memory.untyped_storage(), x.storage_offset(), x.shape, x.stride())


def copied(x: torch.Tensor) -> torch.Tensor:
    """The same where it is, with the same strides and what lies between its rows."""
    memory = x.untyped_storage().clone()
    return torch.empty(0, dtype=x.dtype, device=x.device).set_(
        memory, x.storage_offset(), x.shape, x.stride()
    )


def output(source: random.Random, shape: tuple[int, ...], dtype: torch.dtype) -> dict[str, Any]:
    """Options of a product that is written to a tensor, or added to it; or none."""
    if source.random() < 0.6:
        return {}
    out = plain(source, shape, finite=True, dtype=dtype)
    return {"out": out, "beta": source.choice([0.0, 1.0, -0.5])}


def before(options: dict[str, Any]) -> torch.Tensor:
    """What is added to a product with such options, in double precision."""
    if options.get("beta", 0.0) == 0.0:
        return torch.zeros(1, dtype=torch.float64)
    return options["beta"] * options["out"].double().cpu()


def memory_of(x: torch.Tensor) -> torch.Tensor:
    """All of its storage, as bytes."""
    return torch.empty(0, dtype=torch.uint8, device=x.device).set_(x.untyped_storage())


def multiplied(function: Callable[..., Any], *operands: Any, **options: Any) -> torch.Tensor:
    """The product, in memory of its own; what lies between the rows of out stays."""
    if "out" not in options:
        return function(*operands, **options)
    out = copied(options["out"])
    result = function(*operands, **options | {"out": out})
    if result is not out:
        raise AssertionError("the result is not out")
    beside = copied(out)
    beside.copy_(options["out"])  # then all of its memory is as it was
    if not torch.equal(memory_of(beside), memory_of(options["out"])):
        raise AssertionError("something beside out was written")
    return out


def bytes_of(x: torch.Tensor) -> torch.Tensor:
    return x.detach().cpu().contiguous().reshape(-1).view(torch.uint8)


def expect_same(what: str, cpu: Any, gpu: Any) -> None:
    """All arrays of two results have the same bytes."""
    if isinstance(cpu, mxkern.BlockScaled):
        expect_same(what, (*cpu.parts, *cpu.facts), (*gpu.parts, *gpu.facts))
    elif isinstance(cpu, tuple):
        for i, (a, b) in enumerate(zip(cpu, gpu, strict=True)):
            expect_same(f"{what}[{i}]", a, b)
    elif isinstance(cpu, torch.Tensor):
        if not torch.equal(bytes_of(cpu), bytes_of(gpu)):
            raise AssertionError(f"{what}: {(bytes_of(cpu) != bytes_of(gpu)).sum()} bytes differ")
    elif cpu != gpu:
        raise AssertionError(f"{what}: {cpu} and {gpu}")


def rounded(x: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """To the dtype and back, in double precision."""
    return x.to(dtype).double()


def check_product(what: str, out: torch.Tensor, want: torch.Tensor, limit: float) -> None:
    """NaN and Inf where they should be, and the relative L2 of the rest within the limit and what
    rounding to out's dtype does."""
    got = out.cpu().double()
    largest = torch.finfo(out.dtype).max
    if not torch.equal(got.isnan(), want.isnan()):
        raise AssertionError(f"{what}: NaN at other places")
    near = want.abs() < largest / 2
    infinite = want.isinf()
    if not torch.equal(got[infinite], want[infinite]):
        raise AssertionError(f"{what}: Inf at other places")
    if not got[near].isfinite().all():
        raise AssertionError(f"{what}: not finite where it should be")
    norm = want[want.isfinite()].norm()  # where out overflows, too
    error = (got[near] - want[near]).norm()
    rounding = (rounded(want[near], out.dtype) - want[near]).norm()
    if error > limit * norm + 1.01 * rounding + 1e-30:
        raise AssertionError(
            f"{what}: relative L2 {error / norm:.3g}, rounding {rounding / norm:.3g}"
        )


def operand(source: random.Random, shape: tuple[int, ...], scheme: str) -> mxkern.BlockScaled:
    layout = source.choice(["row_major", "swizzled"])
    x = elements(source, shape, finite=True)
    q: mxkern.BlockScaled = mxkern.quantize(x, scheme, scale_layout=layout)
    if q.scales.numel() > 0 and source.random() < 0.2:  # a poisoned block
        flat = q.scales.view(torch.uint8).reshape(-1)
        flat[source.randrange(flat.numel())] = 0x7F if scheme == "nvfp4" else 0xFF
    return q
