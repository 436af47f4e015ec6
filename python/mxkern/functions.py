# mxkern/functions.py: all operations in one namespace, and the list of them. Layers call them here,
# because the package itself stands above the layers.
from mxkern.ops.combine import combine
from mxkern.ops.dequantize import dequantize
from mxkern.ops.expert_layer import expert_layer
from mxkern.ops.fake_quantize import fake_quantize
from mxkern.ops.gemm import gemm
from mxkern.ops.grouped_gemm import grouped_gemm
from mxkern.ops.hadamard import random_hadamard
from mxkern.ops.pack_codes import pack_codes, unpack_codes
from mxkern.ops.prepare_both import prepare_both
from mxkern.ops.prepare_operand import prepare_operand
from mxkern.ops.quantize import quantize, quantize_both, quantize_columns, tensor_amax
from mxkern.ops.quantize_schemes import (
    quantize_mxfp4,
    quantize_mxfp6,
    quantize_mxfp8,
    quantize_mxint8,
    quantize_nvfp4,
)
from mxkern.ops.round_to import round_to
from mxkern.ops.scales import swizzle_scales, unswizzle_scales
from mxkern.ops.swiglu import swiglu
from mxkern.ops.transpose_square_blocks import transpose_square_blocks

__all__ = [
    "combine",
    "dequantize",
    "expert_layer",
    "fake_quantize",
    "gemm",
    "grouped_gemm",
    "pack_codes",
    "prepare_both",
    "prepare_operand",
    "quantize",
    "quantize_both",
    "quantize_columns",
    "quantize_mxfp4",
    "quantize_mxfp6",
    "quantize_mxfp8",
    "quantize_mxint8",
    "quantize_nvfp4",
    "random_hadamard",
    "round_to",
    "swiglu",
    "swizzle_scales",
    "tensor_amax",
    "transpose_square_blocks",
    "unpack_codes",
    "unswizzle_scales",
]
