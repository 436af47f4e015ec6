# tests/python/pytorch/operators/torch_sharding_cases.py: operators of PyTorch on DTensors, for one
# rank of a group.
from __future__ import annotations

from typing import Any

import torch
import torch.distributed
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard
from torch.distributed.tensor.experimental import register_sharding

import mxkern
import mxkern.torch
from support import array_of, random_values

OPS = torch.ops.mxkern
ROWS, OUTPUTS = 64, 24
# PyTorch keeps the shapes of results by those of arguments, and not by strings such as the scheme.
COLUMNS = {"mxfp8_e4m3": 128, "mxfp4": 192, "nvfp4": 64}


def quantized_shards(parts: int) -> Any:
    """Shards of whole blocks: rows, and columns, stay what they are, in codes and in scales."""
    whole = ([Replicate()] * parts, [Replicate(), None, None, None])
    return lambda x, scheme, *rest, **options: [
        whole,
        *(([Shard(i)] * parts, [Shard(i), None, None, None]) for i in (0, 1)),
    ]


def product_shards(*arguments: Any, **options: Any) -> Any:
    """The rows of a, the rows of b, or the columns of both, whose products are to be summed."""

    def operand(placement: Any, tensors: tuple[Any, ...]) -> list[Any]:
        return [None if tensor is None else placement for tensor in tensors]

    a, b = arguments[:4], arguments[6:10]
    return [
        ([out], [*operand(left, a), None, None, *operand(right, b), None, None])
        for out, left, right in (
            (Shard(0), Shard(0), Replicate()),
            (Shard(1), Replicate(), Shard(0)),
            (Partial(), Shard(1), Shard(1)),
        )
    ]


def run(rank: int, ranks: int, meeting: str) -> None:
    torch.distributed.init_process_group("gloo", f"file://{meeting}", rank=rank, world_size=ranks)
    try:
        check(torch.distributed.init_device_mesh("cpu", (ranks,)), rank, ranks)
    finally:
        torch.distributed.destroy_process_group()


def check(mesh: Any, rank: int, ranks: int) -> None:
    register_sharding(OPS.quantize.default)(quantized_shards(2))
    register_sharding(OPS.quantize_both_two_level.default)(
        lambda x, scheme, *rest, **options: [
            (
                [Shard(0), Shard(0), Replicate(), Shard(1), Shard(1), Replicate()],
                [Shard(0), None, *[Replicate()] * 2],
            )
        ]
    )
    register_sharding(OPS.gemm.default)(product_shards)
    register_sharding(OPS.tensor_amax.default)(
        lambda x: [([Partial("max")], [Shard(0)]), ([Replicate()], [Replicate()])]
    )

    def mine(whole: Any, axis: int) -> Any:
        return whole.chunk(ranks, axis)[rank].contiguous()

    def shards(whole: Any, axis: int) -> Any:
        return DTensor.from_local(mine(whole, axis), mesh, [Shard(axis)])

    def values(rows: int, scheme: str) -> Any:
        return array_of("torch", random_values((rows, COLUMNS[scheme]), "float32", rows))

    for scheme in ("mxfp8_e4m3", "mxfp4"):
        x, w = values(ROWS, scheme), values(OUTPUTS, scheme)
        kind = f"quantized {scheme} row_major"
        left, right = mxkern.quantize(x, scheme), mxkern.quantize(w, scheme)
        product = mxkern.gemm(left, right)
        for axis in (0, 1):
            codes, scales = OPS.quantize(shards(x, axis), scheme)
            for got, want in ((codes, left.codes), (scales, left.scales)):
                assert got.placements == (Shard(axis),) and got.shape == want.shape
                assert same_bytes(got.to_local(), mine(want, axis)), (scheme, axis)
            weights = [
                DTensor.from_local(part, mesh, [Replicate()])
                if axis == 0
                else DTensor.from_local(mine(part, 1), mesh, [Shard(1)])
                for part in right.parts[:2]
            ]
            none = (None, None, kind, None)
            got = OPS.gemm(codes, scales, *none, *weights, *none)
            assert got.placements == ((Shard(0),) if axis == 0 else (Partial(),))
            if axis == 0:
                assert got.to_local().equal(mine(product, 0))
            else:
                torch.testing.assert_close(got.full_tensor(), product, rtol=1e-5, atol=1e-4)

    x = values(ROWS, "nvfp4")
    amax = OPS.tensor_amax(shards(x, 0)).full_tensor()
    assert amax == mxkern.tensor_amax(x)
    shared = DTensor.from_local(amax, mesh, [Replicate()])
    sides = OPS.quantize_both_two_level(shards(x, 0), "nvfp4", shared, shared)
    wanted = [part for q in mxkern.quantize_both(x, "nvfp4") for part in q.parts]
    for i, (got, want) in enumerate(zip(sides, wanted, strict=True)):
        local = want if want.dim() == 0 else mine(want, i // 3)
        assert same_bytes(got.to_local(), local), i


def same_bytes(a: Any, b: Any) -> bool:
    return a.dtype == b.dtype and a.reshape(-1).view(torch.uint8).equal(
        b.reshape(-1).view(torch.uint8)
    )
