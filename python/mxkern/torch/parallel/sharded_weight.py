# mxkern/torch/parallel/sharded_weight.py: weights that FSDP2 gathers as codes and scales.
from __future__ import annotations

from typing import Any

import torch
from torch.utils._pytree import tree_map_only

from mxkern.torch.layers.gathered_weight import GatheredWeight
from mxkern.torch.layers.linear import Linear
from mxkern.torch.recipes.autocast import check_recipe
from mxkern.torch.recipes.operand_calls import quantized
from mxkern.values.recipe import Operand, Recipe
from mxkern.values.scheme import schemes

_aten = torch.ops.aten
# Operations whose results are sharded weights too: parts, copies and moves of one.
_KEEP = (
    _aten.detach,
    _aten.alias,
    _aten.clone,
    _aten._to_copy,
    _aten._pin_memory,
    _aten.empty_like,
    _aten.new_empty,
    _aten.new_zeros,
    _aten.view,
    _aten.as_strided,
    _aten.slice,
    _aten.split,
)


def shard_quantized(model: Any, recipe: Recipe | None = None) -> Any:
    """Has fully_shard, which is to be called afterwards, gather the weights of a model's Linear
    layers as codes and scales: 0.516 of bfloat16's bytes for MXFP8, 0.28 for NVFP4. Returns model.

    recipe  for layers that have none of their own, as they run in autocast(recipe)

    A layer's weight has to be quantized in square blocks, mxfp8(weight_block="32x32") or nvfp4(),
    from which backward has the columns too; results are then those of the 16-bit gather, to the
    bit. Parameters become others, so make optimizers afterwards; they, clipping and checkpoints see
    16-bit or float32 shards. NVFP4 has one more collective a weight, of its amax.

    Raises TypeError for weights that are DTensors, ValueError for recipes without square blocks,
    or that multiply the 16-bit weight, and where no layer is left. fully_shard raises ValueError
    where squares would be split between ranks, for reshard_after_forward=N, and for dimensions
    other than 0.
    """
    check_recipe("shard_quantized", recipe)
    made: dict[int, Any] = {}
    for name, module in model.named_modules():
        own = recipe if getattr(module, "recipe", None) is None else module.recipe
        if not isinstance(module, Linear) or own is None or own.is_plain:
            continue
        _check(name, module.weight, own)
        weight = module.weight
        if id(weight) not in made:  # tied ones stay tied
            sharded = ShardedWeight(weight.detach(), own.weight, name)
            made[id(weight)] = torch.nn.Parameter(sharded, weight.requires_grad)
        module.weight = made[id(weight)]
    if not made:
        raise ValueError(
            "shard_quantized: model has no mxkern.torch.Linear with a recipe; expected one or "
            "more; call quantize_(model, Training(recipe)) first, or pass the recipe of autocast"
        )
    return model


def _check(name: str, weight: Any, recipe: Recipe) -> None:
    operand = recipe.weight
    if hasattr(weight, "device_mesh"):
        raise TypeError(
            f"shard_quantized: the weight of {name!r} is a DTensor; expected a plain one, as "
            "tensor-parallel weights are gathered in 16 bits; leave out shard_quantized"
        )
    if operand.block is None:
        size = schemes[operand.scheme].block
        raise ValueError(
            f"shard_quantized: the weight of {name!r} has blocks of 1x{size}; expected square "
            f"ones, as backward needs the columns too; pass weight_block='{size}x{size}'"
        )
    if operand.rounding != "nearest":
        raise ValueError(
            f"shard_quantized: the weight of {name!r} is rounded stochastically; expected nearest"
        )
    if recipe.forward == "plain" or "plain" in (recipe.dgrad, recipe.backward):
        raise ValueError(
            f"shard_quantized: the recipe of {name!r} multiplies the weight in 16 bits; expected "
            "forward and dgrad quantized; leave out shard_quantized to gather 16 bits"
        )


class ShardedWeight(torch.Tensor):  # type: ignore[misc]  # no types there
    """A weight, and a rank's shard of it once fully_shard was called: an ordinary tensor that says
    how it is gathered. Whatever computes with it, writes to it or stores it has that tensor."""

    data_here: Any
    operand: Operand
    layer: str
    split_rows: int | None  # as fully_shard cut the whole

    @staticmethod
    def __new__(cls, data: Any, operand: Operand, layer: str) -> ShardedWeight:
        made: ShardedWeight = torch.Tensor._make_wrapper_subclass(
            cls, data.size(), strides=data.stride(), dtype=data.dtype, device=data.device
        )
        made.data_here, made.operand, made.layer = data, operand, layer
        made.split_rows = None
        return made

    def __tensor_flatten__(self) -> tuple[list[str], Any]:
        return ["data_here"], (self.operand, self.layer)

    @staticmethod
    def __tensor_unflatten__(inner: Any, facts: Any, size: Any, stride: Any) -> ShardedWeight:
        return ShardedWeight(inner["data_here"], *facts)

    def __reduce_ex__(self, protocol: Any) -> Any:
        return self.data_here.__reduce_ex__(protocol)  # plain on disk

    def __repr__(self) -> str:
        return f"ShardedWeight({self.data_here!r}, {self.operand})"

    @classmethod
    def __torch_dispatch__(cls, function: Any, types: Any, args: Any, kwargs: Any = None) -> Any:
        own = args[0] if args and isinstance(args[0], cls) else None
        if own is not None and function is _aten.split.Tensor:
            own._check_split(args[1], args[2] if len(args) > 2 else 0)
        inner = tree_map_only(cls, lambda part: part.data_here, (args, kwargs or {}))
        result = function(*inner[0], **inner[1])
        if own is None:
            return result
        if function.overloadpacket in _KEEP:
            return tree_map_only(
                torch.Tensor, lambda part: cls(part, own.operand, own.layer), result
            )
        return own if result is own.data_here else result

    def _check_split(self, rows: int, dim: int) -> None:
        """fully_shard's cut into shards, refused where codes could not be gathered afterwards."""
        whole, block = self.shape[0], schemes[self.operand.scheme].block
        if dim != 0:
            raise ValueError(
                f"shard_quantized: the weight of {self.layer!r} is sharded along dimension {dim}; "
                "expected 0, as squares are gathered; leave the layer out"
            )
        if rows < whole and (whole % rows or rows % block):
            raise ValueError(
                f"shard_quantized: the weight of {self.layer!r} has {whole} rows, of which a rank "
                f"would get {rows}; expected as many for each, and whole squares of {block}; leave "
                "the layer out to gather it in 16 bits, by a recipe of its own"
            )
        if self.split_rows is not None and rows != self.split_rows:
            raise ValueError(
                f"shard_quantized: {self.layer!r} is sharded with reshard_after_forward=N; "
                "expected True or False, as fully_shard has no way to gather codes of such shards"
            )
        self.split_rows = rows

    def fsdp_pre_all_gather(
        self, mesh: Any, outer_size: Any, outer_stride: Any, module: Any, mp_policy: Any
    ) -> tuple[tuple[Any, ...], Any]:
        """What FSDP gathers: codes and scales as bytes; and what is the same on all ranks."""
        data = self.data_here
        if mp_policy.param_dtype is not None:
            data = data.to(mp_policy.param_dtype)
        if mesh.size() == 1:  # of which FSDP copies the first tensor alone
            return (data,), None
        amax_group = None
        if schemes[self.operand.scheme].has_tensor_scale:
            amax_group = mesh.get_group()
        q, _ = quantized(data, self.operand, "weight", True, False, amax_group=amax_group)
        parts = q.codes.view(torch.uint8), q.scales.view(torch.uint8)
        return parts, (q.tensor_scale, q.codes.dtype, q.scales.dtype, tuple(outer_size))

    def fsdp_post_all_gather(
        self, gathered: Any, facts: Any, param_dtype: Any, *, out: Any = None
    ) -> Any:
        """The weight that layers see, of all ranks' bytes, whose storages FSDP fills again."""
        if facts is None:
            return None if out is not None else (gathered[0], ())
        tensor_scale, codes_dtype, scales_dtype, shape = facts
        if out is not None:  # has views of the same storages
            if tensor_scale is not None:
                if tensor_scale.is_cuda:  # was made on the stream of FSDP's copies
                    tensor_scale.record_stream(torch.cuda.current_stream(tensor_scale.device))
                with torch.autograd._unsafe_preserve_version_counter(out.tensor_scale):
                    out.tensor_scale.copy_(tensor_scale)
            return None
        codes, scales = gathered[0].view(codes_dtype), gathered[1].view(scales_dtype)
        weight = GatheredWeight(codes, scales, tensor_scale, self.operand, shape, param_dtype)
        return weight, ()
