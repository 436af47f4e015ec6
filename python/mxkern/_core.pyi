"""
The C++ library mxkern over plain addresses. The package mxkern checks arguments.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import mxkern.values.block_scaled
import mxkern.values.prepared_operand

def scheme_facts() -> list[dict[str, Any]]: ...
def names() -> dict[str, tuple[str, ...]]: ...
def hadamard_sizes() -> tuple[int, ...]: ...
def default_sign_mask() -> tuple[int, int]: ...

class AnyFormat:
    def __init__(
        self,
        exponent_bits: int,
        mantissa_bits: int,
        is_signed: bool,
        is_integer: bool,
        specials: int,
    ) -> None: ...
    @property
    def is_in_float32(self) -> bool: ...
    @property
    def width(self) -> int: ...
    @property
    def stored_bits(self) -> int: ...
    @property
    def max_value(self) -> float: ...
    @property
    def min_subnormal(self) -> float: ...
    def decode(self, code: int) -> float: ...
    def encode(self, options: AnyOptions, value: float, random: int = 0) -> int: ...

class AnyOptions:
    def __init__(
        self,
        rounding: int = 0,
        random_bits: int = 16,
        subnormals: bool = True,
        saturates: bool = True,
        rule: int = 0,
        threshold: float = 0.0,
        mse: bool = False,
        seed: int = 0,
        offset: int = 0,
        square: bool = False,
        transposed: bool = False,
    ) -> None: ...

class CustomScheme:
    def __init__(
        self,
        element: AnyFormat,
        scale_kind: int,
        scale_exponent_bits: int,
        scale_mantissa_bits: int,
        block_rows: int,
        block_columns: int,
        tensor_scales: int,
        name: str,
        codes: int,
        scales: int,
    ) -> None: ...
    @property
    def nan_scale(self) -> int: ...
    @property
    def scale_bits(self) -> int: ...
    @property
    def is_exact_in_bfloat16(self) -> bool: ...
    def decode_scale(self, code: int) -> float: ...
    def code_row_bytes(self, columns: int) -> int: ...

def any_names() -> tuple[str, ...]: ...
def info() -> dict[str, Any]: ...

most_threads: int = 4096

def num_threads() -> int: ...
def set_num_threads(n: int) -> None: ...
def version() -> str: ...
def built_with_cuda() -> bool: ...
def in_float_environment(function: object) -> object: ...

class QuantizeOptions:
    def __init__(self, numbers: Sequence[int]) -> None: ...
    def __eq__(self, other: object, /) -> bool: ...
    def __hash__(self) -> int: ...
    @property
    def offset(self) -> int: ...
    @property
    def chooses_for_squares(self) -> bool: ...
    @property
    def is_nearest(self) -> bool: ...
    def with_offset(self, offset: int) -> QuantizeOptions: ...
    @property
    def hadamard_size(self) -> int: ...
    @property
    def numbers(self) -> tuple[int, ...]: ...

class OffsetOptions(QuantizeOptions):
    def __init__(self, options: QuantizeOptions, array: object, address: object | None) -> None: ...
    @property
    def array(self) -> object: ...
    def without_array(self) -> QuantizeOptions: ...

def float32_bits(value: float) -> int: ...
def prepared_form(wanted: int, scheme: int, device: int) -> int: ...
def prepared_bytes(form: int, scheme: int, batch: int, rows: int, columns: int) -> int: ...

class GemmPlan:
    @property
    def workspace_bytes(self) -> int: ...

def plan_gemm_problem(
    left: tuple[int, ...],
    right: tuple[int, ...],
    out: tuple[int, int, int, int],
    precision: int,
    device: int,
) -> GemmPlan: ...
def grouped_gemm_problem_bytes(
    left: tuple[int, ...],
    right: tuple[int, ...],
    out: tuple[int, int, int, int],
    groups: int,
    of_columns: bool,
    precision: int,
    device: int,
) -> int: ...

class Signature:
    def __init__(
        self,
        function: str,
        names: Sequence[object],
        defaults: Sequence[object],
        taken: Sequence[object],
    ) -> None: ...
    @property
    def function(self) -> str: ...

class Calls:
    def __init__(self, **given: object) -> None: ...

def read_numpy(
    calls: Calls, adapter: object, array_type: object, empty: object, dtypes: Sequence[object]
) -> None: ...
def read_torch(
    calls: Calls, adapter: object, samples: Sequence[object], **given: object
) -> None: ...
def quantize(
    calls: Calls,
    signature: Signature,
    columns: bool,
    x: object,
    scheme: object,
    keywords: Mapping[str, object],
) -> mxkern.values.block_scaled.BlockScaled: ...
def quantize_both(
    calls: Calls, signature: Signature, x: object, scheme: object, keywords: Mapping[str, object]
) -> tuple[mxkern.values.block_scaled.BlockScaled, mxkern.values.block_scaled.BlockScaled]: ...
def fake_quantize(
    calls: Calls,
    signature: Signature,
    x: object,
    scheme: object,
    keywords: Mapping[str, object],
    through: bool = True,
) -> Any: ...
def tensor_amax(
    calls: Calls,
    x: object,
    size: int,
    sign_mask_low: int,
    sign_mask_high: int,
    columns: bool,
    out: object,
    stream: object,
) -> Any: ...
def dequantize(calls: Calls, q: object, dtype: object, out: object, stream: object) -> Any: ...
def gemm(
    calls: Calls,
    a: object,
    b: object,
    dtype: object,
    out: object,
    alpha: object,
    beta: object,
    bias: object,
    precision: object,
    stream: object,
) -> Any: ...
def grouped_gemm(
    calls: Calls,
    a: object,
    b: object,
    ends: object,
    dtype: object,
    out: object,
    alpha: object,
    beta: object,
    factors: object,
    bias: object,
    rows: object,
    precision: object,
    stream: object,
) -> Any: ...
def explain_gemm(
    calls: Calls,
    function: str,
    a: object,
    b: object,
    dtype: object,
    precision: object,
    beta: object,
    device: object,
    form: object,
) -> tuple[Any, ...]: ...
def explain_grouped_gemm(
    calls: Calls,
    a: object,
    b: object,
    ends: object,
    dtype: object,
    precision: object,
    device: object,
    form: object,
) -> tuple[Any, ...]: ...
def operand_views(calls: Calls, function: str, a: object, b: object) -> tuple[Any, ...]: ...
def grouped_views(
    calls: Calls, function: str, a: object, b: object, ends: object, factors: object
) -> tuple[Any, ...]: ...
def swiglu(
    calls: Calls,
    x: object,
    alpha: object,
    limit: object,
    offset: object,
    interleaved: bool,
    out: object,
    stream: object,
) -> Any: ...
def combine(
    calls: Calls,
    y: object,
    rows: object,
    weights: object,
    tokens: int,
    dtype: object,
    out: object,
    stream: object,
) -> Any: ...
def expert_layer(
    calls: Calls,
    x: object,
    gate_up: object,
    down: object,
    ends: object,
    rows: object,
    weights: object,
    gate_up_bias: object,
    down_bias: object,
    gate_up_factors: object,
    down_factors: object,
    alpha: object,
    limit: object,
    offset: object,
    interleaved: bool,
    scheme: object,
    options: QuantizeOptions | None,
    precision: object,
    dtype: object,
    out: object,
    stream: object,
) -> Any: ...
def prepare_operand(
    calls: Calls,
    x: object,
    scheme: object,
    options: QuantizeOptions | None,
    form: int,
    keep_source: bool,
    data: object,
    stream: object,
) -> mxkern.values.prepared_operand.PreparedOperand: ...
def prepare_both(
    calls: Calls, x: object, scheme: object, options: QuantizeOptions, stream: object
) -> tuple[Any, ...]: ...
def random_hadamard(
    calls: Calls,
    x: object,
    size: int,
    sign_mask_low: int,
    sign_mask_high: int,
    inverse: bool,
    out: object,
    stream: object,
) -> Any: ...
def move_scales(
    calls: Calls, function: str, scales: object, rows: int, blocks: int, out: object, stream: object
) -> Any: ...
def plain_view(calls: Calls, function: str, argument: str, x: object) -> tuple[Any, ...]: ...
def quantized_view(calls: Calls, function: str, argument: str, q: object) -> tuple[Any, ...]: ...
def custom_quantize(
    calls: Calls,
    function: str,
    x: object,
    scheme: CustomScheme,
    options: AnyOptions,
    layout: int,
    given: Sequence[object],
    out: object,
    stream: object,
) -> Any: ...
def custom_fake_quantize(
    calls: Calls,
    function: str,
    x: object,
    scheme: CustomScheme,
    options: AnyOptions,
    given: Sequence[object],
    out: object,
    stream: object,
) -> Any: ...
def custom_round(
    calls: Calls,
    function: str,
    x: object,
    format: AnyFormat,
    options: AnyOptions,
    out: object,
    stream: object,
) -> Any: ...
def custom_dequantize(
    calls: Calls,
    function: str,
    q: object,
    scheme: CustomScheme,
    dtype: int,
    out: object,
    stream: object,
) -> Any: ...
def custom_view(
    calls: Calls, function: str, argument: str, q: object, scheme: CustomScheme
) -> tuple[Any, ...]: ...
def custom_gemm(
    calls: Calls,
    a: object,
    b: object,
    dtype: object,
    out: object,
    alpha: object,
    beta: object,
    bias: object,
    scales: object,
    accumulate: AnyFormat | None,
    options: AnyOptions,
    stream: object,
) -> Any: ...
def custom_gemm_in_bfloat16(
    calls: Calls,
    a: object,
    b: object,
    scheme: CustomScheme,
    dtype: object,
    out: object,
    alpha: object,
    beta: object,
    bias: object,
    precision: object,
    stream: object,
) -> Any: ...
def linear_forward(
    calls: Calls,
    x: object,
    weight: object,
    bias: object,
    signature: Signature,
    x_scheme: object,
    x_options: Mapping[str, object],
    x_kept: int,
    x_folds: bool,
    weight_scheme: object,
    weight_options: Mapping[str, object],
    weight_kept: int,
    weight_folds: bool,
    dtype: object,
    precision: object,
) -> tuple[Any, list[Any], list[Any]]: ...
def xla_version() -> tuple[int, int] | None: ...
def xla_alignment() -> int: ...
def xla_handlers() -> dict[str, tuple[object, object]]: ...
