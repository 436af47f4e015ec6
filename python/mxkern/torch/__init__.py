# mxkern/torch/__init__.py: mxkern inside PyTorch: operators, and layers that train and run models.
"""Linear layers whose products are block-scaled, for training and inference, and mxkern's functions
as operators of PyTorch.

    import mxkern.torch as mxt

    model = mxt.quantize_(model, mxt.Training(mxt.mxfp8()))     # train
    model = mxt.quantize_(model, mxt.WeightOnly("mxfp4"))       # or run
    y = mxt.linear(x, weight, bias, mxt.nvfp4())                # or one layer, and its gradients

From the import on torch.compile knows mxkern's functions: those of mxkern.torch.operators take
their place.
"""

try:
    import torch as _torch  # noqa: F401
except ModuleNotFoundError as error:
    if error.name != "torch":
        raise
    message = (
        "mxkern.torch needs PyTorch, which is not installed; install it with pip install torch"
    )
    raise ModuleNotFoundError(message, name="torch") from None

from mxkern.torch.layers.attention import attention
from mxkern.torch.layers.grouped import GroupedLinear, grouped_linear
from mxkern.torch.layers.linear import Linear, linear
from mxkern.torch.layers.weight_cache import WeightCache, refresh_weights
from mxkern.torch.models.compare_layers import LayerComparison, compare_layers
from mxkern.torch.models.configs import (
    QAT,
    Dynamic,
    Static,
    Training,
    WeightOnly,
    all_but_last,
    by_name,
)
from mxkern.torch.models.experts import convert_experts, restore_experts, unconverted_experts
from mxkern.torch.models.quantize_model import explain, quantize_
from mxkern.torch.models.stored_linear import QuantizedLinear
from mxkern.torch.operators import *  # noqa: F403
from mxkern.torch.operators import __all__ as _operators
from mxkern.torch.parallel.sharded_weight import shard_quantized
from mxkern.torch.quantized.linear import frozen_linear
from mxkern.torch.quantized.state_dict import plain_state_dict
from mxkern.torch.quantized.tensor import QuantizedTensor
from mxkern.torch.recipes.autocast import autocast, checkpoint_contexts, current_recipe
from mxkern.torch.recipes.available import (
    is_available,
    is_mxfp4_available,
    is_mxfp8_available,
    is_nvfp4_available,
)
from mxkern.torch.recipes.checkpoint_policy import keep_products
from mxkern.torch.recipes.random_bits import Step
from mxkern.values.recipe import Operand, Recipe, mx, mxfp4, mxfp8, nvfp4

__all__ = [
    "QAT",
    "Dynamic",
    "GroupedLinear",
    "LayerComparison",
    "Linear",
    "Operand",
    "QuantizedLinear",
    "QuantizedTensor",
    "Recipe",
    "Static",
    "Step",
    "Training",
    "WeightCache",
    "WeightOnly",
    "all_but_last",
    "attention",
    "autocast",
    "by_name",
    "checkpoint_contexts",
    "compare_layers",
    "convert_experts",
    "current_recipe",
    "explain",
    "frozen_linear",
    "grouped_linear",
    "is_available",
    "is_mxfp4_available",
    "is_mxfp8_available",
    "is_nvfp4_available",
    "keep_products",
    "linear",
    "mx",
    "mxfp4",
    "mxfp8",
    "nvfp4",
    "plain_state_dict",
    "quantize_",
    "refresh_weights",
    "restore_experts",
    "shard_quantized",
    "unconverted_experts",
]
__all__ += _operators
